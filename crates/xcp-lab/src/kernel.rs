// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Kernel images for the machine: Debian's packages, unpacked to a cache, or an image given
//! by the user.

use std::env;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use libc::{LOCK_EX, LOCK_NB};

use crate::architecture::{Architecture, AARCH64, X86_64};
use crate::archive::Archive;
use crate::newest::Source;
use crate::{depmod, file, file_lock, interrupt, newest, Error, Result};

/// The default kernel.
pub const DEFAULT_SERIES: &str = "6.18";

/// Time between two attempts to get a lock.
const LOCK_CHECK: Duration = Duration::from_millis(100);

/// The newest kernel that Debian has.
const NEWEST: &str = "newest";

/// Maximum size of a kernel image; an uncompressed one of arm64 has about 40 MB.
const MAX_IMAGE_BYTES: u64 = 1 << 28;

/// The suite from which ip and tc are fetched for a foreign architecture.
const TOOLS_SUITE: &str = "trixie";

/// Debian's kernel series and their suites.
const SERIES: &[(&str, &str)] = &[
    ("6.12", "trixie"),
    ("6.18", "trixie-backports"),
    (NEWEST, "sid"),
];

/// Whether this is the name of one of Debian's kernel series.
#[cfg(test)]
pub fn is_series(name: &str) -> bool {
    SERIES.iter().any(|(series, _)| *series == name)
}

/// A bootable kernel and its modules.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub image: PathBuf,
    pub architecture: &'static Architecture,
    /// The folder with `sbin/ip`, `sbin/tc` and their libraries for a foreign architecture.
    pub tools: Option<PathBuf>,
    /// The release, such as `6.18.15+deb13-cloud-amd64`.
    pub release: String,
    /// The folder to which the paths in modules.dep are relative.
    pub modules: PathBuf,
    /// The text of modules.dep.
    pub dependencies: String,
}

/// Finds or fetches a kernel: a series, followed by `-arm64` or `-amd64` for a foreign
/// architecture, or `IMAGE` or `IMAGE:MODULES`.
pub fn find(wanted: Option<&str>, step: &(dyn Fn(&str) + Sync)) -> Result<Kernel> {
    let wanted = wanted.unwrap_or(DEFAULT_SERIES);
    let (name, architecture) = wanted
        .rsplit_once('-')
        .and_then(|(name, debian)| Some((name, Architecture::find(|a| a.debian == debian)?)))
        .unwrap_or((wanted, Architecture::native()));
    match SERIES.iter().find(|(series, _)| *series == name) {
        Some((series, suite)) => cached(series, suite, architecture, step),
        None => named(wanted, step),
    }
}

/// The user's cache folder for this project.
pub fn cache_dir() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .ok_or_else(|| {
            Error::new(
                "cache folder",
                "neither XDG_CACHE_HOME nor HOME is set",
                "set one of them",
            )
        })?;
    let dir = base.join("xcp");
    fs::create_dir_all(&dir).map_err(|e| Error::io(dir.display().to_string(), &e))?;
    Ok(dir)
}

fn named(wanted: &str, step: &(dyn Fn(&str) + Sync)) -> Result<Kernel> {
    match wanted.split_once(':') {
        Some((image, modules)) => with_modules(image.into(), Some(modules.into()), step),
        None => with_modules(wanted.into(), None, step),
    }
}

fn with_modules(
    image: PathBuf,
    modules: Option<PathBuf>,
    step: &(dyn Fn(&str) + Sync),
) -> Result<Kernel> {
    let name = image.display().to_string();
    if !image.exists() {
        let series: Vec<&str> = SERIES.iter().map(|(s, _)| *s).collect();
        return Err(Error::new(
            name,
            "no such kernel",
            format!("give {}, or the path of an image", series.join(", ")),
        ));
    }
    let (architecture, release) = kind_of(&image)?;
    let modules = match modules {
        Some(folder) if !folder.is_dir() => {
            return Err(Error::new(
                folder.display().to_string(),
                "no such folder",
                format!("give the folder of the modules of {release}"),
            ))
        }
        Some(folder) => folder,
        None => modules_near(&image, &release).ok_or_else(|| {
            Error::new(
                &name,
                format!("the modules of {release} are not next to it"),
                format!("give their folder, too: --kernel {name}:FOLDER"),
            )
        })?,
    };
    let list = modules.join(depmod::LIST);
    let dependencies = if list.exists() {
        fs::read_to_string(&list).map_err(|e| Error::io(list.display().to_string(), &e))?
    } else {
        step(&format!("listing the modules in {}", modules.display()));
        depmod::list(&modules, &release)?
    };
    Ok(Kernel {
        image,
        architecture,
        tools: tools(architecture, step)?,
        release,
        modules,
        dependencies,
    })
}

/// Finds the folder of a kernel's modules from the path of its image. Prefers a folder with
/// modules.dep.
fn modules_near(image: &Path, release: &str) -> Option<PathBuf> {
    let root = image.parent()?.parent().unwrap_or(Path::new("/"));
    let around = image
        .parent()
        .filter(|dir| dir.file_name().is_some_and(|name| name == release));
    let folders: Vec<PathBuf> = around
        .map(Path::to_owned)
        .into_iter()
        .chain(
            ["usr/lib/modules", "lib/modules", "/lib/modules"]
                .iter()
                .map(|below| root.join(below).join(release)),
        )
        .collect();
    let has = |part: &str| folders.iter().find(|dir| dir.join(part).exists()).cloned();
    has(depmod::LIST).or_else(|| has("kernel"))
}

/// Reads the architecture and the release from an image.
fn kind_of(image: &Path) -> Result<(&'static Architecture, String)> {
    let name = image.display().to_string();
    let bytes = file::read(image, MAX_IMAGE_BYTES)?;
    let found = if bytes.get(0x202..0x206) == Some(b"HdrS") {
        release_of_bzimage(&bytes).map(|release| (&X86_64, release))
    } else if bytes.get(0x38..0x3c) == Some(b"ARM\x64") {
        release_of_arm64(&bytes).map(|release| (&AARCH64, release))
    } else {
        None
    };
    found.ok_or_else(|| {
        Error::new(
            &name,
            "not a Linux kernel image for x86-64 (bzImage) or arm64 (Image, not compressed)",
            "give a vmlinuz file",
        )
    })
}

/// Reads the release from the header of the x86 boot protocol: "HdrS" at 0x202, offset of
/// the version string minus 0x200 at 0x20e.
fn release_of_bzimage(bytes: &[u8]) -> Option<String> {
    let offset = bytes.get(0x20e..0x210)?;
    let at = usize::from(u16::from_le_bytes([offset[0], offset[1]])) + 0x200;
    first_word(bytes.get(at..at + 200)?)
}

/// Reads the release from the banner that the kernel prints at boot: arm64's header has none.
fn release_of_arm64(bytes: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let at = bytes.windows(BANNER.len()).position(|w| w == BANNER)? + BANNER.len();
    first_word(bytes.get(at..at + 200)?)
}

fn first_word(text: &[u8]) -> Option<String> {
    let word = text.split(|b| *b == b' ' || *b == 0).next()?;
    String::from_utf8(word.to_vec())
        .ok()
        .filter(|word| !word.is_empty())
}

/// Returns the folder of ip and tc for a foreign architecture; fetches them once.
fn tools(
    architecture: &'static Architecture,
    step: &(dyn Fn(&str) + Sync),
) -> Result<Option<PathBuf>> {
    if architecture.is_native() {
        return Ok(None);
    }
    let dir = cache_dir()?.join("tools");
    fs::create_dir_all(&dir).map_err(|e| Error::io(dir.display().to_string(), &e))?;
    let _lock = lock(&dir.join(format!("{}.lock", architecture.debian)), step)?;
    let place = dir.join(architecture.debian);
    if !place.exists() {
        step(&format!(
            "fetching ip and tc for {} (once)",
            architecture.debian
        ));
        let archive = Archive::open(TOOLS_SUITE, architecture, &dir)?;
        let unpacked = archive.fetch_program("iproute2")?.join("usr");
        fs::rename(unpacked, &place).map_err(|e| Error::io(place.display().to_string(), &e))?;
    }
    Ok(Some(place))
}

fn cached(
    series: &str,
    suite: &'static str,
    architecture: &'static Architecture,
    step: &(dyn Fn(&str) + Sync),
) -> Result<Kernel> {
    let mut dir = cache_dir()?.join("kernels");
    if !architecture.is_native() {
        dir.push(architecture.debian);
    }
    fs::create_dir_all(&dir).map_err(|e| Error::io(dir.display().to_string(), &e))?;
    let _lock = lock(&dir.join(format!("{series}.lock")), step)?;
    let mut debian = Debian::new(suite, architecture, &dir);
    let place = if series == NEWEST {
        newest::find(&dir, SystemTime::now(), &mut debian, step)?
    } else {
        dir.join(series)
    };
    if !place.exists() {
        step(&format!("fetching a Linux {series} kernel image (once)"));
        let version = debian.archive()?.newest(Some(series))?;
        debian.fetch(&version, &place)?;
    }
    with_modules(image_in(&place)?, None, step)
}

/// The kernels of one of Debian's suites. The list is fetched when it is first needed.
struct Debian<'a> {
    suite: &'static str,
    architecture: &'static Architecture,
    /// Packages are unpacked below this folder, so that they can be renamed into the cache.
    near: &'a Path,
    archive: Option<Archive>,
}

impl<'a> Debian<'a> {
    fn new(suite: &'static str, architecture: &'static Architecture, near: &'a Path) -> Self {
        Self {
            suite,
            architecture,
            near,
            archive: None,
        }
    }

    fn archive(&mut self) -> Result<&Archive> {
        let archive = match self.archive.take() {
            Some(archive) => archive,
            None => Archive::open(self.suite, self.architecture, self.near)?,
        };
        Ok(self.archive.insert(archive))
    }
}

impl Source for Debian<'_> {
    fn version(&mut self) -> Result<String> {
        self.archive()?.newest(None)
    }

    fn fetch(&mut self, version: &str, place: &Path) -> Result<()> {
        let unpacked = self.archive()?.fetch(version)?;
        depmod::write(&unpacked, &kind_of(&image_in(&unpacked)?)?.1)?;
        fs::rename(unpacked, place).map_err(|e| Error::io(place.display().to_string(), &e))
    }
}

/// The image in an unpacked kernel: in /boot or next to the modules (seen: the latter in
/// Debian's 7.2).
fn image_in(unpacked: &Path) -> Result<PathBuf> {
    let boot = first_file(&unpacked.join("boot"), "vmlinuz-");
    boot.or_else(|_| {
        let modules = first_file(&unpacked.join("usr/lib/modules"), "")?;
        first_file(&modules, "vmlinuz")
    })
}

/// Locks a file until it is dropped. An interrupt ends the wait for another process.
fn lock(path: &Path, step: &(dyn Fn(&str) + Sync)) -> Result<File> {
    let describe = |e| Error::io(path.display().to_string(), &e);
    let file = File::create(path).map_err(describe)?;
    let mut said = false;
    loop {
        match file_lock::lock(&file, LOCK_EX | LOCK_NB) {
            Ok(()) => return Ok(file),
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(describe(e)),
            Err(_) if interrupt::requested() => return Err(interrupt::error()),
            Err(_) => {}
        }
        if !said {
            step("waiting for another xcp lab, which is fetching the same files");
            said = true;
        }
        thread::sleep(LOCK_CHECK);
    }
}

fn first_file(dir: &Path, prefix: &str) -> Result<PathBuf> {
    fs::read_dir(dir)
        .map_err(|e| Error::io(dir.display().to_string(), &e))?
        .flatten()
        .map(|e| e.path())
        .find(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with(prefix))
        })
        .ok_or_else(|| {
            Error::new(
                dir.display().to_string(),
                format!("no {prefix}* in it"),
                "remove the folder, so that it is fetched again",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initramfs;
    use std::process::Command;

    #[test]
    fn files_that_are_not_kernels_are_reported() {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        let name = file.path().display().to_string();
        let error = named(&name, &|_| ()).expect_err("an empty file is not a kernel");
        assert!(error.reason.contains("not a Linux kernel image"), "{error}");
        assert!(named("/no/such/vmlinuz", &|_| ()).is_err());
    }

    #[test]
    fn modules_without_modules_dep_are_listed_and_not_changed() {
        let fetched = find(Some("6.18"), &|_| ()).expect("a kernel of Debian's");
        let folder = tempfile::tempdir().expect("temporary folder");
        for below in ["kernel/net", "kernel/drivers/net"] {
            let place = folder.path().join(below);
            fs::create_dir_all(&place).expect("a folder");
            let copied = Command::new("cp")
                .arg("-rT")
                .args([&fetched.modules.join(below), &place])
                .status();
            assert!(copied.expect("cp starts").success());
        }

        let image = fetched.image.display();
        let wanted = format!("{image}:{}", folder.path().display());
        let kernel = named(&wanted, &|_| ()).expect("its modules are there");
        assert_eq!(kernel.release, fetched.release);
        let files = initramfs::modules(&kernel, &[]).expect("a list");
        for module in ["veth.ko", "sch_netem.ko", "sch_tbf.ko"] {
            let file = files
                .iter()
                .find(|f| f.display().to_string().contains(module));
            assert!(file.is_some_and(|f| f.exists()), "{module}: {files:?}");
        }
        let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(left.len(), 1, "{left:?}");

        let wanted = format!("{image}:/no/such/folder");
        let e = named(&wanted, &|_| ()).expect_err("no such folder");
        assert_eq!(e.to_string(), "/no/such/folder: no such folder");
    }
}

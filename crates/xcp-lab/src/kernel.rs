// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Kernel images for the machine: Debian's packages, unpacked into a cache,
//! or an image that the user names.

use std::env;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{depmod, Error, Result};

/// The kernel that runs if none is named.
pub const DEFAULT_SERIES: &str = "6.18";

/// Where Debian's kernel series are to be found.
const SERIES: &[(&str, &str)] = &[("6.12", "trixie"), ("6.18", "trixie-backports")];
/// Debian's own address, for machines that have no Debian mirror configured.
const DEBIAN: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A bootable kernel and its modules.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub image: PathBuf,
    /// Such as `6.18.15+deb13-cloud-amd64`.
    pub release: String,
    /// The folder that the paths in modules.dep start from.
    pub modules: PathBuf,
    /// The text of modules.dep.
    pub dependencies: String,
}

/// Finds or fetches a kernel: a series, or `IMAGE` or `IMAGE:MODULES`.
pub fn find(wanted: Option<&str>, step: &(dyn Fn(&str) + Sync)) -> Result<Kernel> {
    let wanted = wanted.unwrap_or(DEFAULT_SERIES);
    match SERIES.iter().find(|(series, _)| *series == wanted) {
        Some((series, suite)) => cached(series, suite, step),
        None => named(wanted, step),
    }
}

/// The user's cache folder for this project.
pub fn cache_dir() -> Result<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
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
    let (image, modules) = match wanted.split_once(':') {
        Some((image, modules)) => (PathBuf::from(image), Some(PathBuf::from(modules))),
        None => (PathBuf::from(wanted), None),
    };
    let name = image.display().to_string();
    if !image.exists() {
        let series: Vec<&str> = SERIES.iter().map(|(s, _)| *s).collect();
        return Err(Error::new(
            name,
            "no such kernel",
            format!("name {} or the path of an image", series.join(", ")),
        ));
    }
    let release = release_of(&image)?;
    let modules = match modules {
        Some(folder) if !folder.is_dir() => {
            return Err(Error::new(
                folder.display().to_string(),
                "no such folder",
                format!("name the folder that the modules of {release} are in"),
            ))
        }
        Some(folder) => folder,
        None => beside(&image, &release).ok_or_else(|| {
            Error::new(
                &name,
                format!("the modules of {release} are not beside it"),
                format!("name their folder too: --kernel {name}:FOLDER"),
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
        release,
        modules,
        dependencies,
    })
}

/// The folder of a kernel's modules, by where its image is; rather one with
/// modules.dep.
fn beside(image: &Path, release: &str) -> Option<PathBuf> {
    let root = image.parent()?.parent().unwrap_or(Path::new("/"));
    let folders: Vec<PathBuf> = ["usr/lib/modules", "lib/modules", "/lib/modules"]
        .iter()
        .map(|below| root.join(below).join(release))
        .collect();
    let has = |part: &str| folders.iter().find(|dir| dir.join(part).exists()).cloned();
    has(depmod::LIST).or_else(|| has("kernel"))
}

/// The release that a bzImage says it is (Linux boot protocol: "HdrS" at
/// 0x202, offset of the version string at 0x20e, less 0x200).
fn release_of(image: &Path) -> Result<String> {
    let name = image.display().to_string();
    let bytes = fs::read(image).map_err(|e| Error::io(&name, &e))?;
    let not_a_kernel = || {
        Error::new(
            &name,
            "not a Linux kernel image for x86-64 (bzImage)",
            "name a vmlinuz file",
        )
    };
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Err(not_a_kernel());
    }
    let at = bytes
        .get(0x20e..0x210)
        .map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])) + 0x200)
        .ok_or_else(not_a_kernel)?;
    bytes
        .get(at..at + 200)
        .and_then(|text| text.split(|b| *b == b' ' || *b == 0).next())
        .and_then(|release| String::from_utf8(release.to_vec()).ok())
        .filter(|release| !release.is_empty())
        .ok_or_else(not_a_kernel)
}

fn cached(series: &str, suite: &str, step: &(dyn Fn(&str) + Sync)) -> Result<Kernel> {
    let dir = cache_dir()?.join("kernels");
    fs::create_dir_all(&dir).map_err(|e| Error::io(dir.display().to_string(), &e))?;
    let _lock = lock(&dir.join(format!("{series}.lock")))?;
    let place = dir.join(series);
    if !place.exists() {
        step(&format!("fetching a Linux {series} kernel image (once)"));
        fetch(series, suite, &place)?;
    }
    let image = first_file(&place.join("boot"), "vmlinuz-")?;
    named(&image.display().to_string(), step)
}

/// Holds others off until dropped.
fn lock(path: &Path) -> Result<File> {
    let describe = |e| Error::io(path.display().to_string(), &e);
    let file = File::create(path).map_err(describe)?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        return Err(describe(std::io::Error::last_os_error()));
    }
    Ok(file)
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
                "remove the folder: it will be fetched again",
            )
        })
}

/// Downloads the newest cloud kernel of a series with a private apt
/// configuration, and unpacks it. Nothing of the system's is touched.
fn fetch(series: &str, suite: &str, place: &Path) -> Result<()> {
    let work = tempfile::Builder::new()
        .prefix("fetch-")
        .tempdir_in(place.parent().unwrap_or(Path::new("/tmp")))
        .map_err(|e| Error::io("cache folder", &e))?;
    let at = |below: &str| work.path().join(below);
    for below in ["lists/partial", "cache/archives/partial", "unpacked"] {
        fs::create_dir_all(at(below)).map_err(|e| Error::io(below, &e))?;
    }
    let sources = format!("deb [signed-by={KEYRING}] {} {suite} main\n", mirror());
    fs::write(at("sources.list"), sources).map_err(|e| Error::io("sources.list", &e))?;

    apt(work.path(), "apt-get", &["-q", "update"])?;
    let pattern = format!(
        r"^linux-image-{}\.[0-9.]+.*-cloud-amd64$",
        series.replace('.', r"\.")
    );
    let names = apt(
        work.path(),
        "apt-cache",
        &["search", "--names-only", &pattern],
    )?;
    let package = names
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .max_by_key(|name| version_key(name))
        .ok_or_else(|| {
            Error::new(
                format!("kernel {series}"),
                format!("Debian's {suite} has none any more"),
                "name an image instead: --kernel IMAGE:MODULES",
            )
        })?
        .to_owned();
    apt(work.path(), "apt-get", &["-q", "download", &package])?;
    let deb = first_file(work.path(), &package)?;
    run(Command::new("dpkg-deb")
        .arg("-x")
        .arg(&deb)
        .arg(at("unpacked")))?;
    let image = first_file(&at("unpacked").join("boot"), "vmlinuz-")?;
    depmod::write(&at("unpacked"), &release_of(&image)?)?;
    fs::rename(at("unpacked"), place).map_err(|e| Error::io(place.display().to_string(), &e))
}

/// The numbers in a name, so that 6.12.107 comes after 6.12.94.
fn version_key(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect()
}

/// The Debian mirror that this machine is configured for.
fn mirror() -> String {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let more = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten();
    files.extend(more.flatten().map(|e| e.path()));
    files.sort();
    files
        .iter()
        .filter_map(|f| fs::read_to_string(f).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .find(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian"))
        .unwrap_or_else(|| DEBIAN.to_owned())
}

fn apt(dir: &Path, tool: &str, args: &[&str]) -> Result<String> {
    let at = |below: &str| dir.join(below).display().to_string();
    run(Command::new(tool)
        .current_dir(dir)
        .env("LC_ALL", "C.UTF-8")
        .arg("-o")
        .arg(format!("Dir::Etc::sourcelist={}", at("sources.list")))
        .args(["-o", "Dir::Etc::sourceparts=/dev/null"])
        .arg("-o")
        .arg(format!("Dir::State::lists={}", at("lists")))
        .arg("-o")
        .arg(format!("Dir::Cache={}", at("cache")))
        .args(["-o", "APT::Sandbox::User=root"])
        .args(args))
}

fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| {
        Error::new(
            &name,
            e.to_string(),
            "kernels are fetched with apt; elsewhere name one: --kernel IMAGE:MODULES",
        )
    })?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(Error::new(
        format!("fetching a kernel ({name})"),
        said.trim().to_owned(),
        "check the network and that debian-archive-keyring is installed, or name one: --kernel IMAGE:MODULES",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initramfs;

    #[test]
    fn newer_versions_sort_later() {
        let key = |n: &str| version_key(&format!("linux-image-6.12.{n}+deb13-cloud-amd64"));
        assert!(key("107") > key("94"));
    }

    #[test]
    fn what_is_no_kernel_is_said_so() {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        let name = file.path().display().to_string();
        let error = named(&name, &|_| ()).expect_err("an empty file is no kernel");
        assert!(error.reason.contains("not a Linux kernel image"), "{error}");
        assert!(named("/no/such/vmlinuz", &|_| ()).is_err());
    }

    #[test]
    fn modules_without_a_list_are_listed_and_left_alone() {
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
        let files = initramfs::modules(&kernel).expect("a list");
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

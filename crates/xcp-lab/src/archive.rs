// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Fetches kernel packages from Debian's archive with a private apt configuration. The
//! system is not changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::architecture::Architecture;
use crate::{interrupt, Error, Result};

/// The default mirror, for machines without a configured Debian mirror.
const DEBIAN: &str = "http://deb.debian.org/debian";
/// Verifies the signatures of the archive.
pub const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const IMAGE: &str = "linux-image-";

/// The current packages of one suite for one architecture.
pub struct Archive {
    suite: &'static str,
    architecture: &'static Architecture,
    work: TempDir,
}

impl Archive {
    /// Fetches the list of packages. Packages are unpacked on the file system of `near`.
    pub fn open(
        suite: &'static str,
        architecture: &'static Architecture,
        near: &Path,
    ) -> Result<Self> {
        let work = tempfile::Builder::new()
            .prefix("fetch-")
            .tempdir_in(near)
            .map_err(|e| Error::io("cache folder", &e))?;
        let archive = Self {
            suite,
            architecture,
            work,
        };
        for below in ["lists/partial", "cache/archives/partial", "unpacked"] {
            fs::create_dir_all(archive.at(below)).map_err(|e| Error::io(below, &e))?;
        }
        let mirror = mirror();
        match archive.update(&mirror) {
            // another archive than Debian's can have a URL that looks like a mirror
            Err(_) if mirror != DEBIAN && !interrupt::requested() => archive.update(DEBIAN)?,
            updated => updated?,
        }
        Ok(archive)
    }

    /// Fetches the list of packages from a mirror.
    fn update(&self, mirror: &str) -> Result<()> {
        let suite = self.suite;
        let sources = format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        fs::write(self.at("sources.list"), sources).map_err(|e| Error::io("sources.list", &e))?;
        self.apt("apt-get", &["-q", "update"])?;
        Ok(())
    }

    /// The newest version of a series such as `6.18`, or of all series.
    pub fn newest(&self, series: Option<&str>) -> Result<String> {
        let flavour = self.flavour();
        let pattern = format!("^{IMAGE}.*{flavour}$");
        let found = self.apt("apt-cache", &["search", "--names-only", &pattern])?;
        newest_of(&found, &flavour, series).ok_or_else(|| {
            Error::new(
                format!("kernel {}", series.unwrap_or("image")),
                format!("Debian's {} no longer has it", self.suite),
                "give an image instead: --kernel IMAGE:MODULES",
            )
        })
    }

    /// Downloads and unpacks a version. The folder is removed when `self` is dropped.
    pub fn fetch(&self, version: &str) -> Result<PathBuf> {
        let version = format!("{version}{}", self.flavour());
        let package = format!("{IMAGE}{version}");
        let about = self.apt("apt-cache", &["show", "--no-all-versions", &package])?;
        let pattern = format!("{version}$").replace('+', "\\+");
        let there = self.apt("apt-cache", &["search", "--names-only", &pattern])?;
        let parts = parts_of(&about, &version, &there);
        let names = [package].into_iter().chain(parts);
        let arguments: Vec<String> = ["-q", "download"]
            .map(str::to_owned)
            .into_iter()
            .chain(names)
            .collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.apt("apt-get", &arguments)?;
        self.unpack(self.work.path())
    }

    /// Downloads and unpacks a package with its dependencies.
    pub fn fetch_program(&self, package: &str) -> Result<PathBuf> {
        let quietly = ["-q", "-y", "--no-install-recommends", "--download-only"];
        // no lock is needed, since no installed package is changed
        let unlocked = ["-o", "Debug::NoLocking=true", "install", package];
        self.apt("apt-get", &[&quietly[..], &unlocked].concat())?;
        self.unpack(&self.at("cache/archives"))
    }

    fn unpack(&self, packages: &Path) -> Result<PathBuf> {
        let files = fs::read_dir(packages).map_err(|e| Error::io("cache folder", &e))?;
        for file in files.flatten().map(|e| e.path()) {
            if file.extension().is_some_and(|e| e == "deb") {
                run(Command::new("dpkg-deb")
                    .arg("-x")
                    .arg(&file)
                    .arg(self.at("unpacked")))?;
            }
        }
        Ok(self.at("unpacked"))
    }

    /// The flavour for virtual machines, which is small since it has few drivers.
    fn flavour(&self) -> String {
        format!("-cloud-{}", self.architecture.debian)
    }

    fn at(&self, below: &str) -> PathBuf {
        self.work.path().join(below)
    }

    fn apt(&self, tool: &str, args: &[&str]) -> Result<String> {
        let set = |option: &str, value: PathBuf| format!("{option}={}", value.display());
        let debian = self.architecture.debian;
        run(Command::new(tool)
            .current_dir(self.work.path())
            .env("LC_ALL", "C.UTF-8")
            .args(["-o", &set("Dir::Etc::sourcelist", self.at("sources.list"))])
            .args(["-o", "Dir::Etc::sourceparts=/dev/null"])
            .args(["-o", &set("Dir::State::lists", self.at("lists"))])
            // ignore the packages that are installed on this machine
            .args(["-o", "Dir::State::status=/dev/null"])
            .args(["-o", &set("Dir::Cache", self.at("cache"))])
            .args(["-o", &format!("APT::Architecture={debian}")])
            .args(["-o", &format!("APT::Architectures::={debian}")])
            .args(["-o", "APT::Sandbox::User=root"])
            // otherwise update succeeds without a network
            .args(["-o", "APT::Update::Error-Mode=any"])
            .args(args))
    }
}

/// The newest version of a series, or of all series, in the output of apt-cache.
fn newest_of(found: &str, flavour: &str, series: Option<&str>) -> Option<String> {
    let is_wanted = |version: &&str| match series {
        Some(series) => version
            .strip_prefix(series)
            .is_some_and(|rest| rest.starts_with('.')),
        // excludes `unsigned-7.2.3` and the package that depends on the newest version
        None => version.starts_with(|c: char| c.is_ascii_digit()),
    };
    found
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter_map(|name| name.strip_prefix(IMAGE)?.strip_suffix(flavour))
        .filter(is_wanted)
        .max_by_key(|version| version_key(version))
        .map(str::to_owned)
}

/// The dependencies of a kernel's image package with the same version and flavour, from
/// `apt-cache show`: 7.2 has its files in linux-binary-*, linux-modules-* and linux-base-*,
/// 6.18 has all in linux-image-*. Returns only packages that are in `there`, the list of
/// apt-cache: in trixie-backports, 6.18 depends on a linux-base-* that is not in the suite
/// and not needed here.
fn parts_of(about: &str, version: &str, there: &str) -> Vec<String> {
    let is_there = |name: &&str| {
        let mut names = there
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        names.any(|n| n == *name)
    };
    let end = format!("-{version}");
    about
        .lines()
        .filter_map(|line| line.strip_prefix("Depends: "))
        .flat_map(|line| line.split([',', '|']))
        .filter_map(|wanted| wanted.split_whitespace().next())
        .filter(|name| name.ends_with(&end))
        .filter(is_there)
        .map(str::to_owned)
        .collect()
}

/// The numbers in a version, so that 6.12.107 sorts after 6.12.94.
pub fn version_key(version: &str) -> Vec<u64> {
    version
        .split(|c: char| !c.is_ascii_digit())
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
    // apt ignores other names, such as *.bak
    files.retain(|f| f.extension().is_some_and(|e| e == "list" || e == "sources"));
    let texts = files.iter().filter_map(|f| fs::read_to_string(f).ok());
    let texts: Vec<String> = texts.collect();
    mirror_in(&texts).unwrap_or(DEBIAN).to_owned()
}

/// The Debian mirror in the texts of apt's sources: a URL that ends in /debian. The
/// shortest path is preferred, because other archives have such a folder, too.
fn mirror_in(sources: &[String]) -> Option<&str> {
    let lines = sources.iter().flat_map(|text| text.lines());
    let lines = lines.filter(|line| !line.trim_start().starts_with('#'));
    let words = lines.flat_map(str::split_whitespace);
    let is_mirror =
        |word: &&str| word.contains("://") && word.trim_end_matches('/').ends_with("/debian");
    let length = |url: &&str| url.trim_end_matches('/').split('/').count();
    words.filter(is_mirror).min_by_key(length)
}

fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| {
        Error::new(
            &name,
            e.to_string(),
            "kernels are fetched with apt; without apt, give one: --kernel IMAGE:MODULES",
        )
    })?;
    if interrupt::requested() {
        return Err(interrupt::error());
    }
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(Error::new(
        format!("fetching a kernel ({name})"),
        said.trim().to_owned(),
        "check the network and that debian-archive-keyring is installed, or give a kernel: \
         --kernel IMAGE:MODULES",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: &str = "\
linux-image-7.2.3+deb14-cloud-amd64 - Linux 7.2.3 for x86-64 cloud
linux-image-6.12.94+deb13-cloud-amd64 - Linux 6.12.94 for x86-64 cloud
linux-image-7.2.13+deb14-cloud-amd64 - Linux 7.2.13 for x86-64 cloud
linux-image-6.12.107+deb13-cloud-amd64 - Linux 6.12.107 for x86-64 cloud
linux-image-7.3.1+deb14-cloud-amd64-dbg - Linux 7.3.1 for x86-64 cloud (debug symbols)
linux-image-unsigned-7.3.2+deb14-cloud-amd64 - Linux 7.3.2 for x86-64 cloud
linux-image-7.3.3+deb14-amd64 - Linux 7.3.3 for 64-bit PCs
linux-image-cloud-amd64 - Linux for x86-64 cloud (meta-package)
";

    #[test]
    fn newest_image_of_a_series_or_of_all_is_chosen() {
        let newest = |series| newest_of(FOUND, "-cloud-amd64", series);
        assert_eq!(newest(None).as_deref(), Some("7.2.13+deb14"));
        assert_eq!(newest(Some("6.12")).as_deref(), Some("6.12.107+deb13"));
        assert_eq!(newest(Some("6.1")), None);
    }

    #[test]
    fn mirror_is_debians_and_not_that_of_another_archive() {
        let old = "# deb http://old.example/debian trixie main\n";
        let tool = "deb https://dl.example/public/tool/deb/debian any-version main\n";
        let debian = "deb [signed-by=/k.gpg] http://mirror.example/debian/ trixie main\n";
        let security = "URIs: http://security.debian.org/debian-security\nSuites: debian\n";
        let found = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
            mirror_in(&texts).map(str::to_owned)
        };
        let mirror = Some("http://mirror.example/debian/".to_owned());
        assert_eq!(found(&[old, tool, debian]), mirror);
        let company = "URIs: https://files.example/remote/debian\n";
        assert_eq!(
            found(&[old, company]).as_deref(),
            Some("https://files.example/remote/debian")
        );
        assert_eq!(found(&[old, security]), None);
    }

    #[test]
    fn all_packages_of_a_split_kernel_are_found() {
        let about = "Package: linux-image-7.2.13+deb14-cloud-amd64\n\
            Depends: dracut | initramfs-tools (>= 0.120), \
            linux-binary-7.2.13+deb14-cloud-amd64 (= 7.2.13-1), \
            linux-modules-7.2.13+deb14-cloud-amd64 (= 7.2.13-1)\n\
            Pre-Depends: linux-base (>= 4.17~)\n";
        let there = "linux-binary-7.2.13+deb14-cloud-amd64 - Linux 7.2.13\n\
            linux-modules-7.2.13+deb14-cloud-amd64 - modules of Linux 7.2.13\n";
        let parts = [
            "linux-binary-7.2.13+deb14-cloud-amd64",
            "linux-modules-7.2.13+deb14-cloud-amd64",
        ];
        assert_eq!(parts_of(about, "7.2.13+deb14-cloud-amd64", there), parts);
        let binary = there.lines().next().unwrap_or_default();
        assert_eq!(
            parts_of(about, "7.2.13+deb14-cloud-amd64", binary),
            parts[..1]
        );
        let old = "Depends: kmod, linux-base (>= 4.12~)\n";
        assert!(parts_of(old, "6.18.5-cloud-amd64", there).is_empty());
    }
}

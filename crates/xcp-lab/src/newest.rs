// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The cache of the kernel `newest`, which is replaced now and then: the folders
//! `newest-VERSION`, and the file `newest.checked`, whose modification time is that of the
//! last query of the archive.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::archive::version_key;
use crate::{interrupt, Error, Result};

const CHECKED: &str = "newest.checked";
const PREFIX: &str = "newest-";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Days between two queries of the archive.
const DAYS: u32 = 7;
/// Number of versions to keep: a run may be using the previous one.
const KEPT: usize = 2;

/// The source of kernels for this cache.
pub trait Source {
    /// The newest available version.
    fn version(&mut self) -> Result<String>;
    /// Unpacks a version into a new folder.
    fn fetch(&mut self, version: &str, place: &Path) -> Result<()>;
}

/// Returns the folder of the newest kernel, below the cache folder `dir`.
pub fn find(
    dir: &Path,
    now: SystemTime,
    source: &mut dyn Source,
    step: &(dyn Fn(&str) + Sync),
) -> Result<PathBuf> {
    let cached = versions(dir).pop();
    let age = fs::metadata(dir.join(CHECKED))
        .and_then(|checked| checked.modified())
        .ok()
        .and_then(|checked| now.duration_since(checked).ok());
    let place = |version: &str| dir.join(format!("{PREFIX}{version}"));
    match &cached {
        Some(version) if age.is_some_and(|age| age < DAY * DAYS) => return Ok(place(version)),
        Some(version) => step(&format!("looking for a newer kernel than Linux {version}")),
        None => step(&format!(
            "fetching Debian's newest kernel image (checked again after {DAYS} days)"
        )),
    }
    match (update(dir, &place, source, step), cached) {
        (Ok(place), _) => Ok(place),
        (Err(e), Some(version)) if !interrupt::requested() => {
            let reason = e.reason.lines().next().unwrap_or_default();
            step(&format!(
                "could not look for a newer kernel ({}: {reason}); using Linux {version}",
                e.thing
            ));
            Ok(place(&version))
        }
        (Err(e), _) => Err(e),
    }
}

fn update(
    dir: &Path,
    place: &dyn Fn(&str) -> PathBuf,
    source: &mut dyn Source,
    step: &(dyn Fn(&str) + Sync),
) -> Result<PathBuf> {
    let version = source.version()?;
    let new = place(&version);
    if !new.exists() {
        step(&format!("fetching a Linux {version} kernel image"));
        source.fetch(&version, &new)?;
    }
    let describe = |path: &Path, e| Error::io(path.display().to_string(), &e);
    let mut all = versions(dir);
    // the archive may have withdrawn a newer version
    all.retain(|v| *v != version);
    let old = all.len().saturating_sub(KEPT - 1);
    for version in &all[..old] {
        let place = place(version);
        fs::remove_dir_all(&place).map_err(|e| describe(&place, e))?;
    }
    let checked = dir.join(CHECKED);
    fs::write(&checked, "").map_err(|e| describe(&checked, e))?;
    Ok(new)
}

/// The cached versions, the newest last.
fn versions(dir: &Path) -> Vec<String> {
    let mut all: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| Some(e.file_name().to_str()?.strip_prefix(PREFIX)?.to_owned()))
        .collect();
    all.sort_by_key(|version| version_key(version));
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// An archive with one version, or an unreachable one.
    struct Shelf(Option<&'static str>, u32);

    impl Source for Shelf {
        fn version(&mut self) -> Result<String> {
            self.1 += 1;
            let version = self.0.map(str::to_owned);
            version.ok_or_else(|| Error::new("fetching a kernel", "no network\nat all", ""))
        }

        fn fetch(&mut self, _version: &str, place: &Path) -> Result<()> {
            fs::create_dir(place).map_err(|e| Error::io("a folder", &e))
        }
    }

    struct Cache(tempfile::TempDir);

    impl Cache {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("temporary folder"))
        }

        /// Returns the version found after `days` days, the number of queries, and the
        /// messages.
        fn find(&self, days: u32, version: Option<&'static str>) -> (Result<String>, u32, String) {
            let told = Mutex::new(String::new());
            let mut shelf = Shelf(version, 0);
            let found = find(
                self.0.path(),
                SystemTime::now() + DAY * days,
                &mut shelf,
                &|text| *told.lock().expect("no panic") += text,
            );
            let name = found.map(|p| {
                p.file_name()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned()
            });
            (name, shelf.1, told.into_inner().expect("no panic"))
        }
    }

    #[test]
    fn archive_is_queried_again_after_a_week() {
        let cache = Cache::new();
        for (days, version, found, asked) in [
            (0, "7.2.9", "newest-7.2.9", 1),
            (1, "7.2.13", "newest-7.2.9", 0),
            (8, "7.2.13", "newest-7.2.13", 1),
            (8, "7.3.1", "newest-7.3.1", 1),
        ] {
            let (name, times, told) = cache.find(days, Some(version));
            assert_eq!(name.expect("found"), found);
            assert_eq!(times, asked, "{found}");
            assert_eq!(told.is_empty(), asked == 0, "{told}");
        }
        // the previous version is kept
        assert_eq!(versions(cache.0.path()), ["7.2.13", "7.3.1"]);
    }

    #[test]
    fn cached_version_is_used_if_the_archive_is_unreachable() {
        let cache = Cache::new();
        let (none, _, _) = cache.find(0, None);
        assert_eq!(
            none.expect_err("nothing cached").reason,
            "no network\nat all"
        );
        cache.find(0, Some("7.2.13")).0.expect("found");
        let (name, times, told) = cache.find(8, None);
        assert_eq!((name.expect("found").as_str(), times), ("newest-7.2.13", 1));
        assert!(
            told.ends_with("(fetching a kernel: no network); using Linux 7.2.13"),
            "{told}"
        );
    }
}

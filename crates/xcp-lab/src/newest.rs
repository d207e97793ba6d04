// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The cache of the kernel `newest`, which another one takes the place of now
//! and then: the folders `newest-VERSION`, and the file `newest.checked` of
//! the time when the archive was asked last.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::archive::version_key;
use crate::{Error, Result};

const CHECKED: &str = "newest.checked";
const PREFIX: &str = "newest-";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The archive is asked again after this many days.
const DAYS: u32 = 7;
/// A run may be using the one before.
const KEPT: usize = 2;

/// The archive as this cache sees it.
pub trait Source {
    /// The newest version that there is.
    fn version(&mut self) -> Result<String>;
    /// Unpacks a version into a new folder.
    fn fetch(&mut self, version: &str, place: &Path) -> Result<()>;
}

/// The folder of the newest kernel, below the cache folder `dir`.
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
            "fetching Debian's newest kernel image (looked for again after {DAYS} days)"
        )),
    }
    match (update(dir, &place, source, step), cached) {
        (Ok(place), _) => Ok(place),
        (Err(e), Some(version)) => {
            let reason = e.reason.lines().next().unwrap_or_default();
            step(&format!(
                "could not look for a newer kernel ({}: {reason}); going on with Linux {version}",
                e.thing
            ));
            Ok(place(&version))
        }
        (Err(e), None) => Err(e),
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
    // the archive may have taken one back
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

    /// An archive with one version, or none within reach.
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

        /// What is found so many days later, how often the archive was asked
        /// for it, and the messages.
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
    fn the_archive_is_asked_again_after_a_week() {
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
        // the one before stays
        assert_eq!(versions(cache.0.path()), ["7.2.13", "7.3.1"]);
    }

    #[test]
    fn without_the_archive_the_cached_one_goes_on_and_it_is_told() {
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
            told.ends_with("(fetching a kernel: no network); going on with Linux 7.2.13"),
            "{told}"
        );
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The folder of kept results.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use tempfile::NamedTempFile;

use super::entry::{self, CacheValue, Label};
use super::key::Key;
use crate::file_lock::lock;
use crate::{kernel, Error, Result};

/// Environment variable with the folder; the default is `results` in the cache folder.
const FOLDER: &str = "XCP_CACHE_DIR";
/// Environment variable with the size limit of the folder, in megabytes.
const LIMIT: &str = "XCP_CACHE_MB";
const DEFAULT_LIMIT_MB: u64 = 2000;

const ENTRY: &str = "kept";
/// Prefix of the name of a file that is being written.
const WRITING: &str = "writing-";

/// The list of kept results.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    pub folder: PathBuf,
    pub limit_bytes: u64,
    pub total_bytes: u64,
    /// Sorted by last use, the newest first.
    pub entries: Vec<Entry>,
}

/// A kept result.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Absent if the file cannot be read.
    #[serde(flatten)]
    pub label: Option<Label>,
    pub bytes: u64,
    /// Seconds since it was created or last used.
    pub age_s: u64,
}

/// The removed results.
#[derive(Clone, Debug, Serialize)]
pub struct Cleared {
    pub folder: PathBuf,
    pub entries: usize,
    pub bytes: u64,
}

/// Lists all kept results.
///
/// # Errors
/// The folder cannot be read, or its settings are wrong.
pub fn list() -> Result<Listing> {
    Store::open()?.list()
}

/// Removes all kept results.
///
/// # Errors
/// The folder cannot be changed, or its settings are wrong.
pub fn clear() -> Result<Cleared> {
    Store::open()?.clear()
}

/// A folder of kept results.
pub(super) struct Store {
    folder: PathBuf,
    limit_bytes: u64,
}

/// The file of an entry.
struct Found {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Store {
    /// Opens the user's folder.
    pub(super) fn open() -> Result<Self> {
        let folder = match env::var_os(FOLDER).filter(|name| !name.is_empty()) {
            Some(name) => PathBuf::from(name),
            None => kernel::cache_dir()?.join("results"),
        };
        let limit_mb = match env::var(LIMIT) {
            Ok(text) => text.trim().parse().map_err(|_| {
                Error::new(
                    format!("{LIMIT}={text}"),
                    "not a whole number",
                    format!("give megabytes, such as {LIMIT}={DEFAULT_LIMIT_MB}"),
                )
            })?,
            Err(_) => DEFAULT_LIMIT_MB,
        };
        Self::at(folder, limit_mb.saturating_mul(1_000_000))
    }

    pub(super) fn at(folder: PathBuf, limit_bytes: u64) -> Result<Self> {
        fs::create_dir_all(&folder).map_err(|e| describe(&folder, &e))?;
        Ok(Self {
            folder,
            limit_bytes,
        })
    }

    pub(super) fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(key.as_str()).with_extension(ENTRY)
    }

    /// Returns the result with this key. Removes a damaged entry.
    pub(super) fn get<T: CacheValue>(&self, key: &Key) -> Option<T> {
        let path = self.path(key);
        let bytes = fs::read(&path).ok()?;
        let value = entry::decode(key, &bytes);
        // both fail if the folder is read-only
        if value.is_some() {
            let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        } else {
            let _ = fs::remove_file(&path);
        }
        value
    }

    /// Keeps a result; replaces one with the same key.
    pub(super) fn put(&self, key: &Key, label: &Label, value: &impl CacheValue) -> Result<()> {
        let path = self.path(key);
        let bytes = entry::encode(key, label, value).map_err(|e| describe(&path, &e))?;
        if bytes.len() as u64 > self.limit_bytes {
            return Err(Error::new(
                format!("{}, {}", label.experiment, label.variant),
                format!("takes {} bytes, more than {LIMIT} allows", bytes.len()),
                "raise the limit, or ignore this warning",
            ));
        }
        let mut file = self.begin()?;
        let written = file.write_all(&bytes).and_then(|()| {
            file.as_file().sync_all()?;
            file.as_file().set_modified(SystemTime::now())
        });
        written.map_err(|e| describe(file.path(), &e))?;
        file.persist(&path).map_err(|e| describe(&path, &e.error))?;
        self.tidy()
    }

    /// Creates a locked file for an entry. It is removed when dropped.
    pub(super) fn begin(&self) -> Result<NamedTempFile> {
        loop {
            let file = tempfile::Builder::new()
                .prefix(WRITING)
                .tempfile_in(&self.folder)
                .map_err(|e| describe(&self.folder, &e))?;
            lock(file.as_file(), libc::LOCK_EX).map_err(|e| describe(file.path(), &e))?;
            // another process may have removed it before it was locked
            let about = file.as_file().metadata();
            if about.map_err(|e| describe(file.path(), &e))?.nlink() > 0 {
                return Ok(file);
            }
        }
    }

    /// Removes the least recently used entries until the total is within the limit, and
    /// files left behind.
    pub(super) fn tidy(&self) -> Result<()> {
        self.remove_left_behind()?;
        let mut all = self.found()?;
        let mut total: u64 = all.iter().map(|f| f.bytes).sum();
        while total > self.limit_bytes {
            let Some(oldest) = all.pop() else { break };
            remove(&oldest.path)?;
            total -= oldest.bytes;
        }
        Ok(())
    }

    pub(super) fn remove_left_behind(&self) -> Result<()> {
        for path in self.paths()? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with(WRITING) {
                continue;
            }
            let Ok(file) = File::open(&path) else {
                continue; // it was renamed or removed
            };
            if lock(&file, libc::LOCK_EX | libc::LOCK_NB).is_ok() {
                remove(&path)?;
            }
        }
        Ok(())
    }

    pub(super) fn paths(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.folder).map_err(|e| describe(&self.folder, &e))?;
        Ok(entries.flatten().map(|e| e.path()).collect())
    }

    /// The files of all entries, the most recently used first.
    fn found(&self) -> Result<Vec<Found>> {
        let mut paths = self.paths()?;
        paths.retain(|path| path.extension().is_some_and(|e| e == ENTRY));
        let look = |path: PathBuf| {
            // another process may have just removed it
            let about = fs::metadata(&path).ok()?;
            Some(Found {
                path,
                bytes: about.len(),
                used: about.modified().ok()?,
            })
        };
        let mut all: Vec<Found> = paths.into_iter().filter_map(look).collect();
        all.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.path.cmp(&b.path)));
        Ok(all)
    }

    pub(super) fn list(&self) -> Result<Listing> {
        let all = self.found()?;
        let entry = |found: &Found| Entry {
            label: File::open(&found.path).ok().and_then(entry::label_of),
            bytes: found.bytes,
            age_s: found.used.elapsed().unwrap_or_default().as_secs(),
        };
        Ok(Listing {
            folder: self.folder.clone(),
            limit_bytes: self.limit_bytes,
            total_bytes: all.iter().map(|f| f.bytes).sum(),
            entries: all.iter().map(entry).collect(),
        })
    }

    pub(super) fn clear(&self) -> Result<Cleared> {
        self.remove_left_behind()?;
        let all = self.found()?;
        for found in &all {
            remove(&found.path)?;
        }
        Ok(Cleared {
            folder: self.folder.clone(),
            entries: all.len(),
            bytes: all.iter().map(|f| f.bytes).sum(),
        })
    }
}

/// Removes a file. Succeeds if another process has already removed it.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(describe(path, &e)),
        _ => Ok(()),
    }
}

fn describe(path: &Path, e: &std::io::Error) -> Error {
    let name = path.display().to_string();
    Error::new(
        name,
        e.to_string(),
        format!("give a writable folder: {FOLDER}=DIR"),
    )
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The shared key, in a file that only its owner may read.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use xcp_edge::message::Key;

use xcp_daemon::file_error;

use crate::{Error, Result};

/// Length of a new key, B: the length of an HMAC-SHA256 tag.
const BYTES: usize = 32;
/// Most bytes that are read from a key file.
const LONGEST: u64 = 4_096;

/// Reads a key: the file's first line.
///
/// # Errors
/// The file cannot be read, other users have access to it, or the key is too short.
pub fn read(path: &Path) -> Result<Key> {
    let failed = |e: &std::io::Error| file_error(path, e);
    let file = File::open(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::new(
            path.display().to_string(),
            "no such file",
            format!("make a key with: xcp edged key {}", path.display()),
        ),
        _ => failed(&e),
    })?;
    let mode = file.metadata().map_err(|e| failed(&e))?.mode();
    if mode & 0o077 != 0 {
        return Err(Error::new(
            path.display().to_string(),
            format!(
                "users other than its owner have access (mode {:o})",
                mode & 0o777
            ),
            format!(
                "chmod 600 {}, and make a new key if someone has read it",
                path.display()
            ),
        ));
    }
    let mut text = Vec::new();
    file.take(LONGEST)
        .read_to_end(&mut text)
        .map_err(|e| failed(&e))?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Key::new(line.trim_ascii()).map_err(|e| {
        Error::new(
            path.display().to_string(),
            e.to_string(),
            "make a key with: xcp edged key FILE",
        )
    })
}

/// Makes a random key in a new file.
///
/// # Errors
/// The file exists already, or cannot be written.
pub fn make(path: &Path) -> Result<()> {
    let failed = |e: &std::io::Error| file_error(path, e);
    let mut hex = String::new();
    for byte in random()? {
        // writing to a string cannot fail
        let _ = write!(hex, "{byte:02x}");
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => Error::new(
                path.display().to_string(),
                "already exists",
                "choose another file: edges may still use this key",
            ),
            _ => failed(&e),
        })?;
    writeln!(file, "{hex}").map_err(|e| {
        let _ = fs::remove_file(path);
        failed(&e)
    })
}

/// A random key for internal use.
pub(crate) fn seed() -> Result<Key> {
    Key::new(&random()?).map_err(|e| Error::new("random numbers", e.to_string(), "report this"))
}

fn random() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let path = Path::new("/dev/urandom");
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| file_error(path, &e))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn new_key_is_readable_and_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        make(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim_end().len(), 2 * BYTES);
        read(&path).unwrap();
        assert_eq!(make(&path).unwrap_err().reason, "already exists");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn key_file_with_access_for_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        make(&path).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(read(&path).unwrap_err().remedy.starts_with("chmod 600"));
        }
    }

    #[test]
    fn short_key_and_missing_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        make(&path).unwrap();
        fs::write(&path, "short\nbut this line is long enough for a key\n").unwrap();
        assert!(read(&path).is_err());
        assert!(read(&folder.path().join("none"))
            .unwrap_err()
            .remedy
            .contains("xcp edged key"));
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Reads files that users name.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{Error, Result};

/// Reads a file of at most this many bytes.
///
/// # Errors
/// The file cannot be read, or is larger: a device such as /dev/zero has no end.
pub fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    let name = path.display().to_string();
    let failed = |e| Error::io(&name, &e);
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(max_bytes + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    match bytes.len() as u64 > max_bytes {
        true => Err(too_large(&name, max_bytes)),
        false => Ok(bytes),
    }
}

/// The error for a file with more than this many bytes.
pub fn too_large(name: &str, max_bytes: u64) -> Error {
    let reason = format!("is larger than {} MB", max_bytes >> 20);
    Error::new(name, reason, "give another file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_an_end_are_refused() {
        let error = read(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(error.reason, "is larger than 1 MB");
        assert!(read(Path::new("/dev/null"), 1).unwrap().is_empty());
    }
}

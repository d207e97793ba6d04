// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The file of a kept result:
//!
//! ```text
//! xcp-kept FORMAT KEY DIGEST     DIGEST is the SHA-256 of the following bytes
//! {"experiment":"sharing",...}   the label, for lists
//! ...                            the result, compressed with zlib
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use flate2::Compression;
use serde::{Deserialize, Serialize};

use super::key::{digest, Key, FORMAT};

/// A value that can be kept.
pub trait CacheValue: Sized {
    fn write(&self, to: &mut dyn Write) -> io::Result<()>;

    /// Returns None if the data are incomplete.
    fn read(from: &mut dyn BufRead) -> Option<Self>;
}

const MAGIC: &str = "xcp-kept";
/// Maximum length of the two lines of text.
const HEAD_BYTES: u64 = 1 << 16;

/// Describes a kept result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// The experiment, or `task` for another task of the machine.
    pub experiment: String,
    pub variant: String,
    pub seed: u64,
    /// Release of the kernel that ran it.
    pub kernel: String,
}

/// Returns the bytes of the file.
pub fn encode(key: &Key, label: &Label, value: &impl CacheValue) -> io::Result<Vec<u8>> {
    let mut rest = serde_json::to_vec(label)?;
    rest.push(b'\n');
    let mut rest = ZlibEncoder::new(rest, Compression::fast());
    value.write(&mut rest)?;
    let rest = rest.finish()?;
    let first = format!("{MAGIC} {FORMAT} {} {}\n", key.as_str(), digest(&rest));
    Ok([first.as_bytes(), &rest].concat())
}

/// Returns the value in a file; None if the file is damaged or has another key.
pub fn decode<T: CacheValue>(key: &Key, file: &[u8]) -> Option<T> {
    let (first, rest) = split_line(file)?;
    let wanted = format!("{MAGIC} {FORMAT} {} {}", key.as_str(), digest(rest));
    if first != wanted.as_bytes() {
        return None;
    }
    let (_, packed) = split_line(rest)?;
    T::read(&mut BufReader::new(ZlibDecoder::new(packed)))
}

/// Returns the label of a file; None if it is not an entry of this format.
pub fn label_of(file: impl Read) -> Option<Label> {
    let mut head = BufReader::new(file.take(HEAD_BYTES));
    let mut line = String::new();
    head.read_line(&mut line).ok()?;
    if !line.starts_with(&format!("{MAGIC} {FORMAT} ")) {
        return None;
    }
    line.clear();
    head.read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

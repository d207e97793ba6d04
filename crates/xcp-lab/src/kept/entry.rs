// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The file of a kept result:
//!
//! ```text
//! xcp-kept FORMAT KEY DIGEST     DIGEST is the SHA-256 of all that follows
//! {"experiment":"sharing",...}   the label, for lists
//! ...                            zlib: a line of JSON, then the pcap files
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use flate2::Compression;
use serde::{Deserialize, Serialize};

use super::key::{digest, Key};
use crate::capture::Recording;
use crate::guest::Request;
use crate::machine::Played;
use crate::result::{Series, VariantResult};

/// Goes up when the file or the records in it change.
pub const FORMAT: u32 = 1;
const MAGIC: &str = "xcp-kept";
/// Both lines of text are shorter than this.
const HEAD_BYTES: u64 = 1 << 16;

/// What a kept result is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    pub experiment: String,
    pub variant: String,
    pub seed: u64,
    /// Release of the kernel that ran it.
    pub kernel: String,
}

impl Label {
    pub fn new(request: &Request, played: &Played) -> Self {
        Self {
            experiment: request.experiment.name.clone(),
            variant: played.result.name.clone(),
            seed: request.seed,
            kernel: played.kernel.clone(),
        }
    }
}

/// A recording, whose file comes later.
#[derive(Serialize, Deserialize)]
struct Recorded {
    point: String,
    packets: u64,
    missing: u64,
    file_bytes: u64,
}

/// The bytes of the file.
pub fn encode(key: &Key, label: &Label, played: &Played) -> io::Result<Vec<u8>> {
    let mut rest = serde_json::to_vec(label)?;
    rest.push(b'\n');
    let mut rest = ZlibEncoder::new(rest, Compression::fast());
    let recorded = |r: &Recording| Recorded {
        point: r.point.clone(),
        packets: r.packets,
        missing: r.missing,
        file_bytes: r.file.len() as u64,
    };
    let recordings: Vec<Recorded> = played.recordings.iter().map(recorded).collect();
    let Played {
        kernel,
        result,
        series,
        ..
    } = played;
    serde_json::to_writer(&mut rest, &(kernel, result, series, recordings))?;
    rest.write_all(b"\n")?;
    for recording in &played.recordings {
        rest.write_all(&recording.file)?;
    }
    let rest = rest.finish()?;
    let first = format!("{MAGIC} {FORMAT} {} {}\n", key.as_str(), digest(&rest));
    Ok([first.as_bytes(), &rest].concat())
}

/// The result in a file; None unless it is whole and has this key.
pub fn decode(key: &Key, file: &[u8]) -> Option<Played> {
    let (first, rest) = split_line(file)?;
    let wanted = format!("{MAGIC} {FORMAT} {} {}", key.as_str(), digest(rest));
    if first != wanted.as_bytes() {
        return None;
    }
    let (_, packed) = split_line(rest)?;
    let mut body = BufReader::new(ZlibDecoder::new(packed));
    let mut line = Vec::new();
    body.read_until(b'\n', &mut line).ok()?;
    let (kernel, result, series, recorded): (String, VariantResult, Series, Vec<Recorded>) =
        serde_json::from_slice(&line).ok()?;
    let recordings = recorded.into_iter().map(|r| {
        let mut file = Vec::new();
        let mut piece = body.by_ref().take(r.file_bytes);
        let read = piece.read_to_end(&mut file).ok()?;
        (read as u64 == r.file_bytes).then_some(Recording {
            point: r.point,
            packets: r.packets,
            missing: r.missing,
            file,
        })
    });
    Some(Played {
        kernel,
        result,
        series,
        recordings: recordings.collect::<Option<_>>()?,
    })
}

/// What a file says that it is of; None if it is no entry of this format.
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

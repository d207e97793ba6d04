// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! How a recording leaves the machine: in pieces of text. The port takes one
//! byte at a time, and much of a packet is zero: hex digits, and for 1 to 20
//! zero bytes one of the letters g to z.

use serde::{Deserialize, Serialize};

use crate::capture::Recording;

/// Bytes of the file in one piece.
const PIECE_BYTES: usize = 1 << 16;
const MOST_ZEROES: u8 = b'z' - b'g' + 1;

/// A piece of a recording. The pieces of a file follow each other.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Parcel {
    point: String,
    packets: u64,
    missing: u64,
    /// Bytes of the file, packed.
    text: String,
    /// No more pieces of this recording.
    last: bool,
}

/// Cuts a recording into pieces.
pub fn pack(recording: &Recording) -> impl Iterator<Item = Parcel> + '_ {
    let pieces = recording.file.len().div_ceil(PIECE_BYTES);
    let chunks = recording.file.chunks(PIECE_BYTES).enumerate();
    chunks.map(move |(i, bytes)| Parcel {
        point: recording.point.clone(),
        packets: recording.packets,
        missing: recording.missing,
        text: text_of(bytes),
        last: i + 1 == pieces,
    })
}

/// Puts the pieces together again.
#[derive(Default)]
pub struct Unpacker {
    whole: Vec<Recording>,
    bytes: Vec<u8>,
}

impl Unpacker {
    /// Takes the next piece; false if it cannot be one.
    #[must_use]
    pub fn add(&mut self, parcel: &Parcel) -> bool {
        if append(&mut self.bytes, &parcel.text).is_none() {
            return false;
        }
        if parcel.last {
            self.whole.push(Recording {
                point: parcel.point.clone(),
                packets: parcel.packets,
                missing: parcel.missing,
                file: std::mem::take(&mut self.bytes),
            });
        }
        true
    }

    /// All recordings that are whole.
    pub fn finish(self) -> Vec<Recording> {
        self.whole
    }
}

fn text_of(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = Vec::with_capacity(bytes.len());
    let mut zeroes = 0;
    for byte in bytes {
        if *byte == 0 && zeroes < MOST_ZEROES {
            zeroes += 1;
            continue;
        }
        if zeroes > 0 {
            text.push(b'g' + zeroes - 1);
            zeroes = 0;
        }
        if *byte == 0 {
            zeroes = 1;
        } else {
            text.push(DIGITS[usize::from(byte >> 4)]);
            text.push(DIGITS[usize::from(byte & 15)]);
        }
    }
    if zeroes > 0 {
        text.push(b'g' + zeroes - 1);
    }
    text.into_iter().map(char::from).collect()
}

fn append(bytes: &mut Vec<u8>, text: &str) -> Option<()> {
    let digit = |c: u8| char::from(c).to_digit(16);
    let mut rest = text.bytes();
    while let Some(c) = rest.next() {
        if let b'g'..=b'z' = c {
            bytes.resize(bytes.len() + usize::from(c - b'g' + 1), 0);
        } else {
            bytes.push((digit(c)? * 16 + digit(rest.next()?)?) as u8);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let mut noise = 1u32;
        let mut recordings = Vec::new();
        for length in [24, PIECE_BYTES, 3 * PIECE_BYTES + 1] {
            let file = (0..length).map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // runs of zeroes of all lengths
                (noise >> 24).saturating_sub(240) as u8 * 17
            });
            recordings.push(Recording {
                point: length.to_string(),
                packets: 3,
                missing: 4,
                file: file.collect(),
            });
        }
        let mut unpacker = Unpacker::default();
        for parcel in recordings.iter().flat_map(pack) {
            assert!(unpacker.add(&parcel));
        }
        assert_eq!(unpacker.finish(), recordings);
    }

    #[test]
    fn short_runs_and_long_ones() {
        for (zeroes, text) in [(0, "0f1f"), (1, "0fg1f"), (20, "0fz1f"), (41, "0fzzg1f")] {
            let bytes = [&[0x0f][..], &vec![0; zeroes], &[0x1f]].concat();
            assert_eq!(text_of(&bytes), text);
        }
        for wrong in ["0", "0_", "A"] {
            assert!(append(&mut Vec::new(), &wrong.replace('A', "é")).is_none());
        }
    }
}

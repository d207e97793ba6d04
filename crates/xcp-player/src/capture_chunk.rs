// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! How a recording leaves the virtual machine: in chunks of text. The port is
//! slow and takes one byte at a time, so each packet is sent as its difference
//! (XOR) from the previous one, in which equal bytes are zero. The text
//! consists of hex digits; each of the letters g to z stands for 1 to 20 zero
//! bytes.

use serde::{Deserialize, Serialize};

use crate::capture::Recording;
use crate::pcap::{kept_bytes, HEADER_BYTES, RECORD_HEADER_BYTES};

/// Bytes of the file in one chunk.
const PIECE_BYTES: usize = 1 << 16;
const MOST_ZEROES: u8 = b'z' - b'g' + 1;

/// A chunk of a recording. The chunks of a file are sent in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CaptureChunk {
    point: String,
    packets: u64,
    missing: u64,
    /// Bytes of the file, packed as text.
    text: String,
    /// This is the last chunk of the recording.
    last: bool,
}

/// Cuts a recording into chunks.
pub fn pack(mut recording: Recording) -> impl Iterator<Item = CaptureChunk> {
    compare(&mut recording.file, false);
    let pieces = recording.file.len().div_ceil(PIECE_BYTES);
    (0..pieces).map(move |i| {
        let begin = i * PIECE_BYTES;
        let end = recording.file.len().min(begin + PIECE_BYTES);
        CaptureChunk {
            point: recording.point.clone(),
            packets: recording.packets,
            missing: recording.missing,
            text: text_of(&recording.file[begin..end]),
            last: i + 1 == pieces,
        }
    })
}

/// Restores recordings from their chunks.
#[derive(Default)]
pub struct Unpacker {
    whole: Vec<Recording>,
    bytes: Vec<u8>,
}

impl Unpacker {
    /// Adds the next chunk; returns false if it is malformed.
    #[must_use]
    pub fn add(&mut self, parcel: &CaptureChunk) -> bool {
        if append(&mut self.bytes, &parcel.text).is_none() {
            return false;
        }
        if parcel.last {
            compare(&mut self.bytes, true);
            self.whole.push(Recording {
                point: parcel.point.clone(),
                packets: parcel.packets,
                missing: parcel.missing,
                file: std::mem::take(&mut self.bytes),
            });
        }
        true
    }

    /// Returns all complete recordings.
    pub fn finish(self) -> Vec<Recording> {
        self.whole
    }
}

/// Replaces each packet's record by its difference from the previous one;
/// `back` reverses this.
fn compare(file: &mut [u8], back: bool) {
    let mut before = Vec::new();
    let mut at = HEADER_BYTES;
    while let Some(header) = file.get(at..at + RECORD_HEADER_BYTES) {
        let mut header = header.to_vec();
        if back {
            exclusive_or(&mut header, &before);
        }
        let end = at + RECORD_HEADER_BYTES + kept_bytes(&header);
        let Some(record) = file.get_mut(at..end) else {
            return;
        };
        let given = record.to_vec();
        exclusive_or(record, &before);
        before = if back { record.to_vec() } else { given };
        at = end;
    }
}

fn exclusive_or(bytes: &mut [u8], with: &[u8]) {
    for (byte, other) in bytes.iter_mut().zip(with) {
        *byte ^= other;
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
    use crate::pcap::Pcap;
    use std::time::Duration;

    #[test]
    fn unpacking_restores_the_recordings() {
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
        for parcel in recordings.iter().cloned().flat_map(pack) {
            assert!(unpacker.add(&parcel));
        }
        assert_eq!(unpacker.finish(), recordings);
    }

    #[test]
    fn similar_packets_need_little_text() {
        let mut pcap = Pcap::new();
        for i in 0..1000u32 {
            let mut frame = [0xee; 300];
            frame[..4].copy_from_slice(&i.to_be_bytes());
            let kept = if i % 100 == 0 { 60 } else { 300 };
            pcap.add(Duration::from_millis(i.into()), &frame[..kept], 300);
        }
        let recording = Recording {
            point: "r-d".into(),
            packets: 1000,
            missing: 0,
            file: pcap.into_bytes(),
        };
        let parcels: Vec<CaptureChunk> = pack(recording.clone()).collect();
        let said: usize = parcels.iter().map(|p| p.text.len()).sum();
        assert!(said < 50_000, "{said}");
        let mut unpacker = Unpacker::default();
        assert!(parcels.iter().all(|p| unpacker.add(p)));
        assert_eq!(unpacker.finish(), [recording]);
    }

    #[test]
    fn runs_of_zeroes_become_letters() {
        for (zeroes, text) in [(0, "0f1f"), (1, "0fg1f"), (20, "0fz1f"), (41, "0fzzg1f")] {
            let bytes = [&[0x0f][..], &vec![0; zeroes], &[0x1f]].concat();
            assert_eq!(text_of(&bytes), text);
        }
        for wrong in ["0", "0_", "A"] {
            assert!(append(&mut Vec::new(), &wrong.replace('A', "é")).is_none());
        }
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The pcap file format, with times in nanoseconds.

use std::time::Duration;

/// The number of bytes kept of each packet: enough for the headers.
pub const SNAP_BYTES: usize = 256;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAJOR: u16 = 2;
const MINOR: u16 = 4;
const LINKTYPE_ETHERNET: u32 = 1;

pub const HEADER_BYTES: usize = 24;
/// The size of a record header: seconds, nanoseconds, bytes kept, length.
pub const RECORD_HEADER_BYTES: usize = 16;

/// The number of packet bytes that follow a record header.
pub fn kept_bytes(header: &[u8]) -> usize {
    let word = header.get(8..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_le_bytes(*word) as usize)
}

/// A pcap file to which packets are added.
#[derive(Clone, Debug)]
pub struct Pcap {
    bytes: Vec<u8>,
}

impl Pcap {
    /// Creates a file without packets.
    pub fn new() -> Self {
        let mut file = Self { bytes: Vec::new() };
        file.bytes.extend(MAGIC_NANOSECONDS.to_le_bytes());
        file.bytes.extend(MAJOR.to_le_bytes());
        file.bytes.extend(MINOR.to_le_bytes());
        for word in [0, 0, SNAP_BYTES as u32, LINKTYPE_ETHERNET] {
            file.bytes.extend(word.to_le_bytes());
        }
        file
    }

    /// Adds the first `SNAP_BYTES` of an Ethernet frame; `length` is that of
    /// the whole frame.
    pub fn add(&mut self, time: Duration, frame: &[u8], length: u32) {
        let kept = &frame[..frame.len().min(SNAP_BYTES)];
        for word in [
            time.as_secs() as u32,
            time.subsec_nanos(),
            kept.len() as u32,
            length,
        ] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(kept);
    }

    /// Returns the content of the file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The content of the file so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_and_their_length_is_kept() {
        let mut file = Pcap::new();
        file.add(Duration::new(1, 2), &[7; 3], 3);
        file.add(Duration::new(3, 4), &[8; 300], 1514);
        let words: Vec<u32> = file.bytes[..40]
            .chunks(4)
            .map(|w| u32::from_le_bytes(w.try_into().expect("four bytes")))
            .collect();
        assert_eq!(
            words,
            [0xa1b2_3c4d, 0x0004_0002, 0, 0, 256, 1, 1, 2, 3, 3],
            "file header and first record header"
        );
        assert_eq!(file.bytes[40..43], [7; 3]);
        assert_eq!(file.bytes[51..55], 256u32.to_le_bytes());
        assert_eq!(file.bytes[55..59], 1514u32.to_le_bytes());
        assert_eq!(file.bytes[59..], [8; 256]);
    }
}

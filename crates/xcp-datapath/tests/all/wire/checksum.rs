// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The Internet checksum (RFC 1071), computed in full.

/// Returns the folded one's-complement sum of 16-bit words; an odd last byte is the high byte
/// of a word.
pub fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for part in parts {
        for word in part.chunks(2) {
            sum += u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0));
        }
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the pseudo-header of an upper-layer segment between these addresses.
pub fn pseudo_header(addresses: &[u8], protocol: u8, length: usize) -> Vec<u8> {
    let mut header = addresses.to_vec();
    if addresses.len() == 8 {
        header.extend([0, protocol]);
        header.extend((length as u16).to_be_bytes());
    } else {
        header.extend((length as u32).to_be_bytes());
        header.extend([0, 0, 0, protocol]);
    }
    header
}

/// Returns the value for the checksum field; the field must be 0 in `segment`.
pub fn of(addresses: &[u8], protocol: u8, segment: &[u8]) -> u16 {
    !sum(&[&pseudo_header(addresses, protocol, segment.len()), segment])
}

/// Returns the error of a segment's checksum (modulo 0xffff): 0 if it is correct.
pub fn error(addresses: &[u8], protocol: u8, segment: &[u8]) -> u16 {
    sum(&[&pseudo_header(addresses, protocol, segment.len()), segment]) % 0xffff
}

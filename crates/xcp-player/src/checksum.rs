// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Fills in TCP checksums that the sender left to its device (checksum
//! offload). A veth device passes packets to the next node without filling them
//! in, but a capture should show correct checksums.

const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
/// The IP protocol number for experiments: an XCP header between IP and TCP.
const EXPERIMENT: u8 = 253;
const TCP_CHECKSUM_AT: usize = 16;

/// Fills in the TCP checksum of an Ethernet frame. Returns false, and changes
/// nothing, if the frame is incomplete or is not TCP over IP.
pub fn complete(frame: &mut [u8]) -> bool {
    let Some(segment) = tcp_segment(frame) else {
        return false;
    };
    let tcp = &mut frame[segment.start..segment.end];
    tcp[TCP_CHECKSUM_AT..][..2].fill(0);
    let length = tcp.len() as u64;
    let sum = sum(tcp) + sum(&frame[segment.addresses]) + u64::from(TCP) + length;
    let checksum = !fold(sum);
    frame[segment.start + TCP_CHECKSUM_AT..][..2].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// The positions of the TCP segment in a frame, and of the addresses for its
/// pseudo-header.
struct Segment {
    addresses: std::ops::Range<usize>,
    start: usize,
    end: usize,
}

fn tcp_segment(frame: &[u8]) -> Option<Segment> {
    let ip = frame.get(ETHERNET_BYTES..)?;
    let (addresses, protocol, header_bytes, total_bytes) = match u16_at(frame, 12)? {
        IPV4 => {
            let header = usize::from(ip.first()? & 15) * 4;
            (12..20, *ip.get(9)?, header, usize::from(u16_at(ip, 2)?))
        }
        IPV6 => {
            let total = IPV6_BYTES + usize::from(u16_at(ip, 4)?);
            (8..40, *ip.get(6)?, IPV6_BYTES, total)
        }
        _ => return None,
    };
    let (protocol, above) = match protocol {
        EXPERIMENT => xcp_header(ip.get(header_bytes..)?)?,
        other => (other, 0),
    };
    let start = ETHERNET_BYTES + header_bytes + above;
    let end = ETHERNET_BYTES + total_bytes;
    let whole = end <= frame.len() && start + TCP_CHECKSUM_AT + 2 <= end;
    (protocol == TCP && whole).then_some(Segment {
        addresses: ETHERNET_BYTES + addresses.start..ETHERNET_BYTES + addresses.end,
        start,
        end,
    })
}

/// Returns the protocol after an XCP header, and the header's length. The
/// header of the later drafts begins with protocol, length, version and format;
/// that of the first drafts with version and format, protocol, length. Some of
/// those give twice the length.
fn xcp_header(header: &[u8]) -> Option<(u8, usize)> {
    let [first, second, third] = *header.first_chunk()?;
    Some(match third {
        0x21 | 0x22 | 0x31 | 0x32 => (first, usize::from(second)),
        40 => (second, 20),
        length => (second, usize::from(length)),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The unfolded sum of 16-bit words; an odd last byte counts as a high byte.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words
        .iter()
        .map(|w| u64::from(u32::from_be_bytes(*w)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: [&str; 4] = [
        include_str!("../../../testdata/wire/both-odd.hex"),
        include_str!("../../../testdata/wire/forward-ipv4-options.hex"),
        include_str!("../../../testdata/wire/forward-ipv6.hex"),
        include_str!("../../../testdata/wire/return.hex"),
    ];

    fn frame(hex: &str) -> Vec<u8> {
        hex.lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(str::split_whitespace)
            .map(|byte| u8::from_str_radix(byte, 16).expect("hex"))
            .collect()
    }

    /// Inserts a header between IP and TCP.
    fn with_between(frame: &[u8], header: &[u8]) -> Vec<u8> {
        let mut longer = frame.to_vec();
        let (at, length, protocol) = match u16_at(frame, 12) {
            Some(IPV4) => (ETHERNET_BYTES + usize::from(frame[14] & 15) * 4, 16, 23),
            _ => (ETHERNET_BYTES + IPV6_BYTES, 18, 20),
        };
        longer[protocol] = EXPERIMENT;
        let total = u16_at(frame, length).expect("a length") + header.len() as u16;
        longer[length..][..2].copy_from_slice(&total.to_be_bytes());
        longer.splice(at..at, header.iter().copied());
        longer
    }

    /// Corrupts the checksum, and expects the original bytes after `complete`.
    fn restored(right: &[u8]) {
        let start = tcp_segment(right).expect("a TCP segment").start;
        let mut spoilt = right.to_vec();
        spoilt[start + TCP_CHECKSUM_AT] ^= 0x5a;
        spoilt[start + TCP_CHECKSUM_AT + 1] ^= 0xa5;
        assert!(complete(&mut spoilt));
        assert_eq!(spoilt, right);
    }

    #[test]
    fn checksums_of_golden_packets_are_restored() {
        for hex in GOLDEN {
            let right = frame(hex);
            restored(&right);
            // a frame padded by the link
            restored(&[&right[..], &[0xff; 5]].concat());
        }
    }

    #[test]
    fn checksum_excludes_the_xcp_header() {
        for hex in GOLDEN {
            let right = frame(hex);
            for begin in [[6, 20, 0x21], [6, 20, 0x32], [0x21, 6, 20], [0x11, 6, 40]] {
                let mut header = [0xc3; 20];
                header[..3].copy_from_slice(&begin);
                restored(&with_between(&right, &header));
            }
        }
    }

    #[test]
    fn incomplete_and_non_tcp_frames_are_unchanged() {
        let right = frame(GOLDEN[0]);
        let mut udp = right.clone();
        udp[23] = 17;
        let mut arp = right.clone();
        arp[12..14].copy_from_slice(&[8, 6]);
        let udp_behind_xcp = with_between(&right, &[[17, 20, 0x21].as_slice(), &[0; 17]].concat());
        let mut cases = vec![udp, arp, udp_behind_xcp];
        cases.extend((0..right.len()).map(|length| right[..length].to_vec()));
        for case in cases {
            let mut after = case.clone();
            assert!(!complete(&mut after), "{case:x?}");
            assert_eq!(after, case);
        }
    }
}

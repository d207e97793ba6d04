// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Lists TCP sockets through netlink: sock_diag(7), linux/inet_diag.h, linux/tcp.h.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_sys::{protocols::NETLINK_SOCK_DIAG, Socket};
use serde::Serialize;

use crate::{Error, Result};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
pub const NLA_F_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = 0x3fff;
/// Request attribute: which maps to list.
const INET_DIAG_REQ_SK_BPF_STORAGES: u16 = 2;
const SK_DIAG_BPF_STORAGE_REQ_MAP_FD: u16 = 1;
/// Attributes of an answer.
pub const INET_DIAG_INFO: u16 = 2;
pub const INET_DIAG_CONG: u16 = 4;
pub const INET_DIAG_SKMEMINFO: u16 = 7;
pub const INET_DIAG_ULP_INFO: u16 = 19;
pub const INET_DIAG_SK_BPF_STORAGES: u16 = 20;
/// Attribute in `INET_DIAG_ULP_INFO`.
pub const INET_ULP_INFO_MPTCP: u16 = 3;
/// Attributes in `INET_DIAG_SK_BPF_STORAGES`.
pub const SK_DIAG_BPF_STORAGE_MAP_ID: u16 = 2;
pub const SK_DIAG_BPF_STORAGE_MAP_VALUE: u16 = 3;
/// Bits of TCP states: ESTABLISHED, SYN_SENT; FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK,
/// CLOSING.
const OPEN: u32 = 1 << 1 | 1 << 2;
const CLOSING: u32 = 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
const HEADER_LEN: usize = 16;
/// The kernel fills a datagram up to the size of the last receive buffer, at most 32 KiB.
const BUFFER_BYTES: usize = 32 << 10;
/// The size of `struct inet_diag_msg`.
const MESSAGE_LEN: usize = 72;

/// TCP's state of a connection: fields of `struct tcp_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpInfo {
    pub cwnd_bytes: u64,
    pub rtt_us: u32,
    pub min_rtt_us: u32,
    pub retransmitted_packets: u32,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Time during which there was data to send.
    pub busy_us: u64,
    /// The part of it spent waiting for the peer's receive window.
    pub rwnd_limited_us: u64,
    /// The part of it spent waiting for room in the send buffer.
    pub sndbuf_limited_us: u64,
    /// The peer's receive window.
    pub peer_window_bytes: u32,
}

impl TcpInfo {
    /// Parses `struct tcp_info`. Fields that an older kernel does not have are 0.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let word = |at: usize| number(bytes.get(at..at + 4).unwrap_or_default()).unwrap_or(0);
        let long = |at: usize| {
            let long = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
            long.map_or(0, u64::from_ne_bytes)
        };
        let mss = word(16);
        Self {
            cwnd_bytes: u64::from(word(80)) * u64::from(mss),
            rtt_us: word(68),
            min_rtt_us: word(148),
            retransmitted_packets: word(100),
            sent_bytes: long(120),
            received_bytes: long(128),
            busy_us: long(168),
            rwnd_limited_us: long(176),
            sndbuf_limited_us: long(184),
            peer_window_bytes: word(228),
        }
    }
}

/// The size of the send buffer, from `INET_DIAG_SKMEMINFO`.
pub fn send_buffer_bytes(memory: &[u8]) -> u32 {
    number(memory.get(12..16).unwrap_or_default()).unwrap_or(0)
}

/// Builds a request for all connections of a family (`AF_INET`, `AF_INET6`), with the values
/// that BPF programs store per socket in these maps.
pub fn request(family: u8, map_fds: &[u32]) -> Vec<u8> {
    // struct inet_diag_req_v2, which selects no particular socket
    let bit = |extension: u16| 1 << (extension - 1);
    let wanted = bit(INET_DIAG_CONG) | bit(INET_DIAG_INFO) | bit(INET_DIAG_SKMEMINFO);
    let mut body = vec![family, libc::IPPROTO_TCP as u8, wanted, 0];
    body.extend((OPEN | CLOSING).to_ne_bytes());
    body.resize(body.len() + 48, 0);
    if !map_fds.is_empty() {
        let fds = map_fds
            .iter()
            .map(|fd| attribute(SK_DIAG_BPF_STORAGE_REQ_MAP_FD, &fd.to_ne_bytes()));
        let kind = INET_DIAG_REQ_SK_BPF_STORAGES | NLA_F_NESTED;
        body.extend(attribute(kind, &fds.collect::<Vec<_>>().concat()));
    }
    let mut message = ((HEADER_LEN + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends a request to the kernel, and passes the body of each answer to `each`.
pub fn dump(request: &[u8], mut each: impl FnMut(&[u8])) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("list of sockets (sock_diag)", &e);
    let socket = Socket::new(NETLINK_SOCK_DIAG).map_err(failed)?;
    socket.send(request, 0).map_err(failed)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = socket.recv(&mut &mut buffer[..], 0).map_err(failed)?;
        let mut rest = &buffer[..length.min(BUFFER_BYTES)];
        while let Some((kind, body, after)) = message(rest) {
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let code = number(body.get(..4).unwrap_or_default()).unwrap_or_default();
                    let e = std::io::Error::from_raw_os_error((code as i32).wrapping_neg());
                    return Err(failed(e));
                }
                _ => each(body),
            }
            rest = after;
        }
    }
}

/// Splits off the first message: its type, its body, and the bytes that follow it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = number(bytes.get(..4)?)? as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER_LEN..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, after))
}

pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}

pub fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The local and the peer's address in a `struct inet_diag_msg`.
pub fn addresses(message: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let is_v4 = i32::from(*message.first()?) == libc::AF_INET;
    let port = |at: usize| {
        let bytes = message.get(at..at + 2)?;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    };
    let ip = |at: usize| {
        let bytes: [u8; 16] = message.get(at..at + 16)?.try_into().ok()?;
        let [a, b, c, d, ..] = bytes;
        Some(match is_v4 {
            true => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            false => IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical(),
        })
    };
    Some((
        SocketAddr::new(ip(8)?, port(4)?),
        SocketAddr::new(ip(24)?, port(6)?),
    ))
}

/// Whether the connection of a `struct inet_diag_msg` is being closed, by either side.
pub fn is_closing(message: &[u8]) -> bool {
    let state = u32::from(message.get(1).copied().unwrap_or(0));
    CLOSING.checked_shr(state).is_some_and(|bits| bits & 1 != 0)
}

/// The attributes that follow a `struct inet_diag_msg`.
pub fn attributes_of(message: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    attributes(message.get(MESSAGE_LEN..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_attributes_are_ignored() {
        let mut bytes = attribute(4, b"xcp\0");
        bytes.extend(attribute(7 | NLA_F_NESTED, &[1, 2, 3]));
        bytes.extend([9, 0]); // cut off
        let all: Vec<_> = attributes(&bytes).collect();
        assert_eq!(all, [(4, &b"xcp\0"[..]), (7, &[1, 2, 3][..])]);
        assert_eq!(
            attributes(&[2, 0, 1, 0]).count(),
            0,
            "an attribute shorter than its header"
        );
    }

    #[test]
    fn short_messages_are_ignored() {
        assert!(addresses(&[2; 30]).is_none());
        assert!(message(&[16, 0, 0]).is_none());
    }
}

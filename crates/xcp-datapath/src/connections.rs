// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The TCP connections of this network namespace that use `xcp` or fell back
//! from it. The kernel lists sockets, and what BPF programs keep with them, by
//! netlink (sock_diag(7), linux/inet_diag.h).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapHandle};
use netlink_sys::{protocols::NETLINK_SOCK_DIAG, Socket};
use serde::Serialize;

use crate::bpffs::{self, Access};
use crate::fallback::Fallback;
use crate::intf::{Record, SocketHead};
use crate::{host, object, Error, Result, Wire};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLA_F_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = 0x3fff;
/// Of a request: which maps to list; of an answer: the congestion control, and
/// what the maps hold.
const INET_DIAG_REQ_SK_BPF_STORAGES: u16 = 2;
const SK_DIAG_BPF_STORAGE_REQ_MAP_FD: u16 = 1;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SK_BPF_STORAGES: u16 = 20;
const SK_DIAG_BPF_STORAGE_MAP_ID: u16 = 2;
const SK_DIAG_BPF_STORAGE_MAP_VALUE: u16 = 3;
/// ESTABLISHED, SYN_SENT, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING.
const STATES: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
const HEADER_LEN: usize = 16;
/// `struct inet_diag_msg`.
const MESSAGE_LEN: usize = 72;
const HOPS_UNKNOWN: u8 = 255;

/// A TCP connection of this network namespace.
#[derive(Clone, Debug, Serialize)]
pub struct Connection {
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// Its congestion control now.
    pub control: String,
    /// The wire format, if both ends agreed on one.
    pub wire: Option<Wire>,
    /// XCP routers on the way to the peer, as the peer last reported.
    pub xcp_hops: Option<u8>,
    /// Routers there that are not XCP.
    pub other_hops: Option<u8>,
    /// Why it does not use `xcp`, if it does not.
    pub fallback: Option<Fallback>,
}

/// Lists the connections that use `xcp`, and those that fell back from it.
///
/// # Errors
/// XCP is not on, no root, or the kernel does not list sockets (sock_diag).
pub fn list() -> Result<Vec<Connection>> {
    bpffs::require("xcp host show", Access::Read)?;
    if !host::is_on() {
        return Err(host::not_on());
    }
    let maps = Maps::open()?;
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        dump(&request(family as u8, &maps), |message| {
            found.extend(maps.read(message).filter(Connection::concerns_xcp));
        })?;
    }
    Ok(found)
}

impl Connection {
    fn concerns_xcp(&self) -> bool {
        self.control == "xcp" || self.fallback.is_some()
    }
}

/// The maps with what is kept per socket.
struct Maps {
    sockets: (MapHandle, u32),
    reasons: (MapHandle, u32),
}

impl Maps {
    fn open() -> Result<Self> {
        let open = |name| {
            let map = object::pinned_map(&bpffs::dir(host::PART).join(name))?;
            let info = map.info().map_err(|e| object::failure(name, &e))?;
            Ok((map, info.info.id))
        };
        Ok(Self {
            sockets: open("sockets")?,
            reasons: open("fallback_reasons")?,
        })
    }

    /// One `struct inet_diag_msg` with its attributes.
    fn read(&self, message: &[u8]) -> Option<Connection> {
        let (local, peer) = addresses(message)?;
        let mut connection = Connection {
            local,
            peer,
            control: String::new(),
            wire: None,
            xcp_hops: None,
            other_hops: None,
            fallback: None,
        };
        for (kind, value) in attributes(message.get(MESSAGE_LEN..)?) {
            match kind {
                INET_DIAG_CONG => connection.control = text(value),
                INET_DIAG_SK_BPF_STORAGES => {
                    for (_, storage) in attributes(value) {
                        self.read_storage(storage, &mut connection);
                    }
                }
                _ => {}
            }
        }
        if connection.control == "xcp" {
            connection.fallback = None; // it came back
        }
        Some(connection)
    }

    fn read_storage(&self, storage: &[u8], connection: &mut Connection) {
        let find = |wanted| attributes(storage).find(|(kind, _)| *kind == wanted);
        let (Some((_, id)), Some((_, value))) = (
            find(SK_DIAG_BPF_STORAGE_MAP_ID),
            find(SK_DIAG_BPF_STORAGE_MAP_VALUE),
        ) else {
            return;
        };
        let id = number(id);
        if id == Some(self.reasons.1) {
            connection.fallback = number(value).and_then(Fallback::of_number);
        } else if id == Some(self.sockets.1) {
            let head = value.get(..size_of::<SocketHead>());
            if let Some(head) = head.and_then(SocketHead::from_bytes) {
                connection.take(&head);
            }
        }
    }
}

impl Connection {
    fn take(&mut self, head: &SocketHead) {
        let known = |hops: u8| (hops != HOPS_UNKNOWN).then_some(hops);
        if head.speaks != 0 {
            self.wire = Wire::of_number(head.wire);
            self.xcp_hops = known(head.xcp_hops);
            self.other_hops = self.xcp_hops.and(known(head.other_hops));
        }
    }
}

fn request(family: u8, maps: &Maps) -> Vec<u8> {
    // struct inet_diag_req_v2: no socket in particular
    let mut body = vec![
        family,
        libc::IPPROTO_TCP as u8,
        1 << (INET_DIAG_CONG - 1),
        0,
    ];
    body.extend(STATES.to_ne_bytes());
    body.resize(body.len() + 48, 0);
    let fds = [&maps.sockets.0, &maps.reasons.0].map(|map| {
        let fd = map.as_fd().as_raw_fd() as u32;
        attribute(SK_DIAG_BPF_STORAGE_REQ_MAP_FD, &fd.to_ne_bytes())
    });
    let kind = INET_DIAG_REQ_SK_BPF_STORAGES | NLA_F_NESTED;
    body.extend(attribute(kind, &fds.concat()));
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

/// Asks the kernel, and hands out the body of each message of its answer.
fn dump(request: &[u8], mut each: impl FnMut(&[u8])) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("list of sockets (sock_diag)", &e);
    let socket = Socket::new(NETLINK_SOCK_DIAG).map_err(failed)?;
    socket.send(request, 0).map_err(failed)?;
    loop {
        let (datagram, _) = socket.recv_from_full().map_err(failed)?;
        let mut rest = datagram.as_slice();
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

/// The first message: its type, its body, and what follows it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = number(bytes.get(..4)?)? as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER_LEN..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, after))
}

fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Local address and peer of a `struct inet_diag_msg`.
fn addresses(message: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_end_where_the_bytes_do() {
        let mut bytes = attribute(4, b"xcp\0");
        bytes.extend(attribute(7 | NLA_F_NESTED, &[1, 2, 3]));
        bytes.extend([9, 0]); // cut off
        let all: Vec<_> = attributes(&bytes).collect();
        assert_eq!(all, [(4, &b"xcp\0"[..]), (7, &[1, 2, 3][..])]);
        assert_eq!(
            attributes(&[2, 0, 1, 0]).count(),
            0,
            "shorter than its head"
        );
    }

    #[test]
    fn a_short_message_is_ignored() {
        assert!(addresses(&[2; 30]).is_none());
        assert!(message(&[16, 0, 0]).is_none());
    }
}

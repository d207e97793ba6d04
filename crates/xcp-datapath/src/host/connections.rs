// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Lists the TCP connections of this network namespace, with the BPF programs' state of those
//! that use `xcp` or fell back from it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapHandle};
use serde::Serialize;

use crate::bpffs::{self, Access};
use crate::host::fallback::Fallback;
use crate::sock_diag::{self, attributes, number};
use crate::{host, object, Result, Wire};
use xcp_abi::{xcp_socket, Record, XCP_CROWDED_SEGMENTS_MAX, XCP_HOPS_UNKNOWN, XCP_LOSS_TRUSTED};

pub use crate::sock_diag::TcpInfo;

/// A TCP connection of this network namespace.
#[derive(Clone, Debug, Serialize)]
pub struct Connection {
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// One side has closed it.
    pub is_closing: bool,
    /// Its present congestion control.
    pub control: String,
    pub state: State,
    /// The wire format, if both sides agreed on one.
    pub wire: Option<Wire>,
    /// The number of XCP routers on the path to the peer, as the peer last reported.
    pub xcp_hops: Option<u8>,
    /// The number of other routers on this path.
    pub other_hops: Option<u8>,
    /// Why it does not use `xcp`, if it does not.
    pub fallback: Option<Fallback>,
    /// There are losses or delays that XCP's routers do not explain. Meanwhile the window
    /// follows CUBIC's rules (core/xcp_loss.h).
    pub distrusts_path: bool,
    /// It is a subflow of an MPTCP connection.
    pub is_mptcp: bool,
    /// The memory limit for packets that are not yet acknowledged.
    pub send_buffer_bytes: u32,
    #[serde(flatten)]
    pub tcp: TcpInfo,
}

/// Whether a connection uses XCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Feedback of XCP routers sets its window.
    Xcp,
    /// It has found no XCP router yet, and probes for one with a packet in each RTT.
    Probing,
    /// It fell back to the default congestion control, and keeps it.
    FellBack,
    /// It has never used XCP.
    NotXcp,
}

/// Lists the connections that use `xcp`, and those that fell back from it.
///
/// # Errors
/// XCP is not on, this process is not root, or the kernel does not list sockets (sock_diag).
pub fn list() -> Result<Vec<Connection>> {
    bpffs::require("xcp host show", Access::Read)?;
    if !host::is_on() {
        return Err(host::not_on());
    }
    of_xcp()
}

/// Like [`list`], for frequent calls: it does not check permissions, and returns an empty list if
/// XCP is not on.
///
/// # Errors
/// See [`list`].
pub fn of_xcp() -> Result<Vec<Connection>> {
    if !host::is_on() {
        return Ok(Vec::new());
    }
    let mut found = all()?;
    found.retain(|connection| connection.state != State::NotXcp);
    Ok(found)
}

/// Lists all TCP connections, also if XCP is not on.
///
/// # Errors
/// This process is not root, or the kernel does not list sockets (sock_diag).
pub fn all() -> Result<Vec<Connection>> {
    let maps = match host::is_on() {
        true => Some(Maps::open()?),
        false => None,
    };
    let fds = maps.as_ref().map_or(Vec::new(), Maps::fds);
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        sock_diag::dump(&sock_diag::request(family as u8, &fds), |message| {
            found.extend(Connection::read(message, maps.as_ref()));
        })?;
    }
    Ok(found)
}

/// The maps of per-socket state, with their IDs.
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

    fn fds(&self) -> Vec<u32> {
        let maps = [&self.sockets.0, &self.reasons.0];
        maps.map(|map| map.as_fd().as_raw_fd() as u32).to_vec()
    }
}

impl Connection {
    /// Parses one `struct inet_diag_msg` with its attributes.
    fn read(message: &[u8], maps: Option<&Maps>) -> Option<Self> {
        let (local, peer) = sock_diag::addresses(message)?;
        let mut connection = Self {
            local,
            peer,
            is_closing: sock_diag::is_closing(message),
            control: String::new(),
            state: State::NotXcp,
            wire: None,
            xcp_hops: None,
            other_hops: None,
            fallback: None,
            distrusts_path: false,
            is_mptcp: false,
            send_buffer_bytes: 0,
            tcp: TcpInfo::default(),
        };
        let mut record = xcp_socket::default();
        for (kind, value) in sock_diag::attributes_of(message) {
            match kind {
                sock_diag::INET_DIAG_CONG => connection.control = sock_diag::text(value),
                sock_diag::INET_DIAG_INFO => connection.tcp = TcpInfo::from_bytes(value),
                sock_diag::INET_DIAG_SKMEMINFO => {
                    connection.send_buffer_bytes = sock_diag::send_buffer_bytes(value);
                }
                sock_diag::INET_DIAG_ULP_INFO => {
                    let mut parts = attributes(value);
                    connection.is_mptcp =
                        parts.any(|(kind, _)| kind == sock_diag::INET_ULP_INFO_MPTCP);
                }
                sock_diag::INET_DIAG_SK_BPF_STORAGES => {
                    for (_, storage) in attributes(value) {
                        connection.read_storage(storage, maps?, &mut record);
                    }
                }
                _ => {}
            }
        }
        if connection.control.is_empty() {
            return None; // already closed on this side, only a timer remains
        }
        connection.conclude(&record);
        Some(connection)
    }

    fn read_storage(&mut self, storage: &[u8], maps: &Maps, record: &mut xcp_socket) {
        let find = |wanted| attributes(storage).find(|(kind, _)| *kind == wanted);
        let (Some((_, id)), Some((_, value))) = (
            find(sock_diag::SK_DIAG_BPF_STORAGE_MAP_ID),
            find(sock_diag::SK_DIAG_BPF_STORAGE_MAP_VALUE),
        ) else {
            return;
        };
        let id = number(id);
        if id == Some(maps.reasons.1) {
            self.fallback = number(value).and_then(Fallback::of_number);
        } else if id == Some(maps.sockets.1) {
            let bytes = value.get(..size_of::<xcp_socket>());
            *record = bytes.and_then(xcp_socket::from_bytes).unwrap_or_default();
        }
    }

    /// Derives the state from the kernel's data and the programs' record.
    fn conclude(&mut self, record: &xcp_socket) {
        let known = |hops: u8| (hops != XCP_HOPS_UNKNOWN).then_some(hops);
        if record.uses_xcp != 0 {
            self.wire = Wire::of_number(record.wire);
            self.xcp_hops = known(record.xcp_hops);
            self.other_hops = self.xcp_hops.and(known(record.other_hops));
            self.distrusts_path = u32::from(record.loss.state) != XCP_LOSS_TRUSTED;
        }
        let uses_xcp = self.control == "xcp";
        if uses_xcp {
            self.fallback = None; // it uses xcp again
        }
        let looks = record.uses_xcp != 0 && record.crowded < XCP_CROWDED_SEGMENTS_MAX;
        self.state = match (uses_xcp, self.fallback) {
            (true, _) if self.xcp_hops.is_some_and(|hops| hops > 0) => State::Xcp,
            (true, _) => State::Probing,
            (false, None) => State::NotXcp,
            (false, Some(_)) if record.fell_back != 0 && looks => State::Probing,
            (false, Some(_)) => State::FellBack,
        };
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The input and output of an edge: messages and their timestamps.

use std::net::{IpAddr, SocketAddr};

/// The current time of two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// The monotonic clock, for timers.
    pub now_ns: u64,
    /// The wall clock, which the kernel uses for packet timestamps.
    pub wall_ns: u64,
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The source address.
    pub from: IpAddr,
    /// The destination.
    pub to: SocketAddr,
    /// The message.
    pub bytes: Vec<u8>,
    /// If set, pass it to [`super::Edge::transmitted`] with the transmit timestamp.
    pub stamp: Option<Stamp>,
}

impl Datagram {
    /// A message without a transmit timestamp.
    pub(super) fn plain(from: IpAddr, to: SocketAddr, bytes: Vec<u8>) -> Self {
        Self {
            from,
            to,
            bytes,
            stamp: None,
        }
    }
}

/// Identifies a train packet whose transmit timestamp is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub(super) to: SocketAddr,
    pub(super) sequence: u64,
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// The source.
    pub from: SocketAddr,
    /// The destination, an address of this router.
    pub to: IpAddr,
    /// The TTL or hop limit, if the kernel reported it.
    pub ttl: Option<u8>,
    /// When the kernel received it, by the wall clock.
    pub wall_ns: u64,
    /// The message.
    pub bytes: &'a [u8],
}

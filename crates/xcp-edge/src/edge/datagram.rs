// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What an edge takes and gives: messages, and when they were sent and received.

use std::net::{IpAddr, SocketAddr};

/// Now, by two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// For timers: it never goes back.
    pub now_ns: u64,
    /// The one by which the kernel tells when packets were sent and received.
    pub wall_ns: u64,
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The address that it is sent from.
    pub from: IpAddr,
    /// Where to.
    pub to: SocketAddr,
    /// The message.
    pub bytes: Vec<u8>,
    /// If this is not None, [`super::Edge::transmitted`] wants to know when it left.
    pub stamp: Option<Stamp>,
}

impl Datagram {
    /// One whose departure is not reported.
    pub(super) fn plain(from: IpAddr, to: SocketAddr, bytes: Vec<u8>) -> Self {
        Self {
            from,
            to,
            bytes,
            stamp: None,
        }
    }
}

/// A packet of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub(super) to: SocketAddr,
    pub(super) sequence: u64,
}

/// A message that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Its source.
    pub from: SocketAddr,
    /// Its destination, an address of this router.
    pub to: IpAddr,
    /// Its TTL or hop limit, if the kernel told.
    pub ttl: Option<u8>,
    /// When the kernel received it, by the wall clock.
    pub wall_ns: u64,
    /// The message.
    pub bytes: &'a [u8],
}

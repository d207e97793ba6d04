// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A UDP socket that also returns each message's destination address, TTL, and kernel
//! timestamps for sending and receiving.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    bind, recvmsg, sendmsg, setsockopt, socket, sockopt, AddressFamily, ControlMessage,
    ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, TimestampingFlag,
};
use nix::sys::time::TimeSpec;
use xcp_edge::edge::{Datagram, Stamp, FIRST_TTL};
use xcp_edge::message::{MAX_LENGTH, PORT};

use crate::{Error, Result};

/// Buffer size for control messages: timestamps, an address, a TTL.
const CONTROL_B: usize = 512;
/// Most pending transmit timestamps: those of two trains.
const MOST_PENDING: usize = 512;

/// The version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// A received message, without its bytes.
pub(crate) struct Received {
    pub(crate) from: SocketAddr,
    pub(crate) to: IpAddr,
    /// The index of the receiving device.
    pub(crate) device: u32,
    pub(crate) ttl: Option<u8>,
    pub(crate) wall_ns: Option<u64>,
    pub(crate) length: usize,
}

pub(crate) struct Socket {
    fd: OwnedFd,
    family: Family,
    /// The kernel's number for the next sent message, from 0.
    number: u32,
    pending: VecDeque<(u32, Stamp)>,
}

impl Socket {
    /// Opens a socket on the XCP-i port, for all addresses. None if this system does not
    /// support the protocol.
    pub(crate) fn open(family: Family) -> Result<Option<Self>> {
        match Self::opened(family) {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::EAFNOSUPPORT) => Ok(None),
            Err(Errno::EADDRINUSE) => Err(Error::new(
                format!("UDP port {PORT}"),
                "is in use by another program",
                format!("find the program: ss -ulpn sport = {PORT}"),
            )),
            Err(e) => Err(Error::new(
                format!("UDP port {PORT}"),
                e.to_string(),
                "report this",
            )),
        }
    }

    fn opened(family: Family) -> nix::Result<Self> {
        let (domain, any): (_, IpAddr) = match family {
            Family::V4 => (AddressFamily::Inet, Ipv4Addr::UNSPECIFIED.into()),
            Family::V6 => (AddressFamily::Inet6, Ipv6Addr::UNSPECIFIED.into()),
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(domain, SockType::Datagram, flags, None)?;
        match family {
            Family::V4 => {
                setsockopt(&fd, sockopt::Ipv4PacketInfo, &true)?;
                setsockopt(&fd, sockopt::Ipv4RecvTtl, &true)?;
                setsockopt(&fd, sockopt::Ipv4Ttl, &FIRST_TTL.into())?;
            }
            Family::V6 => {
                setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
                setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true)?;
                setsockopt(&fd, sockopt::Ipv6RecvHopLimit, &true)?;
                setsockopt(&fd, sockopt::Ipv6Ttl, &FIRST_TTL.into())?;
            }
        }
        bind(
            fd.as_raw_fd(),
            &SockaddrStorage::from(SocketAddr::from((any, PORT))),
        )?;
        let mut socket = Self {
            fd,
            family,
            number: 0,
            pending: VecDeque::new(),
        };
        socket.count_from_0()?;
        Ok(socket)
    }

    /// Makes the kernel number sent messages from 0 again.
    fn count_from_0(&mut self) -> nix::Result<()> {
        self.number = 0;
        self.pending.clear();
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        setsockopt(&self.fd, sockopt::Timestamping, &flags)?;
        let numbered = flags | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID;
        setsockopt(&self.fd, sockopt::Timestamping, &numbered)
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends a message. A message that the kernel does not accept is lost, as on the
    /// network.
    pub(crate) fn send(&mut self, datagram: &Datagram) -> nix::Result<()> {
        let bytes = [IoSlice::new(&datagram.bytes)];
        let to = SockaddrStorage::from(datagram.to);
        let (v4, v6);
        let from = match datagram.from {
            IpAddr::V4(from) => {
                v4 = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from(from).to_be(),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                ControlMessage::Ipv4PacketInfo(&v4)
            }
            IpAddr::V6(from) => {
                v6 = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: from.octets(),
                    },
                    ipi6_ifindex: 0,
                };
                ControlMessage::Ipv6PacketInfo(&v6)
            }
        };
        let fd = self.fd.as_raw_fd();
        let sent = sendmsg(fd, &bytes, &[from], MsgFlags::empty(), Some(&to));
        if let Err(e) = sent {
            // it is unknown whether the kernel has counted this message
            self.count_from_0()?;
            return Err(e);
        }
        if let Some(stamp) = datagram.stamp {
            if self.pending.len() == MOST_PENDING {
                self.pending.pop_front();
            }
            self.pending.push_back((self.number, stamp));
        }
        self.number = self.number.wrapping_add(1);
        Ok(())
    }

    /// The next received message, if any.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> nix::Result<Option<Received>> {
        let mut control = [0; CONTROL_B];
        let mut bytes = [IoSliceMut::new(buffer)];
        let fd = self.fd.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<SockaddrStorage>(fd, &mut bytes, Some(&mut control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(e) => return Err(e),
        };
        let (mut to, mut ttl, mut wall_ns) = (None, None, None);
        let mut device = 0;
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    device = info.ipi_ifindex.cast_unsigned();
                    to = Some(IpAddr::from(
                        u32::from_be(info.ipi_addr.s_addr).to_be_bytes(),
                    ));
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    device = info.ipi6_ifindex;
                    to = Some(IpAddr::from(info.ipi6_addr.s6_addr));
                }
                ControlMessageOwned::Ipv4Ttl(hops) | ControlMessageOwned::Ipv6HopLimit(hops) => {
                    ttl = u8::try_from(hops).ok();
                }
                ControlMessageOwned::ScmTimestampsns(times) => wall_ns = ns(times.system),
                _ => {}
            }
        }
        let length = message.bytes;
        let from = message.address.and_then(|address| {
            let v4 = address
                .as_sockaddr_in()
                .map(|v4| SocketAddr::from(SocketAddrV4::from(*v4)));
            v4.or_else(|| {
                address
                    .as_sockaddr_in6()
                    .map(|v6| SocketAddr::from((v6.ip(), v6.port())))
            })
        });
        let (Some(from), Some(to)) = (from, to) else {
            return Err(Errno::EPROTO);
        };
        Ok(Some(Received {
            from,
            to,
            device,
            ttl,
            wall_ns,
            length,
        }))
    }

    /// The next transmit timestamp of a train packet, if any.
    pub(crate) fn transmitted(&mut self) -> Option<(Stamp, u64)> {
        loop {
            let (number, wall_ns) = self.error_queue()?;
            let at = self.pending.iter().position(|(n, _)| *n == number);
            if let Some(at) = at {
                let (_, stamp) = self.pending[at];
                self.pending.drain(..=at);
                return Some((stamp, wall_ns));
            }
        }
    }

    fn error_queue(&self) -> Option<(u32, u64)> {
        let mut control = [0; CONTROL_B];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        loop {
            let fd = self.fd.as_raw_fd();
            let message =
                recvmsg::<SockaddrStorage>(fd, &mut [], Some(&mut control), flags).ok()?;
            let (mut number, mut wall_ns) = (None, None);
            for control in message.cmsgs().ok()? {
                match control {
                    ControlMessageOwned::Ipv4RecvErr(error, _) => number = stamped(&error),
                    ControlMessageOwned::Ipv6RecvErr(error, _) => number = stamped(&error),
                    ControlMessageOwned::ScmTimestampsns(times) => wall_ns = ns(times.system),
                    _ => {}
                }
            }
            if let (Some(number), Some(wall_ns)) = (number, wall_ns) {
                return Some((number, wall_ns));
            }
        }
    }
}

/// The number of the message that this timestamp belongs to.
fn stamped(error: &libc::sock_extended_err) -> Option<u32> {
    (error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING).then_some(error.ee_data)
}

fn ns(time: TimeSpec) -> Option<u64> {
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    let ns = seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).ok()?;
    (ns > 0).then_some(ns)
}

/// Size of a receive buffer: the longest message, and one byte to detect longer ones.
pub(crate) const BUFFER_B: usize = MAX_LENGTH as usize + 1;

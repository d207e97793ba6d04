// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Finds where a path removes XCP's TCP option: SYNs with an increasing hop limit expire at
//! one router after the other, and the routers quote them in ICMP messages (method of
//! tracebox: Detal et al., "Revealing Middlebox Interference with Tracebox", 2013).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::sockopt::{Ipv4Ttl, Ipv6Ttl, SocketError, TcpCongestion};
use nix::sys::socket::{
    connect, getsockname, getsockopt, recvfrom, setsockopt, socket, AddressFamily, SockFlag,
    SockProtocol, SockType, SockaddrStorage,
};
use xcp_datapath::Wire;

/// Maximum number of hops to probe.
const HOPS_MOST: u8 = 30;
/// Probing ends after this number of consecutive routers without an answer.
const SILENT_MOST: usize = 3;
/// Timeout of a probe, shorter than TCP's retransmission timeout for SYNs, 1 s.
const PATIENCE: Duration = Duration::from_millis(800);

const TCP: u8 = 6;
const TIME_EXCEEDED_V4: u8 = 11;
const TIME_EXCEEDED_V6: u8 = 3;
/// Length of the header before the quoted packet, in ICMP and ICMPv6.
const ICMP_LEN: usize = 8;
const IPV6_LEN: usize = 40;

/// A router on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    pub address: IpAddr,
    /// The packet that it received had XCP's option; None if it quotes too little of it.
    pub has_option: Option<bool>,
}

/// Returns the routers that answer, in order.
///
/// # Errors
/// A socket for ICMP, or one with the congestion control `xcp`, cannot be opened.
pub fn find(peer: SocketAddr, wire: Wire) -> io::Result<Vec<Hop>> {
    let kind = match peer {
        SocketAddr::V4(_) => SockProtocol::Icmp,
        SocketAddr::V6(_) => SockProtocol::IcmpV6,
    };
    let icmp = new_socket(peer, SockType::Raw, Some(kind))?;
    let (mut hops, mut silent) = (Vec::new(), 0);
    for limit in 1..=HOPS_MOST {
        let tcp = opened(peer, Some(limit))?;
        match answer(&icmp, &tcp, peer, wire)? {
            Answer::Peer => break,
            Answer::Router(hop) => {
                hops.push(hop);
                silent = 0;
            }
            Answer::Silence => silent += 1,
        }
        if silent == SILENT_MOST {
            break;
        }
    }
    Ok(hops)
}

/// Opens a socket with the congestion control `xcp` that connects to a peer, with this hop
/// limit or the default one.
///
/// # Errors
/// `xcp` cannot be chosen, or there is no route.
pub fn opened(peer: SocketAddr, limit: Option<u8>) -> io::Result<OwnedFd> {
    let tcp = new_socket(peer, SockType::Stream, None)?;
    setsockopt(&tcp, TcpCongestion, &"xcp".into())?;
    if let Some(limit) = limit {
        match peer {
            SocketAddr::V4(_) => setsockopt(&tcp, Ipv4Ttl, &limit.into())?,
            SocketAddr::V6(_) => setsockopt(&tcp, Ipv6Ttl, &limit.into())?,
        }
    }
    match connect(tcp.as_raw_fd(), &SockaddrStorage::from(peer)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(tcp),
        Err(e) => Err(e.into()),
    }
}

/// Opens a non-blocking socket of the peer's address family.
fn new_socket(
    peer: SocketAddr,
    kind: SockType,
    protocol: Option<SockProtocol>,
) -> io::Result<OwnedFd> {
    let family = match peer {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(family, kind, flags, protocol)?)
}

/// Waits until a socket is connected.
///
/// # Errors
/// The connection was refused, or the timeout expired.
pub fn connected(tcp: &OwnedFd, most: Duration) -> io::Result<()> {
    let mut fds = [PollFd::new(tcp.as_fd(), PollFlags::POLLOUT)];
    let most = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, most)? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => match getsockopt(tcp, SocketError)? {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        },
    }
}

/// The local address of a socket.
fn local(tcp: &OwnedFd) -> io::Result<SocketAddr> {
    let address: SockaddrStorage = getsockname(tcp.as_raw_fd())?;
    internet(&address).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Converts an IPv4 or IPv6 address.
fn internet(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|a| SocketAddr::V4((*a).into()));
    let v6 = || {
        address
            .as_sockaddr_in6()
            .map(|a| SocketAddr::V6((*a).into()))
    };
    v4.or_else(v6)
}

enum Answer {
    Router(Hop),
    Peer,
    Silence,
}

fn answer(icmp: &OwnedFd, tcp: &OwnedFd, peer: SocketAddr, wire: Wire) -> io::Result<Answer> {
    let (port, begun) = (local(tcp)?.port(), Instant::now());
    let mut buffer = [0; 2048];
    loop {
        let rest = PATIENCE.saturating_sub(begun.elapsed());
        if rest.is_zero() {
            return Ok(Answer::Silence);
        }
        let mut fds = [
            PollFd::new(icmp.as_fd(), PollFlags::POLLIN),
            PollFd::new(tcp.as_fd(), PollFlags::POLLOUT),
        ];
        poll(
            &mut fds,
            PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX),
        )?;
        let is_ready = |fd: &PollFd| fd.any().unwrap_or(false);
        let (has_icmp, is_answered) = (is_ready(&fds[0]), is_ready(&fds[1]));
        if has_icmp {
            let (length, from) = recvfrom::<SockaddrStorage>(icmp.as_raw_fd(), &mut buffer)?;
            let from = from.and_then(|from| internet(&from)).map(|from| from.ip());
            let has_option = quoted(&buffer[..length], peer, port, wire);
            if let (Some(address), Some(has_option)) = (from, has_option) {
                return Ok(Answer::Router(Hop {
                    address,
                    has_option,
                }));
            }
        }
        if is_answered {
            return Ok(Answer::Peer);
        }
    }
}

/// Whether the SYN from this port that an ICMP message quotes has XCP's option; Some(None)
/// if its options are not quoted completely, None if the message is about another packet.
fn quoted(message: &[u8], peer: SocketAddr, port: u16, wire: Wire) -> Option<Option<bool>> {
    let tcp = match peer {
        SocketAddr::V4(peer) => {
            let icmp = message.get(header_len(message)?..)?;
            let packet = icmp.get(ICMP_LEN..)?;
            let is_ours = icmp[0] == TIME_EXCEEDED_V4
                && *packet.get(9)? == TCP
                && *packet.get(16..20)? == peer.ip().octets();
            is_ours
                .then(|| packet.get(header_len(packet)?..))
                .flatten()?
        }
        SocketAddr::V6(peer) => {
            let packet = message.get(ICMP_LEN..)?;
            let is_ours = message[0] == TIME_EXCEEDED_V6
                && *packet.get(6)? == TCP
                && *packet.get(24..IPV6_LEN)? == peer.ip().octets();
            is_ours.then(|| packet.get(IPV6_LEN..)).flatten()?
        }
    };
    let number = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
    if (number(0)?, number(2)?) != (port, peer.port()) {
        return None;
    }
    Some(options(tcp).map(|options| has_option(options, wire)))
}

/// The length of an IPv4 header.
fn header_len(packet: &[u8]) -> Option<usize> {
    Some(usize::from(packet.first()? & 15) * 4)
}

/// The options of a TCP header, if they are complete.
fn options(tcp: &[u8]) -> Option<&[u8]> {
    tcp.get(20..usize::from(tcp.get(12)? >> 4) * 4)
}

fn has_option(mut options: &[u8], wire: Wire) -> bool {
    /// The option kind of one byte of padding.
    const NO_OPERATION: u8 = 1;
    while let [kind, rest @ ..] = options {
        if *kind == NO_OPERATION {
            options = rest;
            continue;
        }
        let length = usize::from(rest.first().copied().unwrap_or(0));
        let Some(value) = options.get(2..length) else {
            return false;
        };
        if wire.has_option(*kind, value) {
            return true;
        }
        options = &options[length..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ICMP message of 10.0.0.9 about a SYN from port 5 to 192.0.2.1:80 with these
    /// options.
    fn message(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45; 20];
        bytes.extend([TIME_EXCEEDED_V4, 0, 0, 0, 0, 0, 0, 0]);
        let mut ip = [0; 20];
        (ip[0], ip[9]) = (0x45, TCP);
        ip[16..].copy_from_slice(&[192, 0, 2, 1]);
        bytes.extend(ip);
        let mut tcp = [0; 20];
        (tcp[1], tcp[3]) = (5, 80);
        tcp[12] = (((20 + options.len()) / 4) << 4) as u8;
        bytes.extend(tcp);
        bytes.extend(options);
        bytes
    }

    fn told(message: &[u8]) -> Option<Option<bool>> {
        let peer = "192.0.2.1:80".parse().expect("an address");
        quoted(message, peer, 5, Wire::Option)
    }

    #[test]
    fn option_is_found_in_the_quoted_syn() {
        let with = message(&[1, 1, 2, 4, 5, 180, 254, 4, b'X', b'C', 1, 0]);
        assert_eq!(told(&with), Some(Some(true)));
        assert_eq!(told(&message(&[2, 4, 5, 180])), Some(Some(false)));
        assert_eq!(
            told(&with[..with.len() - 1]),
            Some(None),
            "not all is quoted"
        );
    }

    #[test]
    fn damaged_messages_do_not_panic() {
        let with = message(&[254, 4, b'X', b'C']);
        for length in 0..with.len() {
            let _ = told(&with[..length]);
        }
        for (at, bits) in (0..with.len()).flat_map(|at| [(at, 0xff), (at, 0)]) {
            let mut broken = with.clone();
            broken[at] = bits;
            let _ = told(&broken);
        }
        assert_eq!(told(&message(&[254, 0, 0, 0])), Some(Some(false)));
        let mut other = with.clone();
        other[49] = 6;
        assert_eq!(told(&other), None, "another port");
    }
}

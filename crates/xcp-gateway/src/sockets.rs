// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Sockets of the proxy and their options.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{getsockopt, send, setsockopt, sockopt, MsgFlags};
use nix::{setsockopt_impl, sockopt_impl};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use xcp_datapath::gateway::Side;

/// Connections that wait to be accepted; the kernel limits it to net.core.somaxconn. If there
/// are more, the kernel answers with SYN cookies.
const BACKLOG: u32 = 4096;
/// A silent peer is asked whether it still has the connection after 5 minutes, then once a
/// minute, and has 5 minutes to answer. The hosts' own probes only reach the gateway.
const KEEPALIVE_IDLE_S: u32 = 300;
const KEEPALIVE_INTERVAL_S: u32 = 60;
const KEEPALIVE_PROBES: u32 = 5;
/// The receive buffer on the LAN side, which the kernel doubles. A host on the LAN sends much
/// faster than the WAN: with a buffer that grows, a few transfers would fill the memory that
/// all of TCP may use. This is enough for 500 Mb/s at 10 ms.
const LAN_RECEIVE_BYTES: usize = 1 << 19;
/// Connections that have been opened by a SYN with data, and whose handshake is not complete;
/// further ones are accepted as without data.
const FAST_OPEN_QUEUE: i32 = 1024;

sockopt_impl!(
    /// Accepts SYNs with data.
    FastOpen, SetOnly, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, i32
);
sockopt_impl!(
    /// SYNs with data need no cookie.
    FastOpenNoCookie, SetOnly, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_NO_COOKIE, bool
);

/// A listener for connections to any address and port. Nobody can connect to it by its own
/// address, which is in the loopback network: only the gateway's programs deliver connections.
pub(crate) fn listener(ipv6: bool, side: Side, control: &OsStr) -> io::Result<TcpListener> {
    let loopback: SocketAddr = match ipv6 {
        false => (Ipv4Addr::LOCALHOST, 0).into(),
        true => (Ipv6Addr::LOCALHOST, 0).into(),
    };
    let socket = socket(ipv6, side)?;
    set_control(&socket, control)?;
    socket.bind(loopback)?;
    let listener = socket.listen(BACKLOG)?;
    if side == Side::Wan {
        setsockopt(&listener, FastOpen, &FAST_OPEN_QUEUE)?;
        setsockopt(&listener, FastOpenNoCookie, &true)?;
    }
    Ok(listener)
}

/// Connects from a source that is the address of another host. If its port is in use, because a
/// connection with the same ports ended less than a minute ago, another port is used. With
/// `fast_open`, nothing is sent before the first data: [`send_syn`] sends a SYN without data.
pub(crate) async fn connect(
    source: SocketAddr,
    destination: SocketAddr,
    side: Side,
    control: &OsStr,
    fast_open: bool,
) -> io::Result<TcpStream> {
    let try_from = |source: SocketAddr| async move {
        let socket = socket(source.is_ipv6(), side)?;
        // without this congestion control, the connection uses the default
        let _ = set_control(&socket, control);
        if fast_open {
            setsockopt(&socket, FastOpenNoCookie, &true)?;
            setsockopt(&socket, sockopt::TcpFastOpenConnect, &true)?;
        }
        socket.bind(source)?;
        socket.connect(destination).await
    };
    match try_from(source).await {
        Err(e) if is_in_use(&e) => try_from(SocketAddr::new(source.ip(), 0)).await,
        done => done,
    }
}

/// Connects a socket that waits for the first data.
pub(crate) fn send_syn(stream: &TcpStream) -> io::Result<()> {
    match send(stream.as_raw_fd(), &[], MsgFlags::MSG_NOSIGNAL) {
        Err(Errno::EINPROGRESS | Errno::EAGAIN) => Ok(()),
        done => Ok(done.map(drop)?),
    }
}

/// Whether a socket has this congestion control.
pub(crate) fn uses(stream: &TcpStream, control: &OsStr) -> bool {
    getsockopt(stream, sockopt::TcpCongestion).is_ok_and(|name| name == control)
}

fn is_in_use(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
    )
}

fn socket(ipv6: bool, side: Side) -> io::Result<TcpSocket> {
    let socket = match ipv6 {
        false => TcpSocket::new_v4()?,
        true => TcpSocket::new_v6()?,
    };
    // the kernel has one flag for both families
    setsockopt(&socket, sockopt::IpTransparent, &true)?;
    socket.set_reuseaddr(true)?;
    if side == Side::Lan {
        setsockopt(&socket, sockopt::RcvBufForce, &LAN_RECEIVE_BYTES)?;
    }
    Ok(socket)
}

fn set_control(socket: &impl AsFd, name: &OsStr) -> io::Result<()> {
    let name: OsString = name.to_owned();
    Ok(setsockopt(socket, sockopt::TcpCongestion, &name)?)
}

/// Sets the options of a connection: data is sent at once, since the sending host has decided
/// when; and a dead peer is detected.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    set_reset_on_close(stream, true)?;
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)?;
    Ok(())
}

/// Whether closing a socket, also by the end of the process, resets its connection. The peer
/// must not take an incomplete transfer for a complete one.
pub(crate) fn set_reset_on_close(stream: &TcpStream, reset: bool) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: reset.into(),
        l_linger: 0,
    };
    Ok(setsockopt(stream, sockopt::Linger, &linger)?)
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Sockets of the proxy and their options.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that wait to be accepted; the kernel limits it to net.core.somaxconn. If there
/// are more, the kernel answers with SYN cookies.
const BACKLOG: u32 = 4096;
/// A silent peer is asked whether it still has the connection after 5 minutes, then once a
/// minute, and has 5 minutes to answer. The hosts' own probes only reach the gateway.
const KEEPALIVE_IDLE_S: u32 = 300;
const KEEPALIVE_INTERVAL_S: u32 = 60;
const KEEPALIVE_PROBES: u32 = 5;

/// A listener for connections to any address and port. Nobody can connect to it by its own
/// address, which is in the loopback network: only the gateway's programs deliver connections.
pub(crate) fn listener(ipv6: bool, control: &OsStr) -> io::Result<TcpListener> {
    let loopback: SocketAddr = match ipv6 {
        false => (Ipv4Addr::LOCALHOST, 0).into(),
        true => (Ipv6Addr::LOCALHOST, 0).into(),
    };
    let socket = socket(ipv6)?;
    set_control(&socket, control)?;
    socket.bind(loopback)?;
    socket.listen(BACKLOG)
}

/// Connects from a source that is the address of another host. If its port is in use, because a
/// connection with the same ports ended less than a minute ago, another port is used.
pub(crate) async fn connect(
    source: SocketAddr,
    destination: SocketAddr,
    control: &OsStr,
) -> io::Result<TcpStream> {
    let try_from = |source: SocketAddr| async move {
        let socket = socket(source.is_ipv6())?;
        // without this congestion control, the connection uses the default
        let _ = set_control(&socket, control);
        socket.bind(source)?;
        socket.connect(destination).await
    };
    match try_from(source).await {
        Err(e) if is_in_use(&e) => try_from(SocketAddr::new(source.ip(), 0)).await,
        done => done,
    }
}

fn is_in_use(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
    )
}

fn socket(ipv6: bool) -> io::Result<TcpSocket> {
    let socket = match ipv6 {
        false => TcpSocket::new_v4()?,
        true => TcpSocket::new_v6()?,
    };
    // the kernel has one flag for both families
    setsockopt(&socket, sockopt::IpTransparent, &true)?;
    socket.set_reuseaddr(true)?;
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

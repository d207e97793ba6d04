// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Sockets of the proxy and their options.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{getsockopt, send, setsockopt, sockopt, MsgFlags};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
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
/// The first size of the send buffer on the WAN side, which the kernel doubles. Linux's default
/// of 16 KB does not grow before the handshake is complete: with Fast Open, an answer would wait
/// for that, and routers would not be asked for more.
const FIRST_SEND_BYTES: usize = 1 << 17;
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
sockopt_impl!(
    /// With 0, buffers grow although their size was set.
    BufferLock, SetOnly, libc::SOL_SOCKET, libc::SO_BUF_LOCK, i32
);
sockopt_impl!(
    /// The first field of `struct tcp_info`.
    State, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, u8
);
sockopt_impl!(
    /// SK_MEMINFO_VARS of linux/sock_diag.h.
    Memory, GetOnly, libc::SOL_SOCKET, libc::SO_MEMINFO, [u32; 9]
);
const WMEM_QUEUED: usize = 5;
/// States of a connection (linux/tcp_states.h).
const TCP_SYN_SENT: u8 = 2;
const TCP_SYN_RECV: u8 = 3;

/// A listener for the connections to any address and port that the gateway's programs deliver.
/// Its own address is in the loopback network; connections to that address are closed at once.
pub(crate) fn listener(ipv6: bool, side: Side, control: &OsStr) -> io::Result<TcpListener> {
    let loopback: SocketAddr = match ipv6 {
        false => (Ipv4Addr::LOCALHOST, 0).into(),
        true => (Ipv6Addr::LOCALHOST, 0).into(),
    };
    let socket = socket(ipv6, side)?;
    set_control(&socket, control)?;
    prepare(&socket)?; // accepted sockets inherit it
    socket.bind(loopback)?;
    let listener = socket.listen(BACKLOG)?;
    if side == Side::Wan {
        setsockopt(&listener, FastOpen, &FAST_OPEN_QUEUE)?;
        setsockopt(&listener, FastOpenNoCookie, &true)?;
        setsockopt(&listener, sockopt::SndBuf, &FIRST_SEND_BYTES)?;
        setsockopt(&listener, BufferLock, &0)?;
    }
    Ok(listener)
}

/// Connects from a source that is the address of another host. If its port is in use, because a
/// connection with the same ports ended less than a minute ago, another port is used. With
/// `fast_open`, if the kernel permits it, the SYN waits for the first data, or for [`send_syn`],
/// which sends it without data. Also returns whether the SYN waits.
pub(crate) async fn connect(
    source: SocketAddr,
    destination: SocketAddr,
    side: Side,
    control: &OsStr,
    fast_open: bool,
) -> io::Result<(TcpStream, bool)> {
    let try_from = |source: SocketAddr| async move {
        let socket = socket(source.is_ipv6(), side)?;
        // without this congestion control, the connection uses the default
        let _ = set_control(&socket, control);
        prepare(&socket)?;
        let waits = fast_open && connect_with_data(&socket).is_ok();
        socket.bind(source)?;
        Ok((socket.connect(destination).await?, waits))
    };
    match try_from(source).await {
        Err(e) if is_in_use(&e) => try_from(SocketAddr::new(source.ip(), 0)).await,
        done => done,
    }
}

fn connect_with_data(socket: &TcpSocket) -> io::Result<()> {
    setsockopt(socket, FastOpenNoCookie, &true)?;
    Ok(setsockopt(socket, sockopt::TcpFastOpenConnect, &true)?)
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
/// when; urgent data is received as other data; a dead peer is detected.
fn prepare(socket: &TcpSocket) -> io::Result<()> {
    set_reset_on_close(socket, true)?;
    setsockopt(socket, sockopt::TcpNoDelay, &true)?;
    setsockopt(socket, sockopt::OobInline, &true)?;
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
    setsockopt(socket, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)?;
    Ok(())
}

/// Whether a socket has sent a SYN and has no answer.
pub(crate) fn is_connecting(stream: &TcpStream) -> io::Result<bool> {
    Ok(getsockopt(stream, State)? == TCP_SYN_SENT)
}

/// Sends the last, small segment of the written data during the handshake of a connection with
/// Fast Open. Otherwise the kernel would hold it back until the handshake is complete, so that it
/// can add more data (tcp_autocorking). Returns whether the handshake is incomplete.
pub(crate) fn send_in_handshake(stream: &TcpStream) -> io::Result<bool> {
    let state = getsockopt(stream, State)?;
    if state == TCP_SYN_RECV {
        stream.set_nodelay(true)?; // this sends the rest
    }
    Ok(state == TCP_SYN_RECV || state == TCP_SYN_SENT)
}

/// Bytes that can be read now, urgent ones included.
pub(crate) fn unread_bytes(stream: &TcpStream) -> u64 {
    rustix::io::ioctl_fionread(stream).unwrap_or(0)
}

/// Memory of the data that was written and not acknowledged.
pub(crate) fn unsent_bytes(stream: &TcpStream) -> u32 {
    getsockopt(stream, Memory).map_or(0, |memory| memory[WMEM_QUEUED])
}

/// Whether closing a socket, also by the end of the process, resets its connection. The peer
/// must not take an incomplete transfer for a complete one.
pub(crate) fn set_reset_on_close(socket: &impl AsFd, reset: bool) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: reset.into(),
        l_linger: 0,
    };
    Ok(setsockopt(socket, sockopt::Linger, &linger)?)
}

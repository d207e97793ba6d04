// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Traffic: real TCP connections and UDP between nodes, all served by one
//! thread.

use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use xcp_datapath::socket;

use crate::experiment::{Burst, Experiment, Flow, Socket, Transfers, Variant, UDP};
use crate::pages::PageRun;
use crate::result::FlowSample;
use crate::socket_option::{check, set_option};
use crate::topology::{address, Topology};
use crate::udp::UdpFlow;
use crate::{Error, Result};

pub const FIRST_PORT: u16 = 5001;
const CHUNK: usize = 1 << 18;
/// More connections than pages open at once.
const BACKLOG: i32 = 1024;
pub static ZEROES: [u8; CHUNK] = [0; CHUNK];

/// A running flow.
pub enum Running {
    Tcp(Connection),
    Udp(UdpFlow),
    Pages(PageRun),
}

impl Running {
    /// Starts flow `index` of the experiment; `now` is the time of the run.
    pub fn start(
        experiment: &Experiment,
        stage: &Topology,
        index: usize,
        variant: &Variant,
        now: Duration,
    ) -> Result<Self> {
        let flow: &Flow = &experiment.flows[index];
        let to: SocketAddr =
            socket_address(&address(experiment, &flow.to), FIRST_PORT + index as u16)?;
        let kind = flow.kind(variant);
        let describe = |e: io::Error| Error::io(format!("flow {} ({kind})", flow.name), &e);
        if let Some(rate) = flow.udp_mbit {
            let receiver = stage
                .within(&flow.to, || UdpFlow::listen(to))?
                .map_err(describe)?;
            let sender = stage
                .within(&flow.from, || UdpFlow::connect(to))?
                .map_err(describe)?;
            let bytes = flow.payload_bytes;
            return Ok(Self::Udp(UdpFlow::new(
                sender,
                receiver,
                rate * 1e6,
                bytes,
                now,
            )));
        }
        let listener = stage
            .within(&flow.to, || listen(to, kind, variant.socket))?
            .map_err(describe)?;
        if let Some(bytes) = flow.receive_buffer_bytes {
            set_buffer(&listener, libc::SO_RCVBUFFORCE, bytes).map_err(describe)?;
        }
        let sender = stage
            .within(&flow.from, || connect(to, kind, variant.socket))?
            .map_err(describe)?;
        if let Some(bytes) = flow.send_buffer_bytes {
            set_buffer(&sender, libc::SO_SNDBUFFORCE, bytes).map_err(describe)?;
        }
        Ok(Self::Tcp(Connection::new(listener, sender, flow.burst)))
    }

    /// Starts a transfer of `bytes`; `index` selects its port, as for a flow.
    pub fn fetch(
        experiment: &Experiment,
        stage: &Topology,
        transfers: &Transfers,
        index: usize,
        variant: &Variant,
        bytes: u64,
    ) -> Result<Self> {
        let to = socket_address(
            &address(experiment, &transfers.to),
            FIRST_PORT + index as u16,
        )?;
        let kind = &variant.control;
        let describe = |e: io::Error| Error::io(format!("transfer {index} ({kind})"), &e);
        let listener = stage
            .within(&transfers.to, || listen(to, kind, variant.socket))?
            .map_err(describe)?;
        let sender = stage
            .within(&transfers.from, || connect(to, kind, variant.socket))?
            .map_err(describe)?;
        let mut connection = Connection::new(listener, sender, None);
        connection.left = bytes;
        Ok(Self::Tcp(connection))
    }

    /// Whether the receiver has read everything, up to the end of the
    /// connection.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Tcp(c) => c.listener.is_none() && c.receiver.is_none(),
            Self::Udp(_) | Self::Pages(_) => false,
        }
    }

    /// The open descriptors, and the poll events that each waits for.
    pub fn interests(&self) -> Vec<(RawFd, i16)> {
        match self {
            Self::Tcp(connection) => connection.interests().collect(),
            Self::Udp(blast) => vec![(blast.receiver(), libc::POLLIN)],
            Self::Pages(pages) => pages.interests(),
        }
    }

    /// Sends, receives or accepts at a descriptor, without blocking.
    pub fn serve(&mut self, fd: RawFd) -> io::Result<()> {
        match self {
            Self::Tcp(connection) => connection.serve(fd),
            Self::Udp(blast) => blast.receive(),
            Self::Pages(pages) => pages.serve(fd),
        }
    }

    /// The time of the next scheduled send, if there is one.
    pub fn next(&self) -> Option<Duration> {
        match self {
            Self::Tcp(connection) => connection.next,
            Self::Udp(blast) => blast.next(),
            Self::Pages(_) => None,
        }
    }

    /// Starts the burst, or sends the packets, that are due by `now`.
    pub fn send_due(&mut self, now: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(connection) => {
                connection.wait_or_burst(now);
                Ok(())
            }
            Self::Udp(blast) => blast.send(now),
            Self::Pages(_) => Ok(()),
        }
    }

    /// Pauses or resumes sending. Only TCP flows pause.
    pub fn pause(&mut self, pauses: bool) {
        if let Self::Tcp(connection) = self {
            connection.pauses = pauses;
        }
    }

    /// Raises the send buffer to `bytes`, as its application would.
    pub fn raise_send_buffer(&self, bytes: u32) -> Result<()> {
        match self {
            Self::Tcp(Connection {
                sender: Some(fd), ..
            }) => set_buffer(fd, libc::SO_SNDBUFFORCE, bytes).map_err(|e| Error::io("buffer", &e)),
            _ => Ok(()),
        }
    }

    /// Stops sending; data in flight still arrives.
    pub fn stop(&mut self) {
        match self {
            Self::Tcp(connection) => connection.stop(),
            Self::Udp(blast) => blast.stop(),
            Self::Pages(_) => {}
        }
    }

    /// The congestion control that the sender has, or had when it stopped.
    pub fn control(&mut self) -> String {
        match self {
            Self::Tcp(connection) => connection.control(),
            Self::Udp(_) => UDP.to_owned(),
            Self::Pages(_) => String::new(),
        }
    }

    /// The flow's counters so far.
    pub fn sample(&mut self) -> FlowSample {
        match self {
            Self::Tcp(connection) => connection.sample(),
            Self::Udp(blast) => blast.sample(),
            Self::Pages(_) => FlowSample::default(),
        }
    }
}

/// One connection: the sending socket, the receiving socket, and the listener
/// until the receiving socket exists.
pub struct Connection {
    sender: Option<OwnedFd>,
    receiver: Option<OwnedFd>,
    listener: Option<OwnedFd>,
    /// Sending is paused.
    pauses: bool,
    burst: Option<Burst>,
    /// Bytes of the burst or transfer that TCP has not taken yet; `u64::MAX` if
    /// there is no limit.
    left: u64,
    /// When the next burst is due.
    next: Option<Duration>,
    received: u64,
    last: FlowSample,
    /// The sender's congestion control at the last reading.
    control: String,
}

impl Connection {
    /// Creates a connection whose receiver listens and whose sender has begun
    /// to connect.
    fn new(listener: OwnedFd, sender: OwnedFd, burst: Option<Burst>) -> Self {
        Self {
            sender: Some(sender),
            receiver: None,
            listener: Some(listener),
            pauses: false,
            burst,
            left: burst.map_or(u64::MAX, |b| b.bytes),
            next: None,
            received: 0,
            last: FlowSample::default(),
            control: String::new(),
        }
    }

    fn interests(&self) -> impl Iterator<Item = (RawFd, i16)> + '_ {
        let idle = self.pauses || self.left == 0;
        let to_send = if idle { 0 } else { libc::POLLOUT };
        [
            (&self.sender, to_send),
            (&self.receiver, libc::POLLIN),
            (&self.listener, libc::POLLIN),
        ]
        .into_iter()
        .filter_map(|(end, events)| Some((end.as_ref()?.as_raw_fd(), events)))
    }

    fn serve(&mut self, fd: RawFd) -> io::Result<()> {
        let is = |end: &Option<OwnedFd>| end.as_ref().is_some_and(|end| end.as_raw_fd() == fd);
        if is(&self.sender) {
            self.send()
        } else if is(&self.receiver) {
            self.receive()
        } else {
            self.accept()
        }
    }

    /// Sends one chunk: while megabytes are copied, no other socket is served,
    /// and receivers that do not read delay their ACKs.
    fn send(&mut self) -> io::Result<()> {
        let Some(fd) = self.sender.as_ref().filter(|_| !self.pauses) else {
            return Ok(());
        };
        let size = self.left.min(CHUNK as u64) as usize;
        // SAFETY: the buffer is static and at least of this length.
        let sent = unsafe {
            libc::send(
                fd.as_raw_fd(),
                ZEROES.as_ptr().cast(),
                size,
                libc::MSG_NOSIGNAL,
            )
        };
        if sent < 0 {
            return ignore_would_block();
        }
        if self.left < u64::MAX {
            self.left -= sent as u64;
        }
        if self.left == 0 && self.burst.is_none() {
            self.sender = None;
        }
        Ok(())
    }

    /// Starts the pause after a burst, or the next burst after a pause.
    fn wait_or_burst(&mut self, now: Duration) {
        let Some(burst) = self.burst else { return };
        if self.left > 0 {
            return;
        }
        match self.next {
            None => self.next = Some(now + Duration::from_secs_f64(burst.pause_s)),
            Some(at) if now >= at => {
                self.next = None;
                self.left = burst.bytes;
            }
            Some(_) => {}
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        while let Some(fd) = &self.receiver {
            // SAFETY: with MSG_TRUNC TCP counts the bytes and copies none.
            let got = unsafe {
                libc::recv(
                    fd.as_raw_fd(),
                    std::ptr::null_mut(),
                    usize::MAX >> 33,
                    libc::MSG_TRUNC | libc::MSG_DONTWAIT,
                )
            };
            match got {
                0 => self.receiver = None,
                1.. => self.received += got as u64,
                _ => return ignore_would_block(),
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        if let Some(fd) = &self.listener {
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // SAFETY: null addresses are allowed: the peer's address is not
            // needed.
            let fd = unsafe {
                libc::accept4(
                    fd.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    flags,
                )
            };
            if fd < 0 {
                return ignore_would_block();
            }
            // SAFETY: accept4 returned this descriptor to us alone.
            self.receiver = Some(unsafe { OwnedFd::from_raw_fd(fd) });
            self.listener = None;
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.sample();
        self.control();
        self.sender = None;
    }

    fn control(&mut self) -> String {
        if let Some(name) = self.sender.as_ref().and_then(congestion_control) {
            self.control = name;
        }
        self.control.clone()
    }

    fn sample(&mut self) -> FlowSample {
        if let Some(info) = self.sender.as_ref().and_then(tcp_info) {
            self.last.cwnd_packets = info.tcpi_snd_cwnd;
            self.last.rtt_us = info.tcpi_rtt;
            self.last.retransmissions = info.tcpi_total_retrans;
        }
        self.last.received_bytes = self.received;
        self.last.clone()
    }
}

pub fn socket_address(host: &str, port: u16) -> Result<SocketAddr> {
    host.parse()
        .map(|ip| SocketAddr::new(ip, port))
        .map_err(|_| Error::new(host, "not an address", "see the experiment's links"))
}

fn ignore_would_block() -> io::Result<()> {
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
        // still connecting
        e if e.raw_os_error() == Some(libc::ENOTCONN) => Ok(()),
        e => Err(e),
    }
}

fn socket(to: SocketAddr, control: &str, kind: Socket) -> io::Result<OwnedFd> {
    let family = if to.is_ipv6() {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    let flags = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let protocol = match kind {
        Socket::Tcp => 0,
        Socket::Protocol => i32::from(socket::DEFAULT_NUMBER),
    };
    // SAFETY: plain values; the result is checked and owned at once.
    let fd = unsafe { libc::socket(family, flags, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: socket returned this descriptor to us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if kind == Socket::Tcp {
        set_option(
            &fd,
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            control.as_bytes(),
        )?;
    }
    set_option(
        &fd,
        libc::SOL_SOCKET,
        libc::SO_REUSEADDR,
        &1i32.to_ne_bytes(),
    )?;
    Ok(fd)
}

/// Sets the size of a socket buffer, as the application requests it: the kernel
/// doubles it for its overhead per packet.
fn set_buffer(fd: &OwnedFd, name: i32, bytes: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, name, &bytes.to_ne_bytes())
}

pub fn listen(at: SocketAddr, control: &str, kind: Socket) -> io::Result<OwnedFd> {
    let fd = socket(at, control, kind)?;
    let (address, length) = raw_address(at);
    // SAFETY: the address is initialised and of the given length.
    unsafe {
        check(libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            length,
        ))?;
        check(libc::listen(fd.as_raw_fd(), BACKLOG))?;
    }
    Ok(fd)
}

pub fn connect(to: SocketAddr, control: &str, kind: Socket) -> io::Result<OwnedFd> {
    let fd = socket(to, control, kind)?;
    let (address, length) = raw_address(to);
    // SAFETY: the address is initialised and of the given length.
    let rc = unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) };
    match check(rc) {
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => Ok(fd),
        Err(e) => Err(e),
        Ok(()) => Ok(fd),
    }
}

fn raw_address(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all zeroes is a valid sockaddr_storage, and both address types
    // fit into it and need no more alignment.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        match address {
            SocketAddr::V4(v4) => {
                let raw = &mut *(&raw mut storage).cast::<libc::sockaddr_in>();
                raw.sin_family = libc::AF_INET as _;
                raw.sin_port = v4.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                (storage, size_of::<libc::sockaddr_in>() as _)
            }
            SocketAddr::V6(v6) => {
                let raw = &mut *(&raw mut storage).cast::<libc::sockaddr_in6>();
                raw.sin6_family = libc::AF_INET6 as _;
                raw.sin6_port = v6.port().to_be();
                raw.sin6_addr.s6_addr = v6.ip().octets();
                (storage, size_of::<libc::sockaddr_in6>() as _)
            }
        }
    }
}

fn congestion_control(fd: &OwnedFd) -> Option<String> {
    let mut name = [0u8; 16]; // TCP_CA_NAME_MAX
    let mut length = name.len() as u32;
    // SAFETY: the kernel writes at most the given length of the buffer.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &mut length,
        )
    };
    let text = name.split(|b| *b == 0).next().unwrap_or_default();
    (rc == 0).then(|| String::from_utf8_lossy(text).into_owned())
}

fn tcp_info(fd: &OwnedFd) -> Option<libc::tcp_info> {
    // SAFETY: the kernel writes at most the given length of a zeroed record.
    unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut length = size_of::<libc::tcp_info>() as u32;
        let rc = libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut length,
        );
        (rc == 0).then_some(info)
    }
}

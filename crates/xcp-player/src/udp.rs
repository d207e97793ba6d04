// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! UDP flows at a constant rate, without congestion control.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use crate::result::FlowSample;
use crate::socket_option::set_option;

/// Buffer size, larger than any payload.
const ROOM_BYTES: usize = 2048;
/// The socket send buffer, large enough for any queue of an experiment.
const SEND_BUFFER_BYTES: i32 = 1 << 26;
static ZEROES: [u8; ROOM_BYTES] = [0; ROOM_BYTES];

/// The sender and the receiver of a UDP flow.
pub struct UdpFlow {
    sender: Option<UdpSocket>,
    receiver: UdpSocket,
    payload_bytes: usize,
    pace: Pace,
    received_bytes: u64,
}

/// The send times of a flow's packets.
struct Pace {
    interval: Duration,
    next: Duration,
}

impl Pace {
    /// Returns how many packets have become due since the last call.
    fn due(&mut self, now: Duration) -> u32 {
        let mut due = 0;
        while self.next <= now {
            self.next += self.interval;
            due += 1;
        }
        due
    }
}

impl UdpFlow {
    /// Opens a socket that receives at an address.
    pub fn listen(at: SocketAddr) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Opens a socket that sends to an address.
    pub fn connect(to: SocketAddr) -> io::Result<UdpSocket> {
        let any: SocketAddr = if to.is_ipv6() {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        // the host's queue must drop excess packets, not the socket
        let room = SEND_BUFFER_BYTES.to_ne_bytes();
        set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room)?;
        socket.connect(to)?;
        Ok(socket)
    }

    /// Creates a flow that sends payloads of `payload_bytes` at `rate_bps` bits
    /// per second, from `now` on.
    pub fn new(
        sender: UdpSocket,
        receiver: UdpSocket,
        rate_bps: f64,
        payload_bytes: usize,
        now: Duration,
    ) -> Self {
        Self {
            sender: Some(sender),
            receiver,
            payload_bytes,
            pace: Pace {
                interval: Duration::from_secs_f64(payload_bytes as f64 * 8.0 / rate_bps),
                next: now,
            },
            received_bytes: 0,
        }
    }

    /// The send time of the next packet; None after the flow has stopped.
    pub fn next(&self) -> Option<Duration> {
        self.sender.is_some().then_some(self.pace.next)
    }

    pub fn receiver(&self) -> RawFd {
        self.receiver.as_raw_fd()
    }

    /// Sends the packets that are due. Packets that do not fit into the host's
    /// queue are lost.
    pub fn send(&mut self, now: Duration) -> io::Result<()> {
        let Some(sender) = &self.sender else {
            return Ok(());
        };
        for _ in 0..self.pace.due(now) {
            match sender.send(&ZEROES[..self.payload_bytes]) {
                Err(e) if !is_full(&e) => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads and counts the bytes that have arrived.
    pub fn receive(&mut self) -> io::Result<()> {
        let mut room = [0; ROOM_BYTES];
        loop {
            match self.receiver.recv(&mut room) {
                Ok(bytes) => self.received_bytes += bytes as u64,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Stops sending; packets in flight still arrive.
    pub fn stop(&mut self) {
        self.sender = None;
    }

    /// The bytes received so far.
    pub fn sample(&self) -> FlowSample {
        FlowSample {
            received_bytes: self.received_bytes,
            ..FlowSample::default()
        }
    }
}

fn is_full(e: &io::Error) -> bool {
    e.kind() == ErrorKind::WouldBlock || e.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_calls_do_not_change_the_rate() {
        let ms = Duration::from_millis;
        let mut pace = Pace {
            interval: ms(3),
            next: ms(10),
        };
        let asked = [9, 10, 11, 12, 40, 40, 1009];
        let sent = asked.map(|at| pace.due(ms(at)));
        assert_eq!(sent, [0, 1, 0, 0, 10, 0, 323]);
        assert_eq!(sent.iter().sum::<u32>(), 1 + (1009 - 10) / 3);
    }

    #[test]
    fn received_bytes_are_counted() {
        if !xcp_testbed::can_run("UDP of the lab") {
            return;
        }
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let receiver = UdpFlow::listen(loopback).expect("binds");
        let sender = UdpFlow::connect(receiver.local_addr().expect("bound")).expect("connects");
        let mut flow = UdpFlow::new(sender, receiver, 1e6, 1000, Duration::ZERO);
        flow.send(Duration::from_millis(80)).expect("sends");
        // packets every 8 ms, the first one immediately
        xcp_testbed::eventually(|| {
            flow.receive().expect("receives");
            flow.sample().received_bytes >= 11_000
        });
        assert_eq!(flow.sample().received_bytes, 11_000);
        assert_eq!(flow.next(), Some(Duration::from_millis(88)));
        flow.stop();
        assert_eq!(flow.next(), None);
    }
}

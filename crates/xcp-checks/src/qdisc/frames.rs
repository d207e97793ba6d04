// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Frames that contain a number and a send time. Packet sockets send and receive them
//! without a protocol stack.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Error, Result};

const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
const IP_LEN: usize = 20;
const UDP_LEN: usize = 8;
/// Length of a TCP header with the 4-byte handshake option.
const TCP_LEN: usize = 24;
const SYN: u8 = 2;
const HANDSHAKE: [u8; 4] = [254, 4, 0x58, 0x43];
const MARK: [u8; 4] = *b"load";
const LABEL_LEN: usize = 4 + 4 + 8 + 8;

/// The queue for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The XCP queue: a TCP SYN with the handshake option, the simplest XCP packet.
    Xcp,
    /// The queue for other traffic: a UDP packet.
    Other,
}

/// The label that a frame contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    pub flow: u32,
    pub number: u64,
    /// The send time by the real-time clock.
    pub sent: Duration,
}

/// Builds a frame of `length` bytes.
pub fn frame(class: Class, length: usize, label: Label) -> Vec<u8> {
    let (protocol, transport) = match class {
        Class::Xcp => (libc::IPPROTO_TCP, TCP_LEN),
        Class::Other => (libc::IPPROTO_UDP, UDP_LEN),
    };
    let mut bytes = ETHERNET.to_vec();
    let total = (length - ETHERNET.len()) as u16;
    let mut ip = [0u8; IP_LEN];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[8] = 64;
    ip[9] = protocol as u8;
    bytes.extend(ip);
    let mut head = vec![0u8; transport];
    if class == Class::Xcp {
        head[12] = (TCP_LEN as u8 / 4) << 4;
        head[13] = SYN;
        head[20..].copy_from_slice(&HANDSHAKE);
    } else {
        head[4..6].copy_from_slice(&(total - IP_LEN as u16).to_be_bytes());
    }
    bytes.extend(head);
    bytes.extend(MARK);
    bytes.extend(label.flow.to_be_bytes());
    bytes.extend(label.number.to_be_bytes());
    bytes.extend((label.sent.as_nanos() as u64).to_be_bytes());
    bytes.resize(length, 0);
    bytes
}

/// Reads the label of a frame made by [`frame`].
pub fn label(bytes: &[u8]) -> Option<Label> {
    let transport = match i32::from(*bytes.get(23)?) {
        libc::IPPROTO_TCP => TCP_LEN,
        _ => UDP_LEN,
    };
    let at = ETHERNET.len() + IP_LEN + transport;
    let label = bytes.get(at..at + LABEL_LEN)?;
    let word = |i: usize| label[i..i + 8].try_into().ok().map(u64::from_be_bytes);
    (label[..4] == MARK).then_some(())?;
    Some(Label {
        flow: u32::from_be_bytes(label[4..8].try_into().ok()?),
        number: word(8)?,
        sent: Duration::from_nanos(word(16)?),
    })
}

/// The time of the real-time clock.
pub fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// A packet socket on a device.
pub struct Port {
    socket: OwnedFd,
}

impl Port {
    /// Opens a socket that only sends.
    pub fn sender(device: &str) -> Result<Self> {
        Self::open(device, 0).map_err(|e| Error::io(device, &e))
    }

    /// Opens a socket that receives all frames, with a buffer of `buffer` bytes and a
    /// receive timeout of 100 ms.
    pub fn receiver(device: &str, buffer: i32) -> Result<Self> {
        let port = Self::open(device, libc::ETH_P_ALL as u16).map_err(|e| Error::io(device, &e))?;
        let wait = libc::timeval {
            tv_sec: 0,
            tv_usec: 100_000,
        };
        port.set(libc::SO_RCVBUFFORCE, &buffer)
            .and_then(|()| port.set(libc::SO_RCVTIMEO, &wait))
            .map_err(|e| Error::io(device, &e))?;
        Ok(port)
    }

    fn open(device: &str, protocol: u16) -> io::Result<Self> {
        let name = std::ffi::CString::new(device).unwrap_or_default();
        // SAFETY: the argument is a C string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        // SAFETY: plain values; the result is checked and owned at once.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if index == 0 || fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: socket has just returned this descriptor, so nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address is initialised and of the given length.
        let rc = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { socket })
    }

    /// Sets the send buffer: the memory that queued frames may use, as the kernel counts it.
    pub fn allow(&self, buffer: i32) -> Result<()> {
        self.set(libc::SO_SNDBUFFORCE, &buffer)
            .map_err(|e| Error::io("SO_SNDBUFFORCE", &e))
    }

    fn set<T>(&self, option: i32, value: &T) -> io::Result<()> {
        // SAFETY: pointer and length describe the value.
        let rc = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const *value).cast(),
                size_of::<T>() as u32,
            )
        };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sends a frame. Waits while the send buffer is full. Returns false if the frame was
    /// dropped at once.
    pub fn send(&self, bytes: &[u8]) -> bool {
        // SAFETY: the length is that of the buffer.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                0,
            )
        };
        sent >= 0
    }

    /// Receives a frame and the kernel's receive time; None after the timeout.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<(&'a [u8], Duration)> {
        // SAFETY: the length is that of the buffer.
        let got = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
            )
        };
        let bytes = buffer.get(..usize::try_from(got).ok()?)?;
        const SIOCGSTAMPNS_OLD: libc::c_ulong = 0x8907;
        let mut at = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel fills the record.
        let rc = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCGSTAMPNS_OLD as _, &mut at) };
        let time = match rc {
            0 => Duration::new(at.tv_sec as u64, at.tv_nsec as u32),
            _ => now(),
        };
        Some((bytes, time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_round_trips_through_frame() {
        let written = Label {
            flow: 7,
            number: 1 << 40,
            sent: Duration::from_nanos(1_767_225_600_123_456_789),
        };
        for class in [Class::Xcp, Class::Other] {
            let bytes = frame(class, 300, written);
            assert_eq!(bytes.len(), 300);
            assert_eq!(label(&bytes), Some(written));
            assert_eq!(label(&bytes[..60]), None);
        }
        assert_eq!(label(&[0; 300]), None);
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Reads the counters of the bottleneck's queue discipline by netlink.

use netlink_packet_core::{
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NLM_F_DUMP, NLM_F_REQUEST,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::{Error, Result};

/// The root queue discipline's counters at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueState {
    pub packets: u32,
    pub bytes: u32,
    pub sent_bytes: u64,
    pub sent_packets: u32,
    pub drops: u32,
}

/// A netlink socket in the namespace of the bottleneck's node.
pub struct Probe {
    socket: Socket,
    device: u32,
}

impl Probe {
    /// Opens a probe in the calling thread's network namespace.
    pub fn open(device: &str) -> Result<Self> {
        let describe = |e: std::io::Error| Error::io("netlink", &e);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(describe)?;
        socket.bind_auto().map_err(describe)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(describe)?;
        Ok(Self {
            socket,
            device: index_of(device)?,
        })
    }

    /// Reads the current counters.
    pub fn read(&self) -> Result<QueueState> {
        let mut message = TcMessage::default();
        message.header.index = self.device as i32;
        let mut request = NetlinkMessage::new(
            NetlinkHeader::default(),
            NetlinkPayload::from(RouteNetlinkMessage::GetQueueDiscipline(message)),
        );
        request.header.flags = NLM_F_DUMP | NLM_F_REQUEST;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        let describe = |e: std::io::Error| Error::io("netlink", &e);
        self.socket.send(&bytes, 0).map_err(describe)?;

        let mut state = QueueState::default();
        loop {
            let (answer, _) = self.socket.recv_from_full().map_err(describe)?;
            if self.take(&answer, &mut state)? {
                return Ok(state);
            }
        }
    }

    /// Reads one datagram; true at the end of the dump.
    fn take(&self, mut answer: &[u8], state: &mut QueueState) -> Result<bool> {
        let odd = |what: String| Error::new("netlink", what, "report this kernel's version");
        while !answer.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer)
                .map_err(|e| odd(e.to_string()))?;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(e) => return Err(odd(e.to_string())),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(tc))
                    if tc.header.index == self.device as i32
                        && tc.header.parent == TcHandle::ROOT =>
                {
                    *state = state_of(&tc);
                }
                _ => {}
            }
            let length = (message.header.length as usize).next_multiple_of(4);
            answer = answer.get(length..).unwrap_or_default();
        }
        Ok(false)
    }
}

fn state_of(message: &TcMessage) -> QueueState {
    let mut state = QueueState::default();
    for attribute in &message.attributes {
        let TcAttribute::Stats2(stats) = attribute else {
            continue;
        };
        for stat in stats {
            match stat {
                TcStats2::Basic(basic) => {
                    state.sent_bytes = basic.bytes;
                    state.sent_packets = basic.packets;
                }
                TcStats2::Queue(queue) => {
                    state.packets = queue.qlen;
                    state.bytes = queue.backlog;
                    state.drops = queue.drops;
                }
                _ => {}
            }
        }
    }
    state
}

fn index_of(device: &str) -> Result<u32> {
    let name = std::ffi::CString::new(device).unwrap_or_default();
    // SAFETY: the argument is a C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(Error::io(device, &std::io::Error::last_os_error())),
        index => Ok(index),
    }
}

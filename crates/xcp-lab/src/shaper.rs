// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What gives a link its rate: netem on a path; on a bottleneck tbf, one
//! medium for both ends, or the queue discipline `xcp`. A bottleneck's rate may
//! change during a run.

use netlink_packet_core::{
    DefaultNla, NetlinkHeader, NetlinkMessage, NetlinkPayload, NLM_F_ACK, NLM_F_REQUEST,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use xcp_datapath::medium::Medium;
use xcp_datapath::qdisc;

use crate::experiment::{Link, Queue};
use crate::probe::index_of;
use crate::{Error, Result};

/// What a token bucket may send at once: one full frame.
const BURST_BYTES: u32 = 1600;
/// Room for what is under way on a path.
const PATH_PACKETS: u32 = 1_000_000;
const PACKET_BYTES: u32 = 1500;
const TBF: TcHandle = TcHandle { major: 1, minor: 0 };

/// Whose rate can be changed.
pub enum Shaper {
    /// Of the device of a node.
    Tbf {
        node: String,
        device: String,
        framing_bytes: u32,
        queue_packets: u32,
    },
    Medium(Medium),
    /// The queue discipline `xcp` of a node's device.
    Own {
        node: String,
        device: String,
        options: qdisc::Options,
    },
}

/// Commands for tc, which build a device's queue disciplines.
pub fn disciplines(link: &Link, dev: &str, queue: Queue) -> String {
    let rate = link.rate_bps(0.0);
    let rate = rate.map_or(String::new(), |bps| format!("rate {}bit", bps as u64));
    let Some(limit) = link.queue_packets else {
        if !link.needs_netem() {
            return String::new();
        }
        return format!(
            "qdisc add dev {dev} root netem delay {}us {rate} limit {PATH_PACKETS}\n",
            (link.delay_ms * 1e3) as u64
        );
    };
    if link.half_duplex {
        // its own pacing would hold back packets that have their time already
        return format!(
            "qdisc add dev {dev} root handle 1: fq nopacing limit {limit} flow_limit {limit}\n"
        );
    }
    let bytes = u64::from(limit) * u64::from(PACKET_BYTES);
    let inner = match queue {
        Queue::Fifo | Queue::Xcp | Queue::XcpFifo => format!("pfifo limit {limit}"),
        // as Zhang & Henderson set it: a third and two thirds, probability 0.1
        Queue::Red => format!(
            "red limit {bytes} min {} max {} avpkt {PACKET_BYTES} burst {} probability 0.1",
            bytes / 3,
            bytes * 2 / 3,
            limit / 3 + 1
        ),
        Queue::FqCodel => format!("fq_codel limit {limit}"),
    };
    let framing = link.framing_bytes;
    format!(
        "qdisc add dev {dev} root handle 1: tbf {rate} overhead {framing} burst {} limit {}\n\
         qdisc add dev {dev} parent 1: handle 10: {inner}\n",
        BURST_BYTES + framing,
        bytes * 2
    )
}

impl Shaper {
    /// The node in whose namespace its rate is changed, if that matters.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Tbf { node, .. } | Self::Own { node, .. } => Some(node),
            Self::Medium(_) => None,
        }
    }

    /// Changes the rate, in the namespace of its node.
    pub fn set_rate(&mut self, bits_per_s: f64) -> Result<()> {
        let bytes_per_s = (bits_per_s / 8.0) as u64;
        match self {
            Self::Medium(medium) => medium.set_rate(bytes_per_s),
            Self::Own {
                device, options, ..
            } => {
                options.rate_bytes_per_s = bytes_per_s;
                qdisc::install(device, *options).map(|_| ())
            }
            Self::Tbf {
                device,
                framing_bytes,
                queue_packets,
                ..
            } => change_tbf(device, bytes_per_s, *framing_bytes, *queue_packets),
        }
    }
}

/// Gives a device's tbf another rate, by netlink: running tc takes long for a
/// machine that counts instructions.
fn change_tbf(device: &str, bytes_per_s: u64, framing_bytes: u32, packets: u32) -> Result<()> {
    let rate = u32::try_from(bytes_per_s).unwrap_or(u32::MAX);
    let mut message = TcMessage::default();
    message.header.index = index_of(device)? as i32;
    message.header.handle = TBF;
    message.header.parent = TcHandle::ROOT;
    message.attributes = vec![
        TcAttribute::Kind("tbf".into()),
        TcAttribute::Options(vec![
            option(TCA_TBF_PARMS, &tbf_parameters(rate, framing_bytes, packets)),
            option(TCA_TBF_BURST, &(BURST_BYTES + framing_bytes).to_ne_bytes()),
        ]),
    ];
    request(RouteNetlinkMessage::NewQueueDiscipline(message))
        .map_err(|e| Error::io(format!("tbf of {device}"), &e))
}

const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_BURST: u16 = 6;
const TC_LINKLAYER_ETHERNET: u8 = 1;

fn option(kind: u16, value: &[u8]) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value.to_vec()))
}

/// `struct tc_tbf_qopt`. The limit goes to the FIFO behind, which takes it in
/// packets.
fn tbf_parameters(bytes_per_s: u32, framing_bytes: u32, limit_packets: u32) -> Vec<u8> {
    let mut rate = vec![0, TC_LINKLAYER_ETHERNET];
    rate.extend((framing_bytes as u16).to_ne_bytes());
    rate.extend([0; 4]); // cell_align, mpu
    rate.extend(bytes_per_s.to_ne_bytes());
    let no_peak_rate = [0; 12];
    let limit = limit_packets.to_ne_bytes();
    let no_buffer_nor_mtu = [0; 8]; // the burst is given in bytes
    [&rate[..], &no_peak_rate, &limit, &no_buffer_nor_mtu].concat()
}

/// Asks the kernel to do something, and waits until it has.
fn request(message: RouteNetlinkMessage) -> std::io::Result<()> {
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    packet.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
        .map_err(std::io::Error::other)?;
    match answer.payload {
        NetlinkPayload::Error(e) if e.code.is_some() => Err(e.to_io()),
        _ => Ok(()),
    }
}

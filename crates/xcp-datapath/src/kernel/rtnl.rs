// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Devices, routes and queue disciplines, read and changed through rtnetlink.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    DefaultNla, NetlinkHeader, NetlinkMessage, NetlinkPayload, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP,
    NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkInfo, LinkMessage, LinkXdp, Prop, XdpAttached,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::{Error, Result};

/// A device of this thread's network namespace.
#[derive(Clone, Debug)]
pub struct Device {
    pub name: String,
    pub index: u32,
    /// Bytes of link-layer header in front of IP, 14 or 0.
    pub l2_len: u32,
}

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

impl Device {
    pub fn find(name: &str) -> Result<Self> {
        let unknown = || {
            Error::new(
                name,
                "no such network device here",
                "list the devices with `ip link`",
            )
        };
        let c_name = CString::new(name).map_err(|_| unknown())?;
        // SAFETY: the argument is a C string.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if index == 0 {
            return Err(unknown());
        }
        let l2_len = match hardware_type(&c_name)? {
            ARPHRD_ETHER | ARPHRD_LOOPBACK => 14,
            _ => 0,
        };
        Ok(Self {
            name: name.to_owned(),
            index,
            l2_len,
        })
    }
}

/// The ARPHRD_ value of a device. It is read by ioctl, because /sys shows the devices of the
/// namespace in which it was mounted.
fn hardware_type(name: &CStr) -> Result<u16> {
    // SAFETY: a zeroed ifreq is valid; the name fits, because if_nametoindex
    // accepted it; the socket is closed on every path.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.to_bytes()) {
            *to = *from as libc::c_char;
        }
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(Error::last_os("socket"));
        }
        let rc = libc::ioctl(socket, libc::SIOCGIFHWADDR as _, &mut request);
        let error = Error::last_os(name.to_string_lossy());
        libc::close(socket);
        if rc != 0 {
            return Err(error);
        }
        Ok(request.ifr_ifru.ifru_hwaddr.sa_family)
    }
}

/// The name of the device with this index, if it still exists.
pub fn name_of(index: u32) -> Option<String> {
    let mut name = [0 as libc::c_char; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that the call requires.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the call has put a C string there.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Some(name.to_string_lossy().into_owned())
}

/// What configuration and warnings need to know about a device of a network namespace.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    pub index: u32,
    pub name: String,
    /// The alternative names (`ip link property add dev DEV altname NAME`).
    pub alternative_names: Vec<String>,
    pub is_bridge: bool,
    /// An XDP program is attached.
    pub has_xdp: bool,
}

impl DeviceInfo {
    fn of(message: &LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            alternative_names: Vec::new(),
            is_bridge: false,
            has_xdp: false,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::PropList(properties) => {
                    let names = properties.iter().filter_map(|property| match property {
                        Prop::AltIfName(name) => Some(name.clone()),
                        _ => None,
                    });
                    link.alternative_names.extend(names);
                }
                LinkAttribute::LinkInfo(info) => {
                    link.is_bridge = info.contains(&LinkInfo::Kind(InfoKind::Bridge));
                }
                LinkAttribute::Xdp(xdp) => {
                    link.has_xdp = xdp.iter().any(
                        |a| matches!(a, LinkXdp::Attached(mode) if *mode != XdpAttached::None),
                    );
                }
                _ => {}
            }
        }
        link
    }
}

/// All devices of this thread's network namespace.
pub fn links() -> Result<Vec<DeviceInfo>> {
    let all = request(
        RouteNetlinkMessage::GetLink(LinkMessage::default()),
        NLM_F_DUMP,
    )?;
    let link = |message| match message {
        RouteNetlinkMessage::NewLink(link) => Some(DeviceInfo::of(&link)),
        _ => None,
    };
    Ok(all.into_iter().filter_map(link).collect())
}

/// How packets to an address leave this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    pub device: Option<String>,
    /// The congestion control that the route sets (`ip route ... congctl`).
    pub control: Option<String>,
}

/// The route to an address.
///
/// # Errors
/// There is no route.
pub fn route_to(address: IpAddr) -> Result<Route> {
    let mut message = RouteMessage::default();
    let (family, bits, to) = match address {
        IpAddr::V4(v4) => (AddressFamily::Inet, 32, RouteAddress::Inet(v4)),
        IpAddr::V6(v6) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(v6)),
    };
    message.header.address_family = family;
    message.header.destination_prefix_length = bits;
    message.attributes.push(RouteAttribute::Destination(to));
    let answer = request(RouteNetlinkMessage::GetRoute(message), 0)?;
    let mut route = Route::default();
    let attributes = answer.into_iter().flat_map(|m| match m {
        RouteNetlinkMessage::NewRoute(route) => route.attributes,
        _ => Vec::new(),
    });
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.device = name_of(index),
            RouteAttribute::Metrics(metrics) => {
                route.control = metrics.into_iter().find_map(|metric| match metric {
                    RouteMetric::CcAlgo(name) => Some(name),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Ok(route)
}

/// The maximum number of segments in a GSO packet for a device.
pub fn gso_max_segs(index: u32) -> Result<u32> {
    link_attribute(index, "gso_max_segs", |a| match a {
        LinkAttribute::GsoMaxSegs(n) => Some(*n),
        _ => None,
    })
}

fn link_attribute(
    index: u32,
    name: &str,
    wanted: impl Fn(&LinkAttribute) -> Option<u32>,
) -> Result<u32> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    let answer = request(RouteNetlinkMessage::GetLink(message), 0)?;
    answer
        .iter()
        .find_map(|m| match m {
            RouteNetlinkMessage::NewLink(link) => link.attributes.iter().find_map(&wanted),
            _ => None,
        })
        .ok_or_else(|| {
            Error::new(
                "netlink",
                format!("the kernel did not report {name}"),
                SEE_DOCTOR,
            )
        })
}

/// Sets the maximum number of segments in a GSO packet for a device.
pub fn set_gso_max_segs(index: u32, segments: u32) -> Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::GsoMaxSegs(segments));
    request(RouteNetlinkMessage::SetLink(message), NLM_F_ACK).map(|_| ())
}

fn tc_message(index: u32, parent: TcHandle) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = index as i32;
    message.header.parent = parent;
    message
}

/// The root queue discipline of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    pub kind: String,
    /// It was configured; the kernel's default queue disciplines have no handle.
    pub chosen: bool,
    /// The major number of its handle.
    pub major: u16,
    /// Packets that it dropped.
    pub drops: u32,
}

/// The counters of a device's root queue discipline.
#[derive(Clone, Copy, Debug, Default)]
pub struct RootQueue {
    pub backlog_B: u32,
    pub dropped_packets: u32,
}

impl RootQueue {
    fn of(qdisc: &TcMessage) -> Self {
        let counters = qdisc.attributes.iter().find_map(|a| match a {
            TcAttribute::Stats(stats) => Some(Self {
                backlog_B: stats.backlog,
                dropped_packets: stats.drops,
            }),
            _ => None,
        });
        counters.unwrap_or_default()
    }
}

/// The counters of all root queue disciplines, by device index.
pub fn root_queues() -> Result<BTreeMap<u32, RootQueue>> {
    let all = request(
        RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()),
        NLM_F_DUMP,
    )?;
    let root = |message| match message {
        RouteNetlinkMessage::NewQueueDiscipline(q) if q.header.parent == TcHandle::ROOT => {
            Some((q.header.index as u32, RootQueue::of(&q)))
        }
        _ => None,
    };
    Ok(all.into_iter().filter_map(root).collect())
}

/// The root queue discipline of a device, if it has one.
pub fn root_qdisc(index: u32) -> Option<Qdisc> {
    let ask = RouteNetlinkMessage::GetQueueDiscipline(tc_message(index, TcHandle::ROOT));
    let answer = request(ask, NLM_F_ECHO | NLM_F_ACK).ok()?;
    answer.into_iter().find_map(|m| match m {
        RouteNetlinkMessage::NewQueueDiscipline(qdisc) => {
            let major = qdisc.header.handle.major;
            let chosen = major != 0;
            let drops = RootQueue::of(&qdisc).dropped_packets;
            qdisc.attributes.into_iter().find_map(|a| match a {
                TcAttribute::Kind(kind) => Some(Qdisc {
                    kind,
                    chosen,
                    major,
                    drops,
                }),
                _ => None,
            })
        }
        _ => None,
    })
}

/// Fails if the root queue discipline was configured and is not of the kind `ours`. `leave`
/// says with or without which option the router keeps it.
pub fn refuse_configured_qdisc(device: &Device, ours: Option<&str>, leave: &str) -> Result<()> {
    let name = &device.name;
    match root_qdisc(device.index) {
        Some(root) if root.chosen && Some(root.kind.as_str()) != ours => Err(Error::new(
            name,
            format!(
                "has the root queue discipline {}, which xcp did not set",
                root.kind
            ),
            format!(
                "remove it (tc qdisc del dev {name} root), or keep it and add the router {leave}"
            ),
        )),
        _ => Ok(()),
    }
}

/// Replaces the root queue discipline with one of this kind, without options.
pub fn replace_root_qdisc(index: u32, kind: &str) -> Result<()> {
    let mut message = tc_message(index, TcHandle::ROOT);
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    request(
        RouteNetlinkMessage::NewQueueDiscipline(message),
        NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK,
    )
    .map(|_| ())
}

/// A queue discipline to add or change, with its options.
pub struct Setting<'a> {
    pub kind: &'a str,
    /// The major number of its handle; 0 lets the kernel choose.
    pub major: u16,
    /// The parent class, as major and minor number; None for the root.
    pub parent: Option<(u16, u16)>,
    /// The attribute TCA_OPTIONS.
    pub options: Vec<u8>,
}

/// One netlink attribute, padded.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Replaces the present queue discipline, or changes its options.
pub fn set_qdisc(index: u32, setting: Setting<'_>, change: bool) -> Result<()> {
    const TCA_OPTIONS: u16 = 2;
    let parent = setting
        .parent
        .map_or(TcHandle::ROOT, |(major, minor)| TcHandle { major, minor });
    let mut message = tc_message(index, parent);
    message.header.handle.major = setting.major;
    message
        .attributes
        .push(TcAttribute::Kind(setting.kind.to_owned()));
    let options = DefaultNla::new(TCA_OPTIONS, setting.options);
    message.attributes.push(TcAttribute::Other(options));
    let flags = if change {
        NLM_F_REPLACE
    } else {
        NLM_F_CREATE | NLM_F_REPLACE
    };
    let message = RouteNetlinkMessage::NewQueueDiscipline(message);
    request(message, flags | NLM_F_ACK).map(|_| ())
}

/// The MTU of a device, bytes without the link-layer header.
pub fn mtu(index: u32) -> Result<u32> {
    link_attribute(index, "the MTU", |a| match a {
        LinkAttribute::Mtu(bytes) => Some(*bytes),
        _ => None,
    })
}

/// Deletes the root queue discipline; the kernel restores its default.
pub fn delete_root_qdisc(index: u32) -> Result<()> {
    let message = tc_message(index, TcHandle::ROOT);
    request(RouteNetlinkMessage::DelQueueDiscipline(message), NLM_F_ACK).map(|_| ())
}

const SEE_DOCTOR: &str = "see `xcp doctor`";

/// Sends a request to the kernel, and returns its answers: those in one datagram, or all
/// messages of a dump.
pub(crate) fn request(
    message: RouteNetlinkMessage,
    flags: u16,
) -> Result<Vec<RouteNetlinkMessage>> {
    exchange(message, flags).map_err(|e| Error::io("netlink", &e))
}

/// Adds a route or rule, unless there is the same one. Returns whether it was missing.
pub(crate) fn add_missing(message: RouteNetlinkMessage) -> Result<bool> {
    match exchange(message, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        added => added.map(|_| true).map_err(|e| Error::io("netlink", &e)),
    }
}

fn exchange(message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut packet = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    packet.header.flags = NLM_F_REQUEST | flags;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let mut found = Vec::new();
    let mut complete = flags & NLM_F_DUMP != NLM_F_DUMP;
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = answer.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(io::Error::other)?;
            match message.payload {
                NetlinkPayload::Error(e) if e.code.is_some() => {
                    return Err(e.to_io());
                }
                NetlinkPayload::InnerMessage(inner) => found.push(inner),
                NetlinkPayload::Done(_) => complete = true,
                _ => {}
            }
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
        }
        if complete {
            return Ok(found);
        }
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The records in intf.rs lie in memory as the BPF programs' do (BTF), and
//! enums and constants have the values that the C headers give them.

use std::collections::BTreeMap;
use std::mem::size_of;

use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::Btf;
use libbpf_rs::HasSize;
use xcp_datapath::{intf, Cure, Fallback, Term, Wire};

const ROUTER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/router.bpf.o"));
const MEDIUM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/medium.bpf.o"));
const CLOUD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cloud.bpf.o"));
const QDISC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/qdisc.bpf.o"));
const OPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/option.bpf.o"));
const SOCKET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/socket.bpf.o"));

fn find<'a>(btf: &'a Btf<'a>, name: &str) -> Struct<'a> {
    btf.type_by_name(name)
        .unwrap_or_else(|| panic!("no struct {name} in the BPF object"))
}

/// The fields of a struct by their offsets.
fn members(theirs: &Struct<'_>, name: &str) -> BTreeMap<usize, String> {
    theirs
        .iter()
        .map(|member| {
            let MemberAttr::Normal { offset } = member.attr else {
                panic!("{name}: a bit field");
            };
            assert_eq!(offset % 8, 0);
            let field = member.name.and_then(|n| n.to_str()).expect("a name");
            (offset as usize / 8, field.to_owned())
        })
        .collect()
}

fn compare(btf: &Btf<'_>, name: &str, layout: &[(&str, usize)], size: usize) {
    let ours: BTreeMap<usize, String> = layout
        .iter()
        .map(|(field, at)| (*at, (*field).to_owned()))
        .collect();
    let theirs = find(btf, name);
    assert_eq!(ours, members(&theirs, name), "fields of struct {name}");
    assert_eq!(size, theirs.size(), "size of struct {name}");
}

macro_rules! compare {
    ($image:ident: $($name:literal = $record:ident),* $(,)?) => {
        let btf = Btf::from_raw("object", $image).unwrap().expect("BTF");
        $(compare(&btf, $name, intf::$record::LAYOUT, size_of::<intf::$record>());)*
    };
}

#[test]
fn cloud_records() {
    compare!(CLOUD: "xcp_cloud" = Cloud, "xcp_crowd" = Crowd);
}

#[test]
fn router_records() {
    compare!(ROUTER:
        "xcp_num" = Num,
        "xcp_share" = Share,
        "xcp_router_params" = RouterParams,
        "xcp_frame" = Frame,
        "xcp_router_config" = RouterConfig,
        "xcp_router_sums" = RouterSums,
        "xcp_router_law" = RouterLaw,
        "xcp_router_pool" = RouterPool,
        "xcp_capacity" = Capacity,
        "xcp_capacity_interval" = CapacityInterval,
        "xcp_sampler" = Sampler,
        "xcp_sharing_interval" = SharingInterval,
        "xcp_sharing" = Sharing,
        "xcp_flows" = Flows,
        "xcp_router_state" = RouterState,
        "xcp_router_counters" = RouterCounters,
        "xcp_router_cpu" = RouterCpu,
        "xcp_router_link" = RouterLink,
        "xcp_router_record" = RouterRecord,
    );
}

#[test]
fn medium_records() {
    compare!(MEDIUM:
        "xcp_medium" = Medium,
    );
}

#[test]
fn queue_records() {
    compare!(QDISC:
        "xcp_queue_key" = QueueKey,
        "xcp_queue_config" = QueueConfig,
        "xcp_queue_class" = QueueClass,
        "xcp_queue" = Queue,
    );
}

#[test]
fn host_records() {
    compare!(OPTION:
        "xcp_host_config" = HostConfig,
        "xcp_host_counters" = HostCounters,
        "xcp_host_sums" = HostSums,
        "xcp_peer_key" = PeerKey,
        "xcp_sender" = Sender,
        "xcp_receiver" = Receiver,
        "xcp_cubic" = Cubic,
        "xcp_loss" = Loss,
    );
    let btf = Btf::from_raw("object", OPTION).unwrap().expect("BTF");
    let socket = members(&find(&btf, "xcp_socket"), "xcp_socket");
    for (field, at) in intf::SocketRecord::LAYOUT {
        assert_eq!(
            socket.get(at).map(String::as_str),
            Some(*field),
            "struct xcp_socket"
        );
    }
    compare!(SOCKET:
        "xcp_protocol_config" = ProtocolConfig,
    );
}

const HEADERS: [&str; 7] = [
    include_str!("../../../../bpf/host.h"),
    include_str!("../../../../bpf/intf.h"),
    include_str!("../../../../core/xcp_flows.h"),
    include_str!("../../../../core/xcp_loss.h"),
    include_str!("../../../../core/xcp_option_2005.h"),
    include_str!("../../../../core/xcp_packet.h"),
    include_str!("../../../../core/xcp_router.h"),
];

/// The members of an enum in the C headers, by their values.
fn enumerators(name: &str) -> Vec<(String, u32)> {
    let head = format!("enum {name} {{");
    let body = HEADERS.iter().find_map(|text| text.split_once(&head));
    let (_, body) = body.unwrap_or_else(|| panic!("no enum {name}"));
    let (body, _) = body.split_once("};").expect("the enum ends");
    let mut next = 0;
    let members = body.lines().filter_map(|line| line.trim().split_once(','));
    members
        .map(|(member, _)| {
            let (member, value) = member.split_once(" = ").unwrap_or((member, ""));
            let value = value.parse().unwrap_or(next);
            next = value + 1;
            (member.to_owned(), value)
        })
        .collect()
}

/// A constant of the C headers.
fn constant(name: &str) -> u32 {
    let head = format!("#define {name} ");
    let value = HEADERS.iter().find_map(|text| text.split_once(&head));
    let (_, value) = value.unwrap_or_else(|| panic!("no constant {name}"));
    let number = value.split_whitespace().next().expect("a value");
    number.parse().expect("a number")
}

/// Compares the members, named in C as in Rust with a prefix.
fn compare_enum(name: &str, prefix: &str, ours: &[(&str, u32)]) {
    let ours: Vec<(String, u32)> = ours
        .iter()
        .map(|(name, value)| {
            let name = name.replace('-', "_").to_uppercase();
            (format!("{prefix}_{name}"), *value)
        })
        .collect();
    let mut theirs = enumerators(name);
    theirs.retain(|(member, _)| !member.ends_with('S') || ours.iter().any(|o| o.0 == *member));
    assert_eq!(theirs, ours, "enum {name}");
}

#[test]
fn enums_have_the_values_of_the_c_headers() {
    let wires = Wire::ALL.map(|wire| (wire.name(), wire as u32));
    compare_enum("xcp_wire", "XCP_WIRE", &wires);
    let cures: Vec<_> = Cure::ALL.iter().map(|c| (c.name(), *c as u32)).collect();
    compare_enum("xcp_cure", "XCP_CURE", &cures);
    let terms: Vec<_> = Term::ALL.iter().map(|t| (t.name(), *t as u32)).collect();
    compare_enum("xcp_law_term", "XCP_LAW", &terms);
    let reasons = Fallback::ALL.map(|reason| (reason.name(), reason as u32));
    compare_enum("xcp_fallback", "XCP_FALLBACK", &reasons);
}

#[test]
fn constants_have_the_values_of_the_c_headers() {
    let ours = [
        ("XCP_HOPS_UNKNOWN", intf::HOPS_UNKNOWN),
        ("XCP_WIRE_SILENT", intf::WIRE_SILENT),
        ("CROWDED_SEGMENTS_MAX", intf::CROWDED_SEGMENTS_MAX),
        ("XCP_FLOW_BITS", intf::FLOW_BITS),
        ("XCP_2005_SHIFT", intf::PACKET_2005_BITS),
    ];
    for (name, value) in ours {
        assert_eq!(constant(name), u32::from(value), "{name}");
    }
    let states = enumerators("xcp_loss_state");
    assert_eq!(states[0], ("XCP_LOSS_TRUSTED".into(), 0));
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs wireshark/xcp.lua in tshark: it must show the golden packets as their JSON
//! files ("twins") describe them.

use std::fs;

use crate::tshark::{self, installed, Captured};
use crate::wire::{
    self,
    cases::{self, Case},
};
use serde_json::Value;

/// The lowest level of Wireshark's expert information that means an error.
const WARNING: u32 = 0x0060_0000;

/// The dissector's fields, and where the twin has them: the first place with a value counts.
const FIELDS: [(&str, &[&str]); 28] = [
    ("xcp.wire", &["/wire"]),
    ("xcp.totals", &["/totals"]),
    ("xcp.rtt_ticks", &["/forward/rtt_ticks"]),
    ("xcp.rtt_s", &["/forward/rtt_s"]),
    ("xcp.x_ticks", &["/forward/x_ticks"]),
    ("xcp.x_s", &["/forward/x_s"]),
    ("xcp.delta_Bps", &["/forward/delta_Bps"]),
    ("xcp.xcp_ttl", &["/forward/xcp_ttl"]),
    ("xcp.xcp_hops", &["/forward/xcp_hops"]),
    ("xcp.other_hops", &["/forward/other_hops"]),
    (
        "xcp.last_xcp_router",
        &["/forward/last_xcp_router", "/header/last_xcp_router"],
    ),
    ("xcp.last_xcp_router_ipv6", &["/header/last_xcp_router"]),
    ("xcp.feedback_Bps", &["/return/feedback_Bps"]),
    ("xcp.feedback_total", &["/return/feedback_total"]),
    ("xcp.seen_xcp_hops", &["/return/xcp_hops"]),
    ("xcp.seen_other_hops", &["/return/other_hops"]),
    ("xcp.feedback_code", &["/option_2005/forward/feedback_code"]),
    (
        "xcp.feedback_packets",
        &["/option_2005/forward/feedback_packets"],
    ),
    (
        "xcp.rtt_ms",
        &["/option_2005/forward/rtt_ms", "/header/rtt_ms"],
    ),
    ("xcp.cwnd", &["/option_2005/forward/cwnd"]),
    (
        "xcp.return_feedback_code",
        &["/option_2005/return/feedback_code"],
    ),
    (
        "xcp.return_feedback_packets",
        &["/option_2005/return/feedback_packets"],
    ),
    ("xcp.header_version", &["/header/version"]),
    ("xcp.format", &["/header/format"]),
    ("xcp.header_length", &["/header/length"]),
    ("xcp.next_protocol", &["/header/next_protocol"]),
    ("xcp.throughput_B_per_ms", &["/header/throughput_B_per_ms"]),
    ("xcp.seen_xcp_ttl_mod_15", &["/header/xcp_ttl_mod_15"]),
];

fn dissect(packets: &[Captured], preferences: &[&str], fields: &[&str]) -> Vec<Vec<String>> {
    tshark::dissect("xcp.lua", packets, preferences, fields)
}

fn twin(case: &Case) -> Value {
    let twin = wire::folder().join(format!("{}.json", case.name));
    serde_json::from_str(&fs::read_to_string(twin).unwrap()).unwrap()
}

/// Returns the value in the twin as tshark prints it.
fn expected(twin: &Value, field: &str, places: &[&str]) -> String {
    let value = places
        .iter()
        .filter_map(|place| twin.pointer(place))
        .find(|value| !value.is_null());
    match value {
        None => String::new(),
        Some(Value::Number(n)) if field == "xcp.last_xcp_router" => {
            std::net::Ipv4Addr::from(n.as_u64().unwrap() as u32).to_string()
        }
        Some(Value::String(s)) if field.starts_with("xcp.last_xcp_router") => {
            let fits = s.contains(':') == field.ends_with("ipv6");
            if fits {
                s.clone()
            } else {
                String::new()
            }
        }
        Some(Value::String(s)) => s.clone(),
        Some(other) => other.to_string(),
    }
}

fn same(got: &str, want: &str) -> bool {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok().map(f64::from),
        // newer versions of tshark write True, older ones 1
        None if text.eq_ignore_ascii_case("true") => Some(1.0),
        None => text.parse().ok(),
    };
    match (number(got), number(want)) {
        (Some(got), Some(want)) => (got - want).abs() <= 1e-6 * want.abs(),
        _ => got == want,
    }
}

fn goldens() -> Vec<Captured> {
    let bytes = cases::all().iter().map(Case::bytes).collect::<Vec<_>>();
    bytes.into_iter().map(Captured::whole).collect()
}

#[test]
fn dissector_fields_match_the_json_files() {
    if !installed() {
        return;
    }
    let mut fields = vec!["xcp.kind", "_ws.expert.severity"];
    fields.extend(FIELDS.iter().map(|f| f.0));
    let seen = dissect(&goldens(), &["tcp.check_checksum:FALSE"], &fields);
    for (case, seen) in cases::all().iter().zip(seen) {
        let twin = twin(case);
        let (kind, severity) = (&seen[0], &seen[1]);
        if twin["malformed"] == true {
            // our dissector checks the XCP header, Wireshark the headers around it
            let ours = ["option-", "return-", "both-", "header-"];
            if ours.iter().any(|prefix| case.name.starts_with(prefix)) {
                assert_eq!(kind, "malformed", "{}: {seen:?}", case.name);
            }
            let levels = severity.split(',').filter_map(|s| s.parse().ok());
            let worst: u32 = levels.max().unwrap_or(0);
            assert!(worst >= WARNING, "{}: {seen:?}", case.name);
            continue;
        }
        let want = twin["kind"].as_str().filter(|k| *k != "none").unwrap_or("");
        assert_eq!(kind, want, "{}: {seen:?}", case.name);
        for ((field, places), got) in FIELDS.iter().zip(&seen[2..]) {
            let want = expected(&twin, field, places);
            assert!(
                same(got, &want),
                "{}, {field}: {got}, not {want}",
                case.name
            );
        }
    }
}

/// The forward and the return header of an option have separate versions.
#[test]
fn each_header_of_an_option_shows_its_version() {
    if !installed() {
        return;
    }
    let expected = [
        ("syn-totals", ["", ""]),
        ("forward", ["1", ""]),
        ("return", ["", "1"]),
        ("return-total", ["", "2"]),
        ("both", ["1", "1"]),
        ("both-total", ["1", "2"]),
    ];
    let packets = expected.map(|(name, _)| Captured::whole(cases::named(name).bytes()));
    let seen = dissect(&packets, &[], &["xcp.version", "xcp.return_version"]);
    for ((name, versions), seen) in expected.iter().zip(seen) {
        assert_eq!(seen, versions, "{name}");
    }
}

/// Wireshark dissects TCP behind an XCP header as usual and accepts its checksum.
#[test]
fn tcp_checksum_status_matches_the_json_files() {
    if !installed() {
        return;
    }
    let fields = ["tcp.checksum.status", "tcp.srcport"];
    let seen = dissect(&goldens(), &["tcp.check_checksum:TRUE"], &fields);
    let mut behind_headers = 0;
    for (case, seen) in cases::all().iter().zip(seen) {
        let twin = twin(case);
        let status = match twin["checksum_valid"].as_bool() {
            Some(_) if twin["malformed"] == true => continue,
            Some(true) => "1",
            Some(false) => "0",
            None => continue,
        };
        assert_eq!(seen, [status, "40000"], "{}", case.name);
        behind_headers += u32::from(twin["header"].is_object());
    }
    assert!(behind_headers > 20);
}

/// The preference sets the IP protocol number, as in `-o xcp.ip_proto:200`.
#[test]
fn preference_selects_the_ip_protocol_number() {
    if !installed() {
        return;
    }
    let packets = ["none-protocol-200", "header-standard", "both"]
        .map(|name| Captured::whole(cases::named(name).bytes()));
    let kinds = |preferences: &[&str]| dissect(&packets, preferences, &["xcp.kind"]).concat();
    assert_eq!(kinds(&["xcp.ip_proto:200"]), ["both", "", "both"]);
    assert_eq!(kinds(&[]), ["", "both", "both"]);
}

/// Tests packets cut on the wire, packets cut by the capture, and IPv4 packets with a short
/// total length.
#[test]
fn cut_packets_cause_no_script_error() {
    if !installed() {
        return;
    }
    let mut packets = vec![];
    for name in [
        "both",
        "both-total",
        "syn-totals",
        "2005-both",
        "2005-return-sack",
        "header-standard",
        "header-last-router-ipv6",
        "header-2004-standard",
        "header-2004-last-router",
        "header-minimal-ipv6",
    ] {
        let whole = cases::named(name).bytes();
        for kept in 34..whole.len().min(120) {
            let bytes = whole[..kept].to_vec();
            packets.push(Captured {
                bytes: bytes.clone(),
                length: whole.len(),
            });
            let mut short = bytes.clone();
            short[16..18].copy_from_slice(&(kept as u16 - 14).to_be_bytes());
            packets.push(Captured::whole(bytes));
            packets.push(Captured::whole(short));
        }
    }
    let seen = dissect(&packets, &[], &["xcp.kind"]);
    for (packet, seen) in packets.iter().zip(seen) {
        // a packet that was cut by the capture may have been correct
        let cut = packet.bytes.len() < packet.length;
        assert!(!cut || seen[0] != "malformed", "{:02x?}", packet.bytes);
    }
}

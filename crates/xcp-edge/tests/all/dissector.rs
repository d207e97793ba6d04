// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs wireshark/xcp-edge.lua in tshark: it must show the golden packets as their JSON
//! files ("twins") describe them.

use std::fs;

use serde_json::Value;

use crate::cases;
use crate::tshark::{self, installed, Captured};

const MALFORMED: &str = "Malformed XCP-i message";
const FIELDS: [&str; 26] = [
    "version",
    "kind",
    "length",
    "stream",
    "sequence",
    "asker",
    "answerer",
    "cookie",
    "interval_us",
    "size_B",
    "train_packets",
    "train_size_B",
    "lowest_Bps",
    "highest_Bps",
    "estimate_Bps",
    "status",
    "sent_ns",
    "number",
    "train",
    "xcp_B",
    "probes",
    "corrections",
    "behind",
    "offset_ns",
    "role",
    "tag",
];

/// Returns for each packet: error messages, whether it is XCP-i, and the fields.
fn dissect(packets: &[Captured]) -> Vec<Vec<String>> {
    let fields = FIELDS.map(|field| format!("xcpi.{field}"));
    let mut all = vec!["_ws.expert.message", "xcpi"];
    all.extend(fields.iter().map(String::as_str));
    tshark::dissect("xcp-edge.lua", packets, &["udp.check_checksum:TRUE"], &all)
}

/// Returns a value of a twin as tshark prints it.
fn written(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(written).collect::<Vec<_>>().join(","),
        number => number.to_string(),
    }
}

#[test]
fn dissector_fields_match_the_json_files() {
    if !installed() {
        return;
    }
    let cases = cases::all();
    let packets: Vec<_> = cases.iter().map(|c| Captured::whole(c.frame())).collect();
    for (case, seen) in cases.iter().zip(dissect(&packets)) {
        let twin = cases::folder().join(format!("{}.json", case.name));
        let twin: Value = serde_json::from_str(&fs::read_to_string(twin).unwrap()).unwrap();
        assert!(!seen[1].is_empty(), "{}: {seen:?}", case.name);
        if twin["error"] == "Tag" {
            assert_eq!((&*seen[0], &*seen[3]), ("", "3"), "tags are not verified");
            continue;
        }
        let complaint = if twin["error"].is_null() {
            ""
        } else {
            MALFORMED
        };
        assert_eq!(seen[0], complaint, "{}: {seen:?}", case.name);
        for (field, seen) in FIELDS.iter().zip(&seen[2..]) {
            let expected = written(&twin["fields"][field]);
            assert_eq!(*seen, expected, "{}, {field}", case.name);
        }
    }
}

/// A packet that was cut by the capture may have been correct, so it is not malformed.
#[test]
fn cut_packets_cause_no_script_error() {
    if !installed() {
        return;
    }
    let mut packets = Vec::new();
    for case in cases::all() {
        let frame = case.frame();
        let front = frame.len() - case.bytes.len();
        for kept in (front + 4..frame.len().min(front + 130)).step_by(3) {
            packets.push(Captured {
                bytes: frame[..kept].to_vec(),
                length: frame.len(),
            });
        }
    }
    for (packet, seen) in packets.iter().zip(dissect(&packets)) {
        assert!(!seen[0].contains(MALFORMED), "{:02x?}", packet.bytes);
        assert!(!seen[1].is_empty(), "{:02x?}", packet.bytes);
    }
}

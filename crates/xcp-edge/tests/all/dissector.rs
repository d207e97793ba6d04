// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! wireshark/xcp-edge.lua, in tshark, sees in the golden packets what their
//! twins say.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::cases;

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

/// A capture file: Ethernet, one packet a second. Of each packet this many
/// bytes are kept.
fn pcap(packets: &[(Vec<u8>, usize)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0x0004_0000, 1] {
        file.extend(word.to_le_bytes());
    }
    for (second, (packet, kept)) in packets.iter().enumerate() {
        for word in [second as u32, 0, *kept as u32, packet.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&packet[..*kept]);
    }
    file
}

/// What tshark says of each packet: its complaints, whether it is XCP-i, and
/// the fields; None without tshark.
fn dissect(packets: &[(Vec<u8>, usize)]) -> Option<Vec<Vec<String>>> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("golden.pcap");
    fs::write(&file, pcap(packets)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wireshark/xcp-edge.lua");
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .args(["-T", "fields", "-E", "separator=/t", "-r"])
        .arg(&file)
        .args(["-o", "udp.check_checksum:TRUE"])
        .args(["-e", "_ws.expert.message", "-e", "xcpi"])
        .env("HOME", dir.path());
    for field in FIELDS {
        tshark.arg("-e").arg(format!("xcpi.{field}"));
    }
    let Ok(out) = tshark.output() else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED dissector: tshark is not installed"
        );
        return None;
    };
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !errors.contains("Lua"), "{errors}");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!text.contains("Lua"), "{text}");
    let lines = text
        .lines()
        .map(|line| line.split('\t').map(String::from).collect());
    let lines: Vec<Vec<String>> = lines.collect();
    assert_eq!(lines.len(), packets.len());
    Some(lines)
}

/// A value of a twin, as tshark writes it.
fn written(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(written).collect::<Vec<_>>().join(","),
        number => number.to_string(),
    }
}

#[test]
fn fields_are_those_of_the_twins() {
    let cases = cases::all();
    let whole = |frame: Vec<u8>| (frame.clone(), frame.len());
    let packets: Vec<_> = cases.iter().map(|case| whole(case.frame())).collect();
    for (case, seen) in cases.iter().zip(dissect(&packets).unwrap_or_default()) {
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

/// What a capture has cut may have been right.
#[test]
fn cut_packets_never_stop_the_script() {
    let mut packets = Vec::new();
    for case in cases::all() {
        let frame = case.frame();
        let front = frame.len() - case.bytes.len();
        for kept in (front + 4..frame.len().min(front + 130)).step_by(3) {
            packets.push((frame.clone(), kept));
        }
    }
    for ((packet, kept), seen) in packets.iter().zip(dissect(&packets).unwrap_or_default()) {
        assert!(!seen[0].contains(MALFORMED), "{kept}: {packet:02x?}");
        assert!(!seen[1].is_empty(), "{kept}: {packet:02x?}");
    }
}

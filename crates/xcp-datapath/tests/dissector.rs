// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! wireshark/xcp.lua, in tshark, sees in the golden packets what their JSON
//! twins say.

mod wire;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use wire::cases::{self, Case};
use xcp_datapath::testing;

const TEST: &str = "dissector";

/// Wireshark's level of expert information from which on something is wrong.
const WARNING: u32 = 0x0060_0000;

/// A field of the dissector, and where the twin has it.
const FIELDS: [(&str, &[&str]); 12] = [
    ("xcp.rtt_ticks", &["forward", "rtt_ticks"]),
    ("xcp.rtt_s", &["forward", "rtt_s"]),
    ("xcp.x_ticks", &["forward", "x_ticks"]),
    ("xcp.x_s", &["forward", "x_s"]),
    ("xcp.delta_Bps", &["forward", "delta_Bps"]),
    ("xcp.xcp_ttl", &["forward", "xcp_ttl"]),
    ("xcp.xcp_hops", &["forward", "xcp_hops"]),
    ("xcp.other_hops", &["forward", "other_hops"]),
    ("xcp.last_xcp_router", &["forward", "last_xcp_router"]),
    ("xcp.feedback_Bps", &["return", "feedback_Bps"]),
    ("xcp.seen_xcp_hops", &["return", "xcp_hops"]),
    ("xcp.seen_other_hops", &["return", "other_hops"]),
];

/// A capture file: Ethernet, one packet a second.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0x0004_0000, 1] {
        file.extend(word.to_le_bytes());
    }
    for (second, frame) in frames.iter().enumerate() {
        let length = frame.len() as u32;
        for word in [second as u32, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// What tshark says of each frame: kind, whether anything is wrong, and
/// [`FIELDS`].
fn dissect(frames: &[Vec<u8>]) -> Vec<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("golden.pcap");
    fs::write(&file, pcap(frames)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wireshark/xcp.lua");
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .args(["-o", "tcp.check_checksum:FALSE", "-T", "fields"])
        .args(["-E", "separator=/t", "-r"])
        .arg(&file)
        .args(["-e", "xcp.kind", "-e", "_ws.expert.severity"]);
    for (field, _) in FIELDS {
        tshark.args(["-e", field]);
    }
    let out = tshark.env("HOME", dir.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{errors}");
    assert!(!errors.contains("Lua"), "{errors}");
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines()
        .map(|line| line.split('\t').map(String::from).collect())
        .collect()
}

fn installed() -> bool {
    let found = Command::new("tshark")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        testing::skipped(TEST, "tshark is not installed");
    }
    found
}

/// What the twin says, as tshark writes it.
fn expected(twin: &Value, path: &[&str]) -> String {
    let value = path.iter().fold(twin, |at, key| &at[key]);
    match value {
        Value::Null => String::new(),
        Value::Number(n) if path[1] == "last_xcp_router" => {
            std::net::Ipv4Addr::from(n.as_u64().unwrap() as u32).to_string()
        }
        other => other.to_string(),
    }
}

fn same(got: &str, want: &str) -> bool {
    match (got.parse::<f64>(), want.parse::<f64>()) {
        (Ok(got), Ok(want)) => (got - want).abs() <= 1e-6 * want.abs(),
        _ => got == want,
    }
}

#[test]
fn fields_are_those_of_the_twins() {
    if !installed() {
        return;
    }
    let all = cases::all();
    let frames: Vec<Vec<u8>> = all.iter().map(Case::bytes).collect();
    let seen = dissect(&frames);
    assert_eq!(seen.len(), all.len());
    for (case, seen) in all.iter().zip(seen) {
        let twin = wire::folder().join(format!("{}.json", case.name));
        let twin: Value = serde_json::from_str(&fs::read_to_string(twin).unwrap()).unwrap();
        let (kind, severity) = (&seen[0], &seen[1]);
        if twin["malformed"] == true {
            // the option is ours to judge, the headers around it are Wireshark's
            if case.name.starts_with("option-") {
                assert_eq!(kind, "malformed", "{}: {seen:?}", case.name);
            }
            let levels = severity.split(',').filter_map(|s| s.parse().ok());
            let worst: u32 = levels.max().unwrap_or(0);
            assert!(worst >= WARNING, "{}: {seen:?}", case.name);
            continue;
        }
        let want = twin["kind"].as_str().filter(|k| *k != "none").unwrap_or("");
        assert_eq!(kind, want, "{}: {seen:?}", case.name);
        for ((field, path), got) in FIELDS.iter().zip(&seen[2..]) {
            let want = expected(&twin, path);
            assert!(
                same(got, &want),
                "{}, {field}: {got}, not {want}",
                case.name
            );
        }
    }
}

#[test]
fn a_cut_option_never_stops_the_script() {
    if !installed() {
        return;
    }
    // a TCP header that ends within the option: its length says less
    let whole = cases::named("both").bytes();
    let frames: Vec<Vec<u8>> = (54..whole.len().min(110))
        .map(|length| whole[..length].to_vec())
        .collect();
    assert_eq!(dissect(&frames).len(), frames.len());
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs tshark on packets, for the tests of the dissectors, which include this
//! file by its path.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A packet of a capture.
pub struct Captured {
    pub bytes: Vec<u8>,
    /// Its length before the capture cut it.
    pub length: usize,
}

impl Captured {
    pub fn whole(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        Captured { bytes, length }
    }
}

/// Whether tshark is installed; if not, reports that the test is skipped.
pub fn installed() -> bool {
    let found = Command::new("tshark")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        // not with eprintln!, whose output the test runner captures
        let why = "SKIPPED dissector: tshark is not installed";
        let _ = writeln!(std::io::stderr(), "{why}");
    }
    found
}

/// A capture file: Ethernet, one packet a second.
fn pcap(packets: &[Captured]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0x0004_0000, 1] {
        file.extend(word.to_le_bytes());
    }
    for (second, packet) in packets.iter().enumerate() {
        let (kept, length) = (packet.bytes.len() as u32, packet.length as u32);
        for word in [second as u32, 0, kept, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&packet.bytes);
    }
    file
}

/// Returns these fields of each packet as tshark prints them, with a script of
/// this folder and these preferences. Fails on an error in the Lua script.
pub fn dissect(
    script: &str,
    packets: &[Captured],
    preferences: &[&str],
    fields: &[&str],
) -> Vec<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("golden.pcap");
    fs::write(&file, pcap(packets)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../wireshark")
        .join(script);
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .args(["-T", "fields", "-E", "separator=/t", "-r"])
        .arg(&file)
        .args(["-e", "_ws.expert.message"]);
    for preference in preferences {
        tshark.args(["-o", preference]);
    }
    for field in fields {
        tshark.args(["-e", field]);
    }
    let out = tshark.env("HOME", dir.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !errors.contains("Lua"), "{errors}");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!text.contains("Lua"), "{text}");
    let lines = text.lines().map(|line| {
        let cells = line.split('\t').map(String::from);
        cells.skip(1).collect() // without _ws.expert.message
    });
    let seen: Vec<Vec<String>> = lines.collect();
    assert_eq!(seen.len(), packets.len());
    seen
}

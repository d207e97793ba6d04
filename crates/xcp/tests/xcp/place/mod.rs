// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A folder for one test of `xcp lab`, and checks of its captures with tshark.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use xcp_testbed::skipped;

use crate::command::{Ran, XCP};

/// An experiment: two flows over 10 Mb/s and an RTT of 100 ms, for 10 s. Tests
/// change it and append to it.
pub const SHORT: &str = r#"
name = "short"
source = "a test"
about = "two flows"
duration_s = 10
warmup_s = 4
bottleneck = ["r", "d"]

[[link]]
between = ["s", "r"]
rate_mbit = 100
delay_ms = 50

[[link]]
between = ["r", "d"]
rate_mbit = 10
queue_packets = 100

[[flow]]
name = "1"
from = "s"
to = "d"

[[flow]]
name = "2"
from = "s"
to = "d"

[[variant]]
name = "xcp"
control = "xcp"
queue = "xcp"
"#;

/// The same experiment, for 2 s.
pub fn two_second_run() -> String {
    SHORT.replace("10\nwarmup_s = 4", "2\nwarmup_s = 1")
}

/// Converts a JSON value of a result to a number.
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// A folder for one test; its lab writes nowhere else.
pub struct Lab {
    pub dir: TempDir,
}

impl Lab {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(XCP);
        command
            .args(["lab", "run"])
            .args(args)
            .arg("--out")
            .arg(self.path("out"))
            .env("TMPDIR", self.path("tmp"));
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        let ran = Ran::of(&mut self.command(args));
        let left_over = self.temporary_files();
        assert_eq!(left_over, Vec::<PathBuf>::new(), "temporary files remain");
        ran
    }

    /// The temporary files that still exist.
    pub fn temporary_files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("tmp")).unwrap();
        entries.map(|e| e.unwrap().path()).collect()
    }

    /// A file of the last run's report.
    pub fn report(&self, name: &str) -> String {
        fs::read_to_string(self.path("out").join(name)).unwrap()
    }
}

pub fn has_tshark(test: &str) -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok();
    if !found {
        skipped(test, "tshark is not installed");
    }
    found
}

/// Counts the data packets of a capture with tshark. Fails unless all packets
/// are well-formed, all checksums are right, and all data packets have an XCP
/// header.
pub fn count_data_packets(lab: &Lab, file: &str) -> usize {
    let (data, all) = count_packets(lab, file);
    assert!(all > 100, "{file}");
    data
}

/// Like `count_data_packets`, but also returns the number of all packets.
pub fn count_packets(lab: &Lab, file: &str) -> (usize, usize) {
    let whole = lab.path("whole.pcap");
    let cut = fs::read(lab.path("out").join(file)).unwrap();
    fs::write(&whole, restore_packet_lengths(&cut)).unwrap();
    let [malformed, bad_checksums, without_xcp, data, all] = counts(
        lab,
        &whole,
        [
            "_ws.malformed || xcp.malformed",
            // 0 is bad, 1 is good, 2 is unverified
            "tcp && !(tcp.checksum.status == 1)",
            "tcp.len > 0 && !xcp.delta_Bps",
            "xcp.delta_Bps",
            "frame",
        ],
    );
    assert_eq!((malformed, bad_checksums, without_xcp), (0, 0, 0), "{file}");
    (data, all)
}

/// Counts the packets of a capture that match each tshark filter.
fn counts<const N: usize>(lab: &Lab, capture: &Path, filters: [&str; N]) -> [usize; N] {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wireshark/xcp.lua");
    let out = Command::new("tshark")
        .env("HOME", lab.dir.path())
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .args(["-o", "tcp.check_checksum:TRUE", "-q", "-z"])
        .arg(format!("io,stat,0,{}", filters.join(",")))
        .arg("-r")
        .arg(capture)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !errors.contains("Lua"), "{errors}");
    let table = String::from_utf8(out.stdout).unwrap();
    // | 0.0 <> 4.0 | frames | bytes | frames | bytes | ... |
    let row = table.lines().find(|line| line.contains("<>")).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    std::array::from_fn(|i| cells[2 + 2 * i].parse().expect(&table))
}

/// Extends truncated packets to their original length. The payload is zeroes,
/// since the lab sends nothing else.
fn restore_packet_lengths(pcap: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(pcap[at..at + 4].try_into().unwrap());
    assert_eq!(word(0), 0xa1b2_3c4d);
    let mut whole = pcap[..24].to_vec();
    whole[16..20].copy_from_slice(&(1u32 << 18).to_le_bytes());
    let mut at = 24;
    while at < pcap.len() {
        let (kept, length) = (word(at + 8) as usize, word(at + 12) as usize);
        assert!(kept <= length && kept <= 256, "{kept} of {length} bytes");
        whole.extend(&pcap[at..at + 8]);
        whole.extend([&pcap[at + 12..at + 16]; 2].concat());
        whole.extend(&pcap[at + 16..at + 16 + kept]);
        whole.resize(whole.len() + length - kept, 0);
        at += 16 + kept;
    }
    whole
}

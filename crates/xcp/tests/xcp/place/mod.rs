// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A place for `xcp lab`: a folder of a test's own, and what tshark says of the
//! captures in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use xcp_testbed::skipped;

use crate::command::{Ran, XCP};

/// Two flows over 10 Mb/s and 100 ms, 10 s; what follows is up to the test.
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

/// The same, over in a moment.
pub fn brief() -> String {
    SHORT.replace("10\nwarmup_s = 4", "2\nwarmup_s = 1")
}

/// Of a result.
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// A folder of a test's own, which is all that its lab may use.
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
        assert_eq!(self.left(), Vec::<PathBuf>::new(), "temporary files");
        ran
    }

    /// Temporary files that are still there.
    pub fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("tmp")).unwrap();
        entries.map(|e| e.unwrap().path()).collect()
    }

    /// A file of the last run's report.
    pub fn report(&self, name: &str) -> String {
        fs::read_to_string(self.path("out").join(name)).unwrap()
    }
}

pub fn tshark_is_here(test: &str) -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok();
    if !found {
        skipped(test, "tshark is not installed");
    }
    found
}

/// Counts the data packets of a capture with tshark. Fails unless all packets
/// are well-formed, all checksums right, and all data packets have XCP's
/// header.
pub fn data_packets_of(lab: &Lab, file: &str) -> usize {
    let (data, all) = packets_of(lab, file);
    assert!(all > 100, "{file}");
    data
}

/// The same, and the number of all packets.
pub fn packets_of(lab: &Lab, file: &str) -> (usize, usize) {
    let whole = lab.path("whole.pcap");
    let cut = fs::read(lab.path("out").join(file)).unwrap();
    fs::write(&whole, as_sent(&cut)).unwrap();
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

/// How many packets of a capture each filter of tshark's passes.
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

/// A capture with its packets as long as they were: the lab sends zeroes.
fn as_sent(pcap: &[u8]) -> Vec<u8> {
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

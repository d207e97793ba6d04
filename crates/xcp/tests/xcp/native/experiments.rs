// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab run --native`: experiments on this host's kernel, which leave nothing
//! behind.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::command::{xcp_within, Ran, SystemState};
use crate::common::test_lock;
use crate::place::{count_packets, has_tshark, number, Lab, SHORT};
use xcp_testbed::{can_run, eventually, skipped};

/// Runs a test on this host's kernel, with a folder; it must leave nothing behind.
fn natively(test: &str, body: impl FnOnce(&str, &Lab)) {
    let _lock = test_lock();
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    body(test, &Lab::new());
    before.assert_nothing_left();
}

#[test]
fn an_experiment_file_runs_natively() {
    natively("native run", |test, lab| {
        let brief = direct(SHORT).replace("10\nwarmup_s = 4", "5\nwarmup_s = 0");
        let ran = lab.run(&[
            &lab.file("x.toml", &brief),
            "--native",
            "--json",
            "--pcap",
            "r-d",
        ]);
        if ran
            .err
            .contains("this kernel does not have the queue discipline")
        {
            return skipped(test, &ran.err);
        }
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let result = ran.json();
        assert_eq!(result["kernel"], release.trim());
        let xcp = &result["variants"][0];
        // the throughput depends on the machine, but is not 0
        assert!(number(&xcp["link_utilisation"]) > 0.0, "{xcp}");
        let flows = xcp["flows"].as_array().unwrap();
        assert_eq!(flows.len(), 2, "{xcp}");
        for flow in flows {
            assert_eq!(flow["control"], "xcp", "{xcp}");
            assert!(number(&flow["goodput_bps"]) > 0.0, "{xcp}");
        }
        let capture = &result["captures"][0];
        assert_eq!(capture["file"], "xcp-r-d.pcap");
        // packets that the capture missed are reported
        let told = ran.err.contains("xcp-r-d.pcap: ");
        assert_eq!(capture["missing"] != 0, told, "{capture} {ran:?}");
        assert!(number(&capture["packets"]) > 0.0, "{capture}");
        if has_tshark(test) {
            let (data, all) = count_packets(lab, "xcp-r-d.pcap");
            assert!(data > 0);
            assert_eq!(capture["packets"], all, "{capture}");
        }
        assert_eq!(spaces(), 0, "namespaces of the lab remain");
    });
}

#[test]
fn ctrl_c_ends_a_native_run_cleanly() {
    natively("native run and Ctrl-C", |test, lab| {
        // the run must not end by itself before the signal
        let long = direct(SHORT).replace("duration_s = 10", "duration_s = 600");
        let mut child = lab
            .command(&[&lab.file("x.toml", &long), "--native"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let Some(line) = said.next() else {
            panic!("the run printed nothing")
        };
        let line = line.unwrap();
        if line.contains("this kernel does not have the queue discipline") {
            child.wait().unwrap();
            return skipped(test, &line);
        }
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(spaces(), 0, "namespaces of the lab remain");
        assert!(!lab.path("out").exists());
    });
}

/// Real flows cross a cloud, and the virtual router of its edge grants deltas to them.
#[test]
fn a_cloud_works_in_a_native_run() {
    natively("native run with a cloud", |test, lab| {
        let mut child = lab
            .command(&[&lab.file("x.toml", CLOUD), "--native"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let edge = format!("xcp{}-r1", child.id());
        let granted = || {
            let shown = Ran::of(&mut xcp_within(&edge, "router show --json"));
            // the namespace appears soon, the cloud is known after some trains
            let all: Value = serde_json::from_str(&shown.out).unwrap_or_default();
            let cloud = &all["clouds"][0];
            let found = cloud["xcp_packets"].as_u64() > Some(1000);
            found.then(|| cloud.clone())
        };
        let mut found = None;
        let ended = |child: &mut Child| child.try_wait().unwrap().is_some();
        eventually(|| {
            found = granted();
            found.is_some() || ended(&mut child)
        });
        if ended(&mut child) {
            let mut said = String::new();
            let mut err = child.stderr.take().unwrap();
            err.read_to_string(&mut said).unwrap();
            assert!(
                said.contains("does not have the queue discipline"),
                "{said}"
            );
            return skipped(test, &said);
        }
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let cloud = found.expect("the virtual router handled no packets");
        assert_eq!(
            (&cloud["device"], &cloud["routers"]),
            (&"r1-n1".into(), &1.into())
        );
    });
}

/// One flow; the node n1 between the routers r0 and r1 does not use XCP.
const CLOUD: &str = r#"
name = "crossed"
source = "a test"
about = "a cloud without delays"
duration_s = 600
warmup_s = 0
bottleneck = ["n1", "r1"]
link = [
    { between = ["s", "r0"] },
    { between = ["r0", "n1"], rate_mbit = 40, queue_packets = 200 },
    { between = ["n1", "r1"], rate_mbit = 20, queue_packets = 200, router = false },
    { between = ["r1", "d"], rate_mbit = 40, queue_packets = 200 },
]
cloud = [{ between = ["r0", "r1"] }]
flow = [{ name = "1", from = "s", to = "d" }]
variant = [{ name = "xcp-i", control = "xcp", queue = "xcp", edges = true }]
"#;

/// The same experiment without an emulated delay, which would need netem.
fn direct(experiment: &str) -> String {
    experiment.replace("rate_mbit = 100\ndelay_ms = 50\n", "")
}

/// The number of network namespaces of labs.
fn spaces() -> usize {
    fs::read_dir("/run/netns").map_or(0, |all| {
        let names = all.map(|e| e.unwrap().file_name());
        names
            .filter(|n| n.to_string_lossy().starts_with("xcp"))
            .count()
    })
}

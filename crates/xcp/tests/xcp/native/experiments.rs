// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab run --native`: the same experiments on this host's kernel, which
//! leave nothing behind.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::command::{xcp_within, Ran, Traces};
use crate::common::test_lock;
use crate::place::{number, packets_of, tshark_is_here, Lab, SHORT};
use xcp_testbed::{can_run, eventually, skipped};

/// On this host's kernel, in a folder; nothing is left behind.
fn natively(test: &str, body: impl FnOnce(&str, &Lab)) {
    let _turn = test_lock();
    if !can_run(test) {
        return;
    }
    let Some(before) = Traces::before(test) else {
        return;
    };
    body(test, &Lab::new());
    before.gone();
}

#[test]
fn the_same_file_runs_natively() {
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
        // how much passes in the time is up to the machine, but some does
        assert!(number(&xcp["link_utilisation"]) > 0.0, "{xcp}");
        let flows = xcp["flows"].as_array().unwrap();
        assert_eq!(flows.len(), 2, "{xcp}");
        for flow in flows {
            assert_eq!(flow["control"], "xcp", "{xcp}");
            assert!(number(&flow["goodput_bps"]) > 0.0, "{xcp}");
        }
        let capture = &result["captures"][0];
        assert_eq!(capture["file"], "xcp-r-d.pcap");
        // packets that the capture missed are counted
        let told = ran.err.contains("xcp-r-d.pcap: ");
        assert_eq!(capture["missing"] != 0, told, "{capture} {ran:?}");
        assert!(number(&capture["packets"]) > 0.0, "{capture}");
        if tshark_is_here(test) {
            let (data, all) = packets_of(lab, "xcp-r-d.pcap");
            assert!(data > 0);
            assert_eq!(capture["packets"], all, "{capture}");
        }
        assert_eq!(spaces(), 0, "namespaces of the lab");
    });
}

#[test]
fn ctrl_c_ends_a_native_run_as_cleanly() {
    natively("native run and Ctrl-C", |test, lab| {
        // it does not end by itself before the signal
        let long = direct(SHORT).replace("duration_s = 10", "duration_s = 600");
        let mut child = lab
            .command(&[&lab.file("x.toml", &long), "--native"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let Some(line) = said.next() else {
            panic!("it says nothing")
        };
        let line = line.unwrap();
        if line.contains("this kernel does not have the queue discipline") {
            child.wait().unwrap();
            return skipped(test, &line);
        }
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(spaces(), 0, "namespaces of the lab");
        assert!(!lab.path("out").exists());
    });
}

/// Real flows through a cloud: its edge's virtual router grants to them.
#[test]
fn a_cloud_is_crossed_natively() {
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
            // the namespace comes in a moment, the cloud is known after some trains
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
        let cloud = found.expect("the virtual router grants to packets");
        assert_eq!(
            (&cloud["device"], &cloud["routers"]),
            (&"r1-n1".into(), &1.into())
        );
    });
}

/// One flow; between the routers r0 and r1 is one that is not XCP.
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

/// Without a path to emulate, which would need netem.
fn direct(experiment: &str) -> String {
    experiment.replace("rate_mbit = 100\ndelay_ms = 50\n", "")
}

/// Namespaces that labs have left.
fn spaces() -> usize {
    fs::read_dir("/run/netns").map_or(0, |all| {
        let names = all.map(|e| e.unwrap().file_name());
        names
            .filter(|n| n.to_string_lossy().starts_with("xcp"))
            .count()
    })
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp metrics`: Prometheus can read it, and the alerts fire when they should.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::command::{interrupt, NetNamespace, Ran, SystemState};
use crate::common::{test_lock, wait_until};
use serde_json::Value;
use xcp_testbed::{can_run, skipped};

const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../monitoring");

fn is_here(tool: &str, test: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        skipped(test, &format!("{tool} is not installed"));
    }
    found
}

/// The response of a web server in a namespace, head and body.
fn get(space: &NetNamespace, address: &str, path: &str) -> Option<String> {
    space.within(|| {
        let mut stream = TcpStream::connect(address).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: here\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    })
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the exporter in a namespace; also returns the address on which it listens.
fn exporter(space: &NetNamespace) -> (Killed, String) {
    let mut child = space.start("metrics --listen 127.0.0.1:0");
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    let address = line
        .strip_prefix("xcp: http://")
        .unwrap_or_else(|| panic!("{line}"));
    let address = address.split('/').next().unwrap().to_owned();
    (Killed(child), address)
}

#[test]
fn prometheus_reads_routers_and_hosts() {
    let _lock = test_lock();
    let Some(traces) = SystemState::capture_before("metrics").filter(|_| can_run("metrics")) else {
        return;
    };
    let space = NetNamespace::new("metrics");
    space.device("set lo up");
    space.xcp("router add v0 --capacity 10mbit").ok();
    space.xcp("host on --netns").ok();
    let (mut exporter, address) = exporter(&space);
    let answer = get(&space, &address, "/metrics").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0"));
    for line in [
        "\nxcp_router_configured_capacity_bytes_per_second{device=\"v0\"} 1250000.0\n",
        "\nxcp_host_enabled 1\n",
    ] {
        assert!(answer.contains(line), "{answer}");
    }
    assert!(get(&space, &address, "/")
        .unwrap()
        .starts_with("HTTP/1.1 404 "));
    // routers that are added, removed and added again
    space.xcp("router add v1 --capacity 20mbit").ok();
    space.xcp("router del v0").ok();
    space.xcp("router add v0 --capacity 30mbit").ok();
    let answer = get(&space, &address, "/metrics").unwrap();
    for (device, bytes_per_s) in [("v0", "3750000.0"), ("v1", "2500000.0")] {
        let name = "xcp_router_configured_capacity_bytes_per_second";
        let line = format!("{name}{{device=\"{device}\"}} {bytes_per_s}\n");
        assert!(answer.contains(&line), "{answer}");
    }
    if is_here("prometheus", "prometheus") {
        is_scraped(&space, &address);
    }
    interrupt(&exporter.0);
    assert_eq!(exporter.0.wait().unwrap().code(), Some(0));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("xcp.prom");
    space
        .xcp(&format!("metrics --textfile {}", file.display()))
        .ok();
    assert!(fs::read_to_string(&file).unwrap().ends_with("# EOF\n"));
    space.xcp("router del v0").ok();
    space.xcp("router del v1").ok();
    space.xcp("host off").ok();
    traces.assert_nothing_left();
}

#[test]
fn clients_cannot_stop_the_exporter() {
    let _lock = test_lock();
    if !can_run("clients_cannot_stop_the_exporter") {
        return;
    }
    let space = NetNamespace::new("metrics");
    space.device("set lo up");
    let (mut exporter, address) = exporter(&space);
    let connect = || space.within(|| TcpStream::connect(&address).unwrap());
    let is_answered = || {
        let answer = get(&space, &address, "/metrics?all").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    };
    let bodies = ["18446744073709551615", "9223372036854775807", "2000"];
    let _open: Vec<_> = bodies
        .map(|length| {
            let mut stream = connect();
            write!(
                stream,
                "GET /metrics HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"
            )
            .unwrap();
            is_answered();
            stream
        })
        .into();
    let _idle: Vec<_> = (0..600).map(|_| connect()).collect();
    is_answered();
    // a head without end, and bytes that are no text
    for bytes in [b"GET / HTTP/1.1\r\nA: ".repeat(10_000), vec![0xff; 100]] {
        let mut stream = connect();
        let _ = stream.write_all(&bytes); // the exporter may close it before
        is_answered();
    }
    // a client that asks and does not read
    let mut deaf = connect();
    deaf.set_nonblocking(true).unwrap();
    for _ in 0..10_000 {
        let _ = deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
    }
    is_answered();
    interrupt(&exporter.0);
    assert_eq!(exporter.0.wait().unwrap().code(), Some(0));
}

/// Checks that Prometheus finds the exporter healthy and reads the capacities of routers.
fn is_scraped(space: &NetNamespace, address: &str) {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nrule_files: [{MONITORING}/alerts.yml]\nscrape_configs:\n\
         - job_name: xcp\n  static_configs: [{{targets: [\"{address}\"]}}]\n"
    );
    fs::write(&config, text).unwrap();
    let own = "127.0.0.1:9990";
    let child = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{}", space.name()))
        .arg("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            dir.path().join("data").display()
        ))
        .arg(format!("--web.listen-address={own}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _child = Killed(child);
    let query = "/api/v1/query?query=xcp_router_configured_capacity_bytes_per_second";
    wait_until("Prometheus has read the metrics", || {
        let answer = get(space, own, query).unwrap_or_default();
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let found: Value = serde_json::from_str(body).unwrap_or_default();
        found["data"]["result"]
            .as_array()
            .is_some_and(|all| all.len() == 2)
    });
    let targets = get(space, own, "/api/v1/targets").unwrap();
    assert!(targets.contains("\"health\":\"up\""), "{targets}");
}

#[test]
fn alerts_fire_with_their_causes() {
    if !is_here("promtool", "alerts") {
        return;
    }
    for what in ["check rules alerts.yml", "test rules alerts_test.yml"] {
        let mut command = Command::new("promtool");
        command.args(what.split(' ')).current_dir(MONITORING);
        let ran = Ran::of(&mut command);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Two daemons with a router between them, in network namespaces of this host.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const XCP_EDGED: &str = env!("CARGO_BIN_EXE_xcp-edged");
/// Nothing takes as long: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(120);

fn run(command: &str) -> Output {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).output().unwrap()
}

fn ok(command: &str) -> String {
    let out = run(command);
    assert!(out.status.success(), "{command}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// Why namespaces cannot be had here, told like all skipped tests.
fn can_run(test: &str) -> bool {
    let probe = format!("xcp-{test}-{}", std::process::id());
    let out = run(&format!("ip netns add {probe}"));
    if out.status.success() {
        ok(&format!("ip netns del {probe}"));
        return true;
    }
    let why = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    println!("skipped: {test}: network namespaces cannot be made: {why}");
    false
}

/// up, r and down in a row, over IPv4 and IPv6.
struct Net {
    dir: TempDir,
    id: String,
}

impl Net {
    fn new(test: &str) -> Self {
        let net = Net {
            dir: tempfile::tempdir().unwrap(),
            id: format!("{test}-{}", std::process::id()),
        };
        for node in ["up", "r", "down"] {
            ok(&format!("ip netns add {}", net.name(node)));
            net.ip(node, "link set lo up");
        }
        for (node, number) in [("up", 1), ("down", 2)] {
            let (name, r) = (net.name(node), net.name("r"));
            ok(&format!(
                "ip -n {r} link add to-{node} type veth peer name eth0 netns {name}"
            ));
            net.ip(
                "r",
                &format!("addr add 10.79.{number}.254/24 dev to-{node}"),
            );
            net.ip(
                "r",
                &format!("addr add fd79:{number}::254/64 dev to-{node} nodad"),
            );
            net.ip("r", &format!("link set to-{node} up"));
            net.ip(node, &format!("addr add 10.79.{number}.1/24 dev eth0"));
            net.ip(
                node,
                &format!("addr add fd79:{number}::1/64 dev eth0 nodad"),
            );
            net.ip(node, "link set eth0 up");
            net.ip(node, &format!("route add default via 10.79.{number}.254"));
            net.ip(
                node,
                &format!("-6 route add default via fd79:{number}::254"),
            );
        }
        for knob in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            net.within("r", &format!("sysctl -qw {knob}"));
        }
        ok(&format!("{XCP_EDGED} key {}", net.path("key").display()));
        net
    }

    fn name(&self, node: &str) -> String {
        format!("xcp-{node}-{}", self.id)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn ip(&self, node: &str, what: &str) {
        let name = self.name(node);
        match what.strip_prefix("-6 ") {
            Some(what) => ok(&format!("ip -n {name} -6 {what}")),
            None => ok(&format!("ip -n {name} {what}")),
        };
    }

    fn within(&self, node: &str, command: &str) -> String {
        ok(&format!("ip netns exec {} {command}", self.name(node)))
    }

    fn command(&self, node: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(node), XCP_EDGED, "run"]);
        command.arg("--key").arg(self.path("key"));
        command.arg("--socket").arg(self.path(node)).args(args);
        command
    }

    /// As systemd does.
    fn start(&self, node: &str, args: &[&str]) -> Daemon {
        let place = self.path("notify");
        let told = UnixDatagram::bind(&place).unwrap();
        told.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = self.command(node, args);
        command.env("NOTIFY_SOCKET", &place).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let path = self.path(node);
        let daemon = Daemon { child, path };
        let mut text = [0; 64];
        let length = told.recv(&mut text).unwrap();
        assert_eq!(&text[..length], b"READY=1");
        fs::remove_file(place).unwrap();
        assert!(daemon.shown().is_some());
        daemon
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for node in ["up", "r", "down"] {
            run(&format!("ip netns del {}", self.name(node)));
        }
    }
}

struct Daemon {
    child: Child,
    path: PathBuf,
}

impl Daemon {
    fn shown(&self) -> Option<Value> {
        let path = self.path.display();
        let out = run(&format!("{XCP_EDGED} show --json --socket {path}"));
        out.status
            .success()
            .then(|| serde_json::from_slice(&out.stdout).unwrap())
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let shown = self.shown();
            if let Some(status) = shown.as_ref().filter(|status| is_so(status)) {
                return status.clone();
            }
            assert!(begin.elapsed() < PATIENCE, "never: {what}; {shown:?}");
            sleep(Duration::from_millis(50));
        }
    }

    fn signal(&mut self, signal: &str) -> Option<i32> {
        ok(&format!("kill -{signal} {}", self.child.id()));
        self.child.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn clouds(status: &Value) -> &Vec<Value> {
    status["clouds"].as_array().unwrap()
}

fn all(status: &Value, is_so: impl Fn(&Value) -> bool) -> bool {
    clouds(status).len() == 2 && clouds(status).iter().all(is_so)
}

#[test]
fn edges_measure_a_cloud_and_outlive_each_other() {
    let test = "measure";
    if !can_run(test) {
        return;
    }
    let net = Net::new(test);
    let mut up = net.start("up", &[]);
    let upstream = ["--upstream", "10.79.1.1", "--upstream", "fd79:1::1"];
    let mut down = net.start("down", &upstream);
    let measured = |cloud: &Value| {
        cloud["state"] == "probed"
            && cloud["trains"].as_u64() > Some(0)
            && cloud["free_bps"].as_f64() > Some(0.0)
    };
    let status = down.wait_until("both are measured", |s| all(s, measured));
    assert!(all(&status, |cloud| cloud["routers"] == 1), "{status}");
    assert_eq!(clouds(&status)[0]["local"], "10.79.2.1");
    assert_eq!(clouds(&status)[1]["local"], "fd79:2::1");
    let text = ok(&format!(
        "{XCP_EDGED} show --socket {}",
        down.path.display()
    ));
    assert!(
        text.contains("10.79.1.1\n  asked from             10.79.2.1\n"),
        "{text}"
    );
    up.wait_until("both ask", |s| s["askers"].as_array().unwrap().len() == 2);

    // what has not the key changes nothing
    let junk = "for i in 1 2 3 4 5 6 7 8 9 10; do echo -n XCPi$i > /dev/udp/10.79.1.1/22595; done";
    let name = net.name("down");
    let out = Command::new("ip")
        .args(["netns", "exec", &name, "bash", "-c", junk])
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    up.wait_until("junk is counted", |s| s["ignored"]["malformed"] == 10);
    assert_eq!(up.shown().unwrap()["askers"].as_array().unwrap().len(), 2);

    // killed, it leaves its socket, and the next one takes its place
    up.signal("KILL");
    assert!(up.path.exists());
    let mut up = net.start("up", &[]);
    let probes = |status: &Value| clouds(status).iter().map(|c| c["probes"].as_u64()).max();
    let before = probes(&down.shown().unwrap());
    down.wait_until("probes come again", |s| {
        probes(s) > before && all(s, measured)
    });

    // ended, it says so
    assert_eq!(up.signal("TERM"), Some(0));
    assert!(!Path::new(&up.path).exists());
    down.wait_until("it is gone", |s| all(s, |cloud| cloud["state"] == "broken"));
    assert_eq!(down.signal("INT"), Some(0));
}

#[test]
fn what_stands_in_the_way_is_told() {
    let test = "errors";
    if !can_run(test) {
        return;
    }
    let net = Net::new(test);
    let fails = |node: &str, reason: &str| {
        let out = net.command(node, &[]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains(reason) && said.contains("  help: "), "{said}");
    };
    let up = net.start("up", &["--upstream", "192.0.2.1"]);
    fails("up", "UDP port 22595: something else uses it");
    fs::rename(net.path("up"), net.path("r")).unwrap();
    fails("r", "another daemon answers there");
    fs::rename(net.path("r"), net.path("up")).unwrap();
    // the address that nobody answers: three tries
    let broken = |s: &Value| clouds(s)[0]["state"] == "broken";
    let status = up.wait_until("the path is broken", broken);
    assert_eq!(clouds(&status)[0]["routers"], Value::Null);
    drop(up);
    run(&format!("chmod 644 {}", net.path("key").display()));
    fails("down", "others than its owner may use it (mode 644)");
    fs::remove_file(net.path("key")).unwrap();
    fails("down", "there is no such file");
    let none = net.path("none");
    let out = run(&format!("{XCP_EDGED} show --socket {}", none.display()));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("no daemon answers there"), "{said}");
}

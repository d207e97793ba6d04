// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp edged`: two daemons with a router between them, the upstream edge on the server,
//! the downstream edge on the client.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use xcp_testbed::{can_run, eventually, PATIENCE};

use crate::command::{start_daemon, xcp, xcp_within, Ran, XCP};
use crate::common::{run, test_lock, Net, CLIENT, CLIENT6, SERVER, SERVER6};

const UP: &str = "s";
const DOWN: &str = "c";

struct Edges {
    net: Net,
    dir: TempDir,
}

impl Edges {
    fn new(test: &str) -> Self {
        let edges = Self {
            net: Net::new(test),
            dir: tempfile::tempdir().unwrap(),
        };
        xcp(&format!("edged key {}", edges.path("key"))).ok();
        edges
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn command(&self, node: &str, args: &str) -> Command {
        let (key, socket) = (self.path("key"), self.path(node));
        let run = format!("edged run --key {key} --socket {socket} {args}");
        xcp_within(&self.net.space(node), &run)
    }

    /// Starts the daemon and waits until it is ready, as systemd does.
    fn start(&self, node: &str, args: &str) -> Daemon {
        let command = self.command(node, args);
        Daemon {
            child: start_daemon(command, &self.dir.path().join("notify")),
            socket: self.path(node),
        }
    }
}

struct Daemon {
    child: Child,
    socket: String,
}

impl Daemon {
    fn show(&self, args: &str) -> Ran {
        xcp(&format!("edged show --socket {} {args}", self.socket)).ok()
    }

    fn status(&self) -> Value {
        self.show("--json").json()
    }

    /// Waits until `show --watch` prints a status that meets the condition.
    fn wait_until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        let mut show = Command::new(XCP)
            .args(["edged", "show", "--watch", "--json", "--socket"])
            .arg(&self.socket)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut shown = BufReader::new(show.stdout.take().unwrap())
            .lines()
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        let found = shown.find(|status| {
            let in_time = begin.elapsed() < PATIENCE;
            assert!(in_time, "timeout waiting for: {what}; {status}");
            is_so(status)
        });
        drop(shown);
        assert!(show.wait().unwrap().success());
        found.unwrap()
    }

    fn signal(&mut self, signal: &str) -> Option<i32> {
        run("kill", &format!("-{signal} {}", self.child.id()));
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

fn askers(status: &Value) -> usize {
    status["askers"].as_array().unwrap().len()
}

#[test]
fn edges_measure_a_cloud_and_survive_restarts_of_each_other() {
    let _lock = test_lock();
    let test = "measure";
    if !can_run(test) {
        return;
    }
    let edges = Edges::new(test);
    let space = edges.net.space(UP);
    let within = |args: &str| Ran::of(&mut xcp_within(&space, args)).ok().out;
    let named = || {
        let told: Value = serde_json::from_str(&within("router show --json")).unwrap();
        told["routers"][0]["edge"].clone()
    };
    within("router add r --capacity 10mbit");
    assert_eq!(named(), Value::Null);
    let mut up = edges.start(UP, "");
    let upstream = format!("--upstream {SERVER} --upstream {SERVER6}");
    let mut down = edges.start(DOWN, &upstream);
    let measured = |cloud: &Value| {
        cloud["state"] == "probed"
            && cloud["trains"].as_u64() > Some(0)
            && cloud["free_bps"].as_f64() > Some(0.0)
    };
    let status = down.wait_until("both clouds are measured", |s| all(s, measured));
    assert!(all(&status, |cloud| cloud["routers"] == 1), "{status}");
    assert_eq!(clouds(&status)[0]["local"], CLIENT);
    assert_eq!(clouds(&status)[1]["local"], CLIENT6);
    let text = down.show("").out;
    let head = format!("{SERVER}\n  local address    {CLIENT}\n  state            probed\n");
    assert!(text.starts_with(&head), "{text}");
    up.wait_until("two askers", |s| askers(s) == 2);
    assert!(
        eventually(|| named() != Value::Null),
        "no edge address after a request"
    );
    let name = named();
    let name = name.as_str().unwrap();
    assert!([SERVER, SERVER6].contains(&name), "{name}");
    let text = within("router show r");
    let line = text.lines().find(|l| l.contains("edge address"));
    assert!(line.unwrap().ends_with(name), "{text}");

    // packets without the key change nothing
    let junk =
        format!("for i in 1 2 3 4 5 6 7 8 9 10; do echo -n XCPi$i >/dev/udp/{SERVER}/22595; done");
    edges.net.within(DOWN, || {
        Ran::of(Command::new("bash").args(["-c", &junk])).ok();
    });
    up.wait_until("junk is counted", |s| s["ignored"]["malformed"] == 10);
    assert_eq!(askers(&up.status()), 2);

    // a command that holds the lock for long does not delay probes
    let probes = |status: &Value| clouds(status).iter().map(|c| c["probes"].as_u64()).max();
    let mut command = Command::new("flock")
        .args(["--no-fork", "/run/xcp.lock", "sleep", "30"])
        .spawn()
        .unwrap();
    // by then the daemon has to refresh the edge address of routers
    sleep(Duration::from_secs(6));
    let before = probes(&down.status()).flatten().unwrap();
    down.wait_until("probes go on", |s| probes(s).flatten() > Some(before + 100));
    assert_eq!(command.try_wait().unwrap(), None, "the command ended early");
    command.kill().unwrap();
    command.wait().unwrap();

    // a killed daemon leaves its socket, which the next one replaces
    up.signal("KILL");
    assert!(fs::exists(&up.socket).unwrap());
    let mut up = edges.start(UP, "");
    let before = probes(&down.status());
    down.wait_until("probes are answered again", |s| {
        probes(s) > before && all(s, measured)
    });

    // a daemon that ends notifies its peers
    assert_eq!(up.signal("TERM"), Some(0));
    assert!(!fs::exists(&up.socket).unwrap());
    assert_eq!(named(), Value::Null, "the edge address must be removed");
    within("router del r");
    down.wait_until("the clouds are broken", |s| {
        all(s, |cloud| cloud["state"] == "broken")
    });
    assert_eq!(down.signal("INT"), Some(0));
}

#[test]
fn startup_errors_name_reason_and_remedy() {
    let _lock = test_lock();
    let test = "errors";
    if !can_run(test) {
        return;
    }
    let edges = Edges::new(test);
    let fails = |node: &str, told: &str| Ran::of(&mut edges.command(node, "")).failed(1, told);
    let up = edges.start(UP, "--upstream 192.0.2.1");
    fails(
        UP,
        "xcp: UDP port 22595: is in use by another program\n  \
         help: find the program: ss -ulpn sport = 22595\n",
    );
    let (socket, other) = (edges.path(UP), edges.path(DOWN));
    fs::rename(&socket, &other).unwrap();
    fails(
        DOWN,
        &format!(
            "xcp: {other}: another daemon is using this socket\n  \
             help: stop it, or choose another path with --socket\n"
        ),
    );
    fs::rename(&other, &socket).unwrap();
    fs::write(&other, "not a socket").unwrap();
    fails(
        DOWN,
        &format!(
            "xcp: {other}: exists but is not a socket\n  \
             help: choose another path with --socket\n"
        ),
    );
    fs::remove_file(&other).unwrap();
    // the upstream address does not answer: three tries
    let broken = |s: &Value| clouds(s)[0]["state"] == "broken";
    let status = up.wait_until("the path is broken", broken);
    assert_eq!(clouds(&status)[0]["routers"], Value::Null);
    drop(up);
    let key = edges.path("key");
    run("chmod", &format!("644 {key}"));
    fails(
        DOWN,
        &format!(
            "xcp: {key}: users other than its owner have access (mode 644)\n  \
             help: chmod 600 {key}, and make a new key if someone has read it\n"
        ),
    );
    fs::remove_file(&key).unwrap();
    fails(
        DOWN,
        &format!("xcp: {key}: no such file\n  help: make a key with: xcp edged key {key}\n"),
    );
    xcp(&format!("edged show --socket {other}")).failed(
        1,
        &format!(
            "xcp: {other}: no daemon is listening on this socket\n  \
             help: start it: xcp edged run --key FILE\n"
        ),
    );
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp edged`: two daemons with a router between them, the upstream edge at the
//! server, the downstream one at the client.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use xcp_testbed::{can_run, eventually, PATIENCE};

use crate::command::{xcp, xcp_within, Ran, XCP};
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

    /// As systemd does.
    fn start(&self, node: &str, args: &str) -> Daemon {
        let place = self.path("notify");
        let told = UnixDatagram::bind(&place).unwrap();
        told.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = self.command(node, args);
        command.env("NOTIFY_SOCKET", &place).stderr(Stdio::null());
        let daemon = Daemon {
            child: command.spawn().unwrap(),
            socket: self.path(node),
        };
        let mut text = [0; 64];
        let length = told.recv(&mut text).unwrap();
        assert_eq!(&text[..length], b"READY=1");
        fs::remove_file(place).unwrap();
        daemon
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

    /// What is shown again and again, once it is so.
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
            assert!(in_time, "waited for: {what}; {status}");
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
fn edges_measure_a_cloud_and_outlive_each_other() {
    let _turn = test_lock();
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
    let status = down.wait_until("both are measured", |s| all(s, measured));
    assert!(all(&status, |cloud| cloud["routers"] == 1), "{status}");
    assert_eq!(clouds(&status)[0]["local"], CLIENT);
    assert_eq!(clouds(&status)[1]["local"], CLIENT6);
    let text = down.show("").out;
    let head = format!("{SERVER}\n  asked from       {CLIENT}\n  state            probed\n");
    assert!(text.starts_with(&head), "{text}");
    up.wait_until("both ask", |s| askers(s) == 2);
    assert!(
        eventually(|| named() != Value::Null),
        "asked, it has a name"
    );
    let name = named();
    let name = name.as_str().unwrap();
    assert!([SERVER, SERVER6].contains(&name), "{name}");
    let text = within("router show r");
    let line = text.lines().find(|l| l.contains("edge address"));
    assert!(line.unwrap().ends_with(name), "{text}");

    // what has not the key changes nothing
    let junk =
        format!("for i in 1 2 3 4 5 6 7 8 9 10; do echo -n XCPi$i >/dev/udp/{SERVER}/22595; done");
    edges.net.within(DOWN, || {
        Ran::of(Command::new("bash").args(["-c", &junk])).ok();
    });
    up.wait_until("junk is counted", |s| s["ignored"]["malformed"] == 10);
    assert_eq!(askers(&up.status()), 2);

    // a command that takes long does not hold probes up
    let probes = |status: &Value| clouds(status).iter().map(|c| c["probes"].as_u64()).max();
    let mut command = Command::new("flock")
        .args(["--no-fork", "/run/xcp.lock", "sleep", "30"])
        .spawn()
        .unwrap();
    // by then the routers' name is due
    sleep(Duration::from_secs(6));
    let before = probes(&down.status()).flatten().unwrap();
    down.wait_until("probes go on", |s| probes(s).flatten() > Some(before + 100));
    assert_eq!(command.try_wait().unwrap(), None, "before it ends");
    command.kill().unwrap();
    command.wait().unwrap();

    // killed, it leaves its socket, and the next one takes its place
    up.signal("KILL");
    assert!(fs::exists(&up.socket).unwrap());
    let mut up = edges.start(UP, "");
    let before = probes(&down.status());
    down.wait_until("probes come again", |s| {
        probes(s) > before && all(s, measured)
    });

    // ended, it says so
    assert_eq!(up.signal("TERM"), Some(0));
    assert!(!fs::exists(&up.socket).unwrap());
    assert_eq!(named(), Value::Null, "and its routers have no name again");
    within("router del r");
    down.wait_until("it is gone", |s| all(s, |cloud| cloud["state"] == "broken"));
    assert_eq!(down.signal("INT"), Some(0));
}

#[test]
fn what_stands_in_the_way_is_told() {
    let _turn = test_lock();
    let test = "errors";
    if !can_run(test) {
        return;
    }
    let edges = Edges::new(test);
    let fails = |node: &str, told: &str| Ran::of(&mut edges.command(node, "")).failed(1, told);
    let up = edges.start(UP, "--upstream 192.0.2.1");
    fails(
        UP,
        "xcp: UDP port 22595: something else uses it\n  help: see what: ss -ulpn sport = 22595\n",
    );
    let (socket, other) = (edges.path(UP), edges.path(DOWN));
    fs::rename(&socket, &other).unwrap();
    fails(
        DOWN,
        &format!(
            "xcp: {other}: another daemon answers there\n  \
             help: stop it, or name another place with --socket\n"
        ),
    );
    fs::rename(&other, &socket).unwrap();
    fs::write(&other, "not a socket").unwrap();
    fails(
        DOWN,
        &format!(
            "xcp: {other}: something else than a socket is there\n  \
             help: name another place with --socket\n"
        ),
    );
    fs::remove_file(&other).unwrap();
    // the address that nobody answers: three tries
    let broken = |s: &Value| clouds(s)[0]["state"] == "broken";
    let status = up.wait_until("the path is broken", broken);
    assert_eq!(clouds(&status)[0]["routers"], Value::Null);
    drop(up);
    let key = edges.path("key");
    run("chmod", &format!("644 {key}"));
    fails(
        DOWN,
        &format!(
            "xcp: {key}: others than its owner may use it (mode 644)\n  \
             help: chmod 600 {key}, and make another key if someone has read it\n"
        ),
    );
    fs::remove_file(&key).unwrap();
    fails(
        DOWN,
        &format!(
            "xcp: {key}: there is no such file\n  help: make a key with: xcp edged key {key}\n"
        ),
    );
    xcp(&format!("edged show --socket {other}")).failed(
        1,
        &format!(
            "xcp: {other}: no daemon answers there\n  help: start it: xcp edged run --key FILE\n"
        ),
    );
}

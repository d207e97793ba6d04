// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp top` on a real terminal, provided by tmux: its output, keys, end and CPU time.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::command::{xcp, NetNamespace, Ran, XCP};
use crate::common::{
    pattern, test_lock, transfer, wait_for_control, wait_until, HostOn, Net, LINK_BYTES_PER_S,
};
use xcp_testbed::{can_run, skipped};

/// A terminal that runs `xcp top`; closed when dropped.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Opens a terminal in a network namespace; None if there is no tmux.
    fn open(test: &str, space: &str, columns: u16, env: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skipped(test, "tmux is not installed");
            return None;
        }
        let socket = format!("xt{}{test}", std::process::id());
        let terminal = Self { socket };
        let size = columns.to_string();
        let line = format!("env {env} nsenter --net=/run/netns/{space} {XCP} top");
        terminal
            .tmux(&["new-session", "-d", "-x", &size, "-y", "24", &line])
            .ok();
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Ran {
        let mut command = Command::new("tmux");
        command
            .args(["-L", &self.socket, "-f", "/dev/null"])
            .args(args);
        Ran::of(command.env("LC_ALL", "C.UTF-8"))
    }

    fn page(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).out
    }

    fn coloured_page(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"]).out
    }

    fn press(&self, keys: &[&str]) {
        let mut args = vec!["send-keys"];
        args.extend(keys);
        self.tmux(&args).ok();
    }

    fn shows(&self, text: &str) {
        wait_until(&format!("{text:?} on the terminal"), || {
            self.page().contains(text)
        });
    }

    fn has_ended(&self) -> bool {
        self.tmux(&["has-session"]).code != Some(0)
    }

    /// The process ID of `xcp top`.
    fn process(&self) -> u32 {
        let pid = self.tmux(&["list-panes", "-F", "#{pane_pid}"]).ok().out;
        pid.trim().parse().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn links_and_connections_are_shown_sorted_and_filtered() {
    let _lock = test_lock();
    if !can_run("top") {
        return;
    }
    let net = Net::new("top");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(2_000_000));
    let (mut c, mut d) = net.connect("xcp", "reno");
    transfer(&mut c, &mut d, &pattern(1000));
    let Some(client) = Terminal::open("c", &net.space("c"), 80, "LANG=C.UTF-8") else {
        return;
    };
    client.shows("connections 2: 1 XCP, 0 probing, 1 fell back");
    client.shows("fell back: the peer does not use XCP");
    client.shows("No XCP router here.");
    for line in client.page().lines() {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
    assert!(!client.page().contains("CWND"), "{}", client.page());
    let coloured = client.coloured_page();
    let green = "\u{1b}[38;5;2m";
    assert!(coloured.contains(green), "{coloured:?}");
    client.press(&["/", "FELL", "Enter"]);
    client.shows("CONNECTIONS (1 of 2 with 'FELL')");
    client.press(&["Escape"]);
    client.shows("CONNECTIONS (2)");
    client.press(&["s"]);
    client.shows("RTT▼");
    client.press(&["r"]);
    client.shows("RTT▲");
    client.press(&["p"]);
    client.shows("PAUSED");
    client.press(&["q"]);
    wait_until("the end after q", || client.has_ended());

    let router = Terminal::open("r", &net.space("r"), 200, "NO_COLOR=1 LANG=C.UTF-8").unwrap();
    router.shows("LINKS (2)");
    for head in [
        "DEVICE", "CAPACITY", "USE▼", "DELAY", "FLOWS", "SHARE", "CWND", "LOCAL",
    ] {
        router.shows(head);
    }
    router.shows("100.0 Mb/s");
    // traffic is shown
    wait_until("a link in use", || {
        transfer(&mut a, &mut b, &pattern(4_000_000));
        router.page().contains('█') || router.page().contains('▃')
    });
    let coloured = router.coloured_page();
    assert!(!coloured.contains("\u{1b}[38;"), "{coloured:?}");
    let process = router.process();
    drop(router);
    wait_until("the end after the terminal is closed", || {
        !fs::exists(format!("/proc/{process}")).unwrap()
    });
}

#[test]
fn a_connection_without_a_router_is_shown_as_probing() {
    let _lock = test_lock();
    if !can_run("top without routers") {
        return;
    }
    let net = Net::new("pro");
    let _host = HostOn::new();
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(2_000_000));
    wait_for_control(&a, &crate::common::default_control());
    let Some(client) = Terminal::open("p", &net.space("c"), 80, "LANG=C.UTF-8") else {
        return;
    };
    client.shows("connections 1: 0 XCP, 1 probing, 0 fell back");
    client.shows("probing: no XCP router on the path");
    client.press(&["C-c"]);
    wait_until("the end after Ctrl-C", || client.has_ended());
}

#[test]
fn without_a_terminal_top_names_alternatives() {
    let ran = xcp("top");
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(
        ran.err.contains("standard output is not a terminal") && ran.err.contains("xcp metrics")
    );
}

const ROUTERS: usize = 200;
const SOCKETS: usize = 10_000;
/// The number of connections per listener.
const BATCH: usize = 400;
/// The time of a measurement; the list of connections is usually read in it.
const WINDOW_S: u64 = 15;
/// The limit: 2 % of a processor.
const MOST_NS_PER_S: u64 = 20_000_000;

/// The processor time of a process so far.
fn processor_ns(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Opens connections over the loopback device, each with two sockets.
fn connections(count: usize) -> Vec<(TcpStream, TcpStream)> {
    let mut all = Vec::new();
    while all.len() < count {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..BATCH.min(count - all.len()) {
            let here = TcpStream::connect(address).unwrap();
            all.push((here, listener.accept().unwrap().0));
        }
    }
    all
}

#[test]
fn five_refreshes_a_second_take_less_than_two_percent_of_a_processor() {
    let _lock = test_lock();
    if !can_run("cost of top") {
        return;
    }
    // SAFETY: the record lives through the calls.
    let enough = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        limit.rlim_cur > SOCKETS as u64 + 100
    };
    if !enough {
        return skipped(
            "cost of top",
            "the limit of open files is too low (ulimit -n)",
        );
    }
    let space = NetNamespace::new("many");
    space.device("set lo up");
    let mut file = String::from("[host]\nthis_netns = true\ndefault = true\n");
    for pair in 0..ROUTERS / 2 {
        space.device(&format!("add a{pair} type veth peer name b{pair}"));
        for end in ["a", "b"] {
            let table = "[[router]]\ncapacity = \"10mbit\"\nqdisc = false";
            file += &format!("{table}\ndevice = \"{end}{pair}\"\n");
        }
    }
    let mut apply = space
        .command("apply /dev/stdin")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    apply
        .stdin
        .take()
        .unwrap()
        .write_all(file.as_bytes())
        .unwrap();
    assert!(apply.wait().unwrap().success());
    let sockets = space.within(|| connections(SOCKETS / 2));
    if let Some(terminal) = Terminal::open("cost", space.name(), 80, "LANG=C.UTF-8") {
        terminal.shows(&format!("links {ROUTERS}  connections {SOCKETS}:"));
        let process = terminal.process();
        // the minimum of several windows: other processes disturb the measurement
        let windows = (0..3).map(|_| {
            let before = processor_ns(process);
            thread::sleep(Duration::from_secs(WINDOW_S));
            (processor_ns(process) - before) / WINDOW_S
        });
        let least = windows.min().unwrap();
        println!("xcp top: {} us of processor time per second", least / 1000);
        assert!(least < MOST_NS_PER_S, "{least} ns per second");
    }
    drop(sockets);
    let mut nothing = space.command("apply /dev/null");
    assert_eq!(Ran::of(&mut nothing).code, Some(0));
}

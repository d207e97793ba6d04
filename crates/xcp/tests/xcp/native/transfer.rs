// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Unmodified programs over XCP: curl fetches 10 MB from Python's web server across XCP
//! routers and a 100 Mb/s link. Both run under `xcp run`, alone and with every wire format
//! that `xcp host on` can set.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::command::{xcp_within, Ran, SystemState};
use crate::common::{
    output, pattern, test_lock, wait_until, Net, CLIENT, CLIENT6, LINK_BYTES_PER_S,
};
use tempfile::TempDir;
use xcp_datapath::host::Counters;
use xcp_datapath::{host, router, Wire};
use xcp_testbed::{can_run, skipped};

const BYTES: usize = 10_000_000;
const LEAST_PACKETS: u64 = (BYTES / 1500) as u64;
const PORT: u16 = 8080;

fn can_transfer(test: &str) -> bool {
    can_run(test) && installed("curl") && installed("python3")
}

fn installed(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    if !found {
        skipped("transfer", &format!("{program} is not installed"));
    }
    found
}

/// The command `xcp` in a node's namespace.
fn xcp(net: &Net, node: &str, args: &str) -> Command {
    xcp_within(&net.space(node), args)
}

/// `xcp run` in the background; terminated when dropped, as by a user.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        self.0.wait().unwrap();
    }
}

/// Starts a web server on node `c`, so that its file passes the 100 Mb/s link.
fn serve(net: &Net, address: &str, dir: &Path) -> Background {
    let mut run = xcp(net, "c", "run -- python3 -m http.server");
    run.args([&PORT.to_string(), "--bind", address, "--directory"])
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let server = Background(run.spawn().unwrap());
    wait_for_listener(net, address);
    server
}

/// Waits until the kernel lists the listener: a test connection would change the counters.
fn wait_for_listener(net: &Net, address: &str) {
    let family = if address.contains(':') { 6 } else { 4 };
    let listening = format!("--net=/run/netns/{} ss -ltnH{family}", net.space("c"));
    let port = format!(":{PORT} ");
    wait_until("the web server", || {
        output("nsenter", &listening).contains(&port)
    });
}

/// The file that is sent, and the folder for the received one.
struct Files {
    dir: TempDir,
    sent: Vec<u8>,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sent = pattern(BYTES);
        fs::write(dir.path().join("file"), &sent).unwrap();
        Self { dir, sent }
    }

    /// Fetches the file with curl; both peers and the router must use XCP.
    fn fetch(&self, net: &Net, address: &str) -> Counters {
        let seen = routed(net);
        let before = host::counters().unwrap();
        let got = self.dir.path().join("got");
        let url = SocketAddr::new(address.parse().unwrap(), PORT);
        let mut curl = xcp(net, "s", "run -- curl -sSg -o");
        curl.arg(&got).arg(format!("http://{url}/file"));
        Ran::of(&mut curl).ok();
        assert!(fs::read(&got).unwrap() == self.sent, "the file differs");

        let after = host::counters().unwrap();
        assert_eq!(after.sockets - before.sockets, 2, "both peers must use XCP");
        assert_eq!(
            after.fallbacks.total(),
            before.fallbacks.total(),
            "a peer fell back"
        );
        assert_eq!(after.header_omitted, before.header_omitted);
        assert!(after.forward_sent - before.forward_sent >= LEAST_PACKETS);
        assert!(after.forward_received - before.forward_received >= LEAST_PACKETS);
        assert!(
            routed(net) - seen >= LEAST_PACKETS,
            "the router missed packets"
        );
        after
    }
}

/// The number of XCP packets that the router sent to the 100 Mb/s link.
fn routed(net: &Net) -> u64 {
    let routers = net.within("r", || router::list().unwrap());
    let narrow = routers.iter().find(|r| r.device == "s").unwrap();
    narrow.counters.xcp_packets
}

#[test]
fn curl_fetches_a_file_over_xcp() {
    let _lock = test_lock();
    if !can_transfer("transfer") {
        return;
    }
    let Some(clean) = SystemState::capture_before("transfer") else {
        return;
    };
    let net = Net::new("t");
    net.add_routers(LINK_BYTES_PER_S);
    let files = Files::new();
    let server = serve(&net, CLIENT, files.dir.path());
    let after = files.fetch(&net, CLIENT);
    assert_ne!(
        after.applied_bytes_per_s, 0,
        "no feedback was applied: {after:?}"
    );
    let routers = net.within("r", || router::list().unwrap());
    let narrow = routers.iter().find(|r| r.device == "s").unwrap();
    assert_ne!(narrow.counters.granted_bytes_per_s, 0, "{narrow:?}");

    drop(server);
    drop(net);
    clean.assert_nothing_left();
}

#[test]
fn curl_fetches_a_file_in_every_wire_format() {
    let _lock = test_lock();
    if !can_transfer("transfers") {
        return;
    }
    let Some(clean) = SystemState::capture_before("transfers") else {
        return;
    };
    let net = Net::new("w");
    net.add_routers(LINK_BYTES_PER_S);
    let files = Files::new();
    let links = || ["c", "s"].map(|node| device(&net, node));
    let untouched = links();
    let set_wire_format = |wire: Wire| {
        for (node, v4, v6) in [
            ("c", "10.77.2.0/24", "fd77:2::/64"),
            ("s", "10.77.1.0/24", "fd77:1::/64"),
        ] {
            let on = format!("host on --wire {wire} --dev r --peers {v4} --peers {v6}");
            Ran::of(&mut xcp(&net, node, &on)).ok();
            let alone = device(&net, node).contains(" gso_max_segs 1 ");
            assert_eq!(alone, wire.is_header(), "{wire} at {node}");
        }
    };
    let _off = Off;
    set_wire_format(Wire::Option);
    let servers = [CLIENT, CLIENT6].map(|address| serve(&net, address, files.dir.path()));
    for wire in Wire::ALL {
        set_wire_format(wire);
        let before = host::counters().unwrap();
        files.fetch(&net, CLIENT);
        if matches!(wire, Wire::Option2005 | Wire::Header) {
            files.fetch(&net, CLIENT6);
        }
        let after = host::counters().unwrap();
        println!("{wire}: {after:?}");
        let obeyed = after.applied_bytes_per_s != before.applied_bytes_per_s;
        let in_packets = after.option_2005.applied != before.option_2005.applied;
        let expected = (wire != Wire::Option2005, wire == Wire::Option2005);
        assert_eq!((obeyed, in_packets), expected, "feedback applied in {wire}");
    }

    drop(servers);
    Ran::of(&mut xcp(&net, "r", "host off")).ok();
    assert_eq!(links(), untouched);
    drop(net);
    clean.assert_nothing_left();
}

/// Turns XCP off when dropped, also if a test fails.
struct Off;

impl Drop for Off {
    fn drop(&mut self) {
        let _ = host::off();
    }
}

/// The output of `ip` for a node's device.
fn device(net: &Net, node: &str) -> String {
    let space = net.space(node);
    output(
        "nsenter",
        &format!("--net=/run/netns/{space} ip -d link show r"),
    )
}

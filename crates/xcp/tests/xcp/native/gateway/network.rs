// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A client and a server that do not use XCP, and the gateways between them: client (c) -
//! gateway (r) - gateway (s) - server (h).

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use xcp_testbed::{can_run, TestLock};

use crate::command::{start_daemon, xcp, xcp_within, Ran};
use crate::common::{run, set_sysctl, test_lock, Net, SocketSetup};

pub const HOST: &str = "10.77.3.2";
pub const HOST6: &str = "fd77:3::2";
/// The gateway on the client's side: its node, LAN and WAN device.
pub const NEAR: [&str; 3] = ["r", "c", "s"];
/// Its address on the LAN.
pub const NEAR_ADDRESS: &str = "10.77.1.2";
/// The gateway on the server's side.
pub const FAR: [&str; 3] = ["s", "h", "r"];

pub struct Gateways {
    pub net: Net,
    dir: TempDir,
    _lock: Option<TestLock>,
}

impl Gateways {
    /// None, with a message, if the test cannot run here.
    pub fn new(test: &str) -> Option<Self> {
        can_run(test).then(|| {
            let lock = test_lock();
            let mut gateways = Self::build();
            gateways._lock = Some(lock);
            gateways
        })
    }

    /// For a test that holds the lock itself.
    pub fn build() -> Self {
        let net = Net::new("gw");
        let (s, h) = (net.space("s"), net.space("h"));
        run("ip", &format!("netns add {h}"));
        net.within("h", || {
            set_sysctl("ipv6/conf/default/accept_dad", "0").unwrap();
        });
        net.tool("h", "ip link set lo up");
        run(
            "ip",
            &format!("link add dev h netns {s} type veth peer name s netns {h}"),
        );
        for (node, dev, address) in [
            ("s", "h", "10.77.3.1/24"),
            ("h", "s", "10.77.3.2/24"),
            ("s", "h", "fd77:3::1/64"),
            ("h", "s", "fd77:3::2/64"),
        ] {
            add_address(&net, node, dev, address);
        }
        add_routes_to_host(&net);
        add_default_routes(&net, "h", ["10.77.3.1", "fd77:3::1"]);
        net.tool("r", "tc qdisc del dev s root");
        for node in ["r", "s"] {
            net.within(node, || {
                for (key, value) in [
                    ("ipv4/ip_forward", "1"),
                    ("ipv6/conf/all/forwarding", "1"),
                    ("ipv4/conf/all/rp_filter", "1"),
                ] {
                    set_sysctl(key, value).unwrap();
                }
            });
        }
        Self {
            net,
            dir: tempfile::tempdir().unwrap(),
            _lock: None,
        }
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// Starts a gateway, and waits until it is ready, as systemd does.
    pub fn start(&self, [node, lan, wan]: [&'static str; 3], args: &str) -> Running<'_> {
        self.start_with(node, &format!("--lan {lan} --wan {wan} {args}"))
    }

    /// Starts a gateway without waiting until it is ready.
    pub fn spawn(&self, [node, lan, wan]: [&'static str; 3], args: &str) -> Running<'_> {
        let socket = self.path(node);
        let run = format!("gateway run --socket {socket} --lan {lan} --wan {wan} {args}");
        let mut command = xcp_within(&self.net.space(node), &run);
        Running {
            gateways: self,
            node,
            socket,
            child: command.stderr(Stdio::null()).spawn().unwrap(),
        }
    }

    /// Starts a gateway with these arguments only.
    pub fn start_with(&self, node: &'static str, args: &str) -> Running<'_> {
        self.start_at(self.path(node), node, args)
    }

    /// Starts a gateway with this status socket.
    pub fn start_at(&self, socket: String, node: &'static str, args: &str) -> Running<'_> {
        let run = format!("gateway run --socket {socket} {args}");
        let command = xcp_within(&self.net.space(node), &run);
        let child = start_daemon(command, &self.dir.path().join("notify"));
        Running {
            gateways: self,
            node,
            socket,
            child,
        }
    }

    pub fn off(&self, node: &str) -> Ran {
        self.off_at(&self.path(node), node)
    }

    fn off_at(&self, socket: &str, node: &str) -> Ran {
        self.xcp(node, &format!("gateway off --json --socket {socket}"))
    }

    /// Runs a command in a node; a command that does not end is killed.
    pub fn xcp(&self, node: &str, args: &str) -> Ran {
        let within = xcp_within(&self.net.space(node), args);
        let mut command = Command::new("timeout");
        command.arg("20").arg(within.get_program());
        Ran::of(command.args(within.get_args()))
    }

    /// Removes the link between the gateways, and creates it again.
    pub fn replace_wan(&self) {
        let (r, s) = (self.net.space("r"), self.net.space("s"));
        self.net.tool("r", "ip link del dev s");
        run(
            "ip",
            &format!("link add dev s netns {r} type veth peer name r netns {s}"),
        );
        for (node, dev, address) in [
            ("r", "s", "10.77.2.1/24"),
            ("s", "r", "10.77.2.2/24"),
            ("r", "s", "fd77:2::1/64"),
            ("s", "r", "fd77:2::2/64"),
        ] {
            add_address(&self.net, node, dev, address);
        }
        add_routes_to_host(&self.net);
        add_default_routes(&self.net, "s", ["10.77.2.1", "fd77:2::1"]);
    }

    /// The routing rules of a node.
    pub fn rules(&self, node: &str) -> String {
        ["ip rule", "ip -6 rule"]
            .map(|rule| self.net.output(node, rule))
            .concat()
    }

    pub fn listen(&self, address: &str) -> TcpListener {
        let at = SocketAddr::new(address.parse().unwrap(), 0);
        self.net.within("h", || TcpListener::bind(at).unwrap())
    }

    pub fn connect(&self, to: SocketAddr) -> TcpStream {
        self.net.within("c", || SocketSetup::PLAIN.connect(to))
    }

    /// Connects the client to a server at this address; returns the client's and the server's
    /// socket.
    pub fn pair(&self, address: &str) -> (TcpStream, TcpStream) {
        let listener = self.listen(address);
        let client = self.connect(listener.local_addr().unwrap());
        (client, listener.accept().unwrap().0)
    }
}

fn add_address(net: &Net, node: &str, dev: &str, address: &str) {
    net.tool(node, &format!("ip addr add {address} dev {dev}"));
    net.tool(node, &format!("ip link set dev {dev} up"));
}

fn add_default_routes(net: &Net, node: &str, gateways: [&str; 2]) {
    for gateway in gateways {
        net.tool(node, &format!("ip route add default via {gateway}"));
    }
}

fn add_routes_to_host(net: &Net) {
    for line in ["10.77.3.0/24 via 10.77.2.2", "fd77:3::/64 via fd77:2::2"] {
        net.tool("r", &format!("ip route add {line}"));
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        run("ip", &format!("netns del {}", self.net.space("h")));
    }
}

/// A running gateway. Dropping it ends it and removes everything.
pub struct Running<'a> {
    gateways: &'a Gateways,
    node: &'static str,
    socket: String,
    pub child: Child,
}

impl Running<'_> {
    pub fn status(&self) -> Value {
        let show = format!("gateway show --json --socket {}", self.socket);
        xcp(&show).ok().json()
    }

    /// One of the counters of packets.
    pub fn packets(&self, name: &str) -> u64 {
        self.status()["packets"][name].as_u64().unwrap()
    }

    pub fn count(&self, name: &str) -> u64 {
        self.status()[name].as_u64().unwrap()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: no memory is involved.
        let rc = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(rc, 0);
    }

    /// Kills the gateway as a crash would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::forget(self); // what it has left stays
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.gateways.off_at(&self.socket, self.node);
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! CPU time per GB of connections through `xcp gateway`, compared with plain forwarding and with
//! HAProxy in the same run: `cargo bench -p xcp --bench gateway`, as root.
//!
//! One connection sends over client - gateway - gateway - server, which are namespaces. The
//! time is that of this process, which is client and server, of the proxies and of ksoftirqd;
//! the kernel accounts other softirqs to the process that they interrupt. Other load on the
//! machine is not included. Rounds alternate, so that all variants see the same noise.

#![allow(dead_code)] // the tests use the other items

#[path = "../tests/xcp/command/mod.rs"]
mod command;
#[path = "../tests/xcp/common/mod.rs"]
mod common;
#[path = "../tests/xcp/native/gateway/network.rs"]
mod network;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use network::{Gateways, Running, FAR, HOST, NEAR};
use xcp_datapath::{host, router};
use xcp_testbed::skipped;

const ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(700);
const MEASURED_BYTES: usize = 500_000_000;
const CHUNK: usize = 1 << 18;
/// Above the throughput of veth on any machine, bytes per second.
const CAPACITY_BYTES_PER_S: u64 = 25_000_000_000;
/// The unit of times in /proc/PID/stat.
const TICKS_PER_S: f64 = 100.0;
const HAPROXY: &str = "/usr/sbin/haproxy";
const HAPROXY_CONFIG: &str = "\
defaults
	mode tcp
	timeout connect 10s
	timeout client 1m
	timeout server 1m
listen all
	bind :3129 transparent
	option transparent
	option splice-auto
	source 0.0.0.0 usesrc clientip
";
const DIVERT: [&str; 4] = [
    "nft add table ip divert",
    "nft add chain ip divert in { type filter hook prerouting priority mangle ; }",
    "nft add rule ip divert in meta l4proto tcp socket transparent 1 meta mark set 1 accept",
    "nft add rule ip divert in iifname DEV meta l4proto tcp tproxy to :3129 meta mark set 1 accept",
];
const DELIVER: [&str; 2] = [
    "ip rule add fwmark 1 lookup 100",
    "ip route add local default dev lo table 100",
];

#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Forwarding,
    OneGateway,
    OneHaproxy,
    TwoGateways,
    TwoHaproxies,
}

use Variant::*;

impl Variant {
    const ALL: [Self; 5] = [
        Forwarding,
        OneGateway,
        OneHaproxy,
        TwoGateways,
        TwoHaproxies,
    ];

    fn name(self) -> &'static str {
        match self {
            Forwarding => "forwarding",
            OneGateway => "xcp gateway at one end, CUBIC",
            OneHaproxy => "haproxy at one end, CUBIC",
            TwoGateways => "xcp gateway at both ends, XCP",
            TwoHaproxies => "haproxy at both ends, CUBIC",
        }
    }

    fn is_available(self) -> bool {
        !matches!(self, OneHaproxy | TwoHaproxies) || Path::new(HAPROXY).exists()
    }
}

/// HAProxy in a node, until this is dropped.
struct Haproxy<'a> {
    gateways: &'a Gateways,
    node: &'static str,
    child: Child,
}

impl<'a> Haproxy<'a> {
    fn start(gateways: &'a Gateways, [node, lan, wan]: [&'static str; 3]) -> Self {
        // connections come from the client's side
        let from = if node == NEAR[0] { lan } else { wan };
        for line in DIVERT.iter().chain(&DELIVER) {
            gateways.net.tool(node, &line.replace("DEV", from));
        }
        let file = gateways.path("haproxy.cfg");
        fs::write(&file, HAPROXY_CONFIG).unwrap();
        let child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", gateways.net.space(node)))
            .args([HAPROXY, "-db", "-f", &file])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        common::wait_until("haproxy", || {
            gateways.net.output(node, "ss -tlnH").contains(":3129")
        });
        Self {
            gateways,
            node,
            child,
        }
    }
}

impl Drop for Haproxy<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let net = &self.gateways.net;
        net.tool(self.node, "nft delete table ip divert");
        for line in DELIVER {
            net.tool(self.node, &line.replace(" add ", " del "));
        }
    }
}

/// CPU time per GB of a variant, seconds.
struct Cost {
    all: f64,
    proxies: f64,
}

fn measure(gateways: &Gateways, variant: Variant) -> Cost {
    let ends: &[[&'static str; 3]] = match variant {
        Forwarding => &[],
        OneGateway | OneHaproxy => &[NEAR],
        TwoGateways | TwoHaproxies => &[NEAR, FAR],
    };
    let (mut running, mut haproxies): (Vec<Running<'_>>, Vec<Haproxy<'_>>) = Default::default();
    for end in ends {
        match variant {
            OneHaproxy | TwoHaproxies => haproxies.push(Haproxy::start(gateways, *end)),
            _ => running.push(gateways.start(*end, "--max-connections 100")),
        }
        set_router(gateways, *end, variant == TwoGateways);
    }
    let processes = running.iter().map(|one| one.child.id());
    let processes: Vec<u32> = processes
        .chain(haproxies.iter().map(|one| one.child.id()))
        .collect();
    let (client, server) = gateways.pair(HOST);
    let cost = transfer(&client, &server, &processes);
    assert!(ends.is_empty() || cost.proxies > 0.0, "not split");
    if variant == TwoGateways {
        let counters = host::counters().unwrap();
        assert!(counters.sockets > 0 && counters.fallbacks.total() == 0);
    }
    for end in ends {
        set_router(gateways, *end, false);
    }
    cost
}

fn set_router(gateways: &Gateways, [node, _, wan]: [&'static str; 3], on: bool) {
    let options = router::Options {
        capacity_bytes_per_s: CAPACITY_BYTES_PER_S,
        ..Default::default()
    };
    gateways.net.within(node, || match on {
        true => drop(router::add(wan, options).unwrap()),
        false => drop(router::del(wan)),
    });
}

/// Sends, and measures the time after the warm-up.
fn transfer(client: &TcpStream, server: &TcpStream, proxies: &[u32]) -> Cost {
    let others: Vec<u32> = softirq_threads().chain([std::process::id()]).collect();
    let seconds = |processes: &[u32]| processes.iter().copied().map(cpu_s).sum::<f64>();
    thread::scope(|scope| {
        scope.spawn(|| send(client));
        let begun = Instant::now();
        while begun.elapsed() < WARM_UP {
            receive(server, CHUNK);
        }
        let before = [seconds(proxies), seconds(&others)];
        receive(server, MEASURED_BYTES);
        let [proxies, others] = [seconds(proxies) - before[0], seconds(&others) - before[1]];
        let _ = server.shutdown(Shutdown::Both);
        let _ = client.shutdown(Shutdown::Both);
        let gigabytes = MEASURED_BYTES as f64 / 1e9;
        Cost {
            all: (proxies + others) / gigabytes,
            proxies: proxies / gigabytes,
        }
    })
}

fn send(mut to: &TcpStream) {
    let bytes = vec![0; CHUNK];
    while to.write_all(&bytes).is_ok() {}
}

fn receive(mut from: &TcpStream, bytes: usize) {
    let mut buffer = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let got = from.read(&mut buffer).unwrap();
        assert!(got > 0, "closed");
        left = left.saturating_sub(got);
    }
}

/// User and system time of all threads of a process.
fn cpu_s(process: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // the name, which may contain spaces, ends with a bracket
    let fields = text.rsplit(") ").next().unwrap().split(' ');
    let ticks = fields.skip(11).take(2).map(|n| n.parse::<f64>().unwrap());
    ticks.sum::<f64>() / TICKS_PER_S
}

fn softirq_threads() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let process = entry.file_name().to_str()?.parse().ok()?;
        name.starts_with("ksoftirqd/").then_some(process)
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let Some(gateways) = Gateways::new("CPU time of gateways") else {
        return;
    };
    let variants: Vec<Variant> = Variant::ALL
        .into_iter()
        .filter(|one| one.is_available())
        .collect();
    if variants.len() < Variant::ALL.len() {
        skipped("haproxy", "it is not installed");
    }
    let round = |_| -> Vec<Cost> {
        let all = variants.iter();
        all.map(|variant| measure(&gateways, *variant)).collect()
    };
    let rounds: Vec<Vec<Cost>> = (0..ROUNDS).map(round).collect();
    println!("CPU s per GB, median of {ROUNDS} rounds; ratio to forwarding in the same round");
    println!("{:>32}{:>8}{:>8}{:>9}", "", "all", "ratio", "proxies");
    for (i, variant) in variants.iter().enumerate() {
        let of = |value: fn(&[Cost], usize) -> f64| median(rounds.iter().map(|r| value(r, i)));
        println!(
            "{:>32}{:>8.2}{:>8.2}{:>9.2}",
            variant.name(),
            of(|round, i| round[i].all),
            of(|round, i| round[i].all / round[0].all),
            of(|round, i| round[i].proxies),
        );
    }
}

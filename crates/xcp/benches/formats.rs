// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Throughput of every wire format over veth on this kernel, compared with plain
//! CUBIC in the same run: `cargo bench -p xcp --bench formats`, as root. The rates
//! depend on the machine; for reproducible costs see `xcp lab bench hosts`.
//!
//! Client, router and server are namespaces, and only the processors limit the
//! rate. Rounds alternate, so that all formats see the same noise.

#[allow(dead_code)] // the tests use the other items
#[path = "../tests/xcp/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{HostOn, Net, SERVER};
use xcp_datapath::Wire;
use xcp_testbed::can_run;

const ROUNDS: usize = 7;
/// Time until XCP has its share of the link.
const WARM_UP: Duration = Duration::from_millis(700);
const MEASURED: Duration = Duration::from_millis(500);
/// Above the throughput of veth on any machine, bytes per second.
const CAPACITY_BYTES_PER_S: u64 = 25_000_000_000;
const CHUNK: usize = 1 << 18;

fn main() {
    if !can_run("throughput of the wire formats") {
        return;
    }
    let net = Net::new("b");
    // remove the rate limit of the router's link to the server
    net.within("r", || common::run("tc", "qdisc del dev s root"));
    net.add_routers(CAPACITY_BYTES_PER_S);
    let _host = HostOn::new();
    compare(&net);
}

/// A variant that is compared with plain CUBIC.
#[derive(Clone, Copy)]
enum Kind {
    /// CUBIC without segmentation offload, which the header formats cannot use.
    OneByOne,
    Wire(Wire),
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::OneByOne => "cubic, no GSO",
            Self::Wire(wire) => wire.name(),
        }
    }
}

/// Prints the table of one run.
fn compare(net: &Net) {
    let kinds = [Kind::OneByOne].into_iter();
    let kinds = kinds.chain(Wire::ALL.map(Kind::Wire));
    let mut cubic = Vec::new();
    let mut all: Vec<(Kind, Vec<f64>, Vec<f64>)> =
        kinds.map(|kind| (kind, vec![], vec![])).collect();
    for _ in 0..ROUNDS {
        for (kind, rates, ratios) in &mut all {
            let plain = measure(net, None);
            let rate = measure(net, Some(*kind));
            cubic.push(plain);
            rates.push(rate);
            ratios.push(rate / plain);
        }
    }
    println!("Gb/s over veth, median of {ROUNDS} rounds; ratio to CUBIC just before");
    println!("{:>14}{:>8}{:>8}", "", "Gb/s", "ratio");
    println!("{:>14}{:>8.2}", "cubic", median(&mut cubic));
    for (kind, rates, ratios) in &mut all {
        let (rate, ratio) = (median(rates), median(ratios));
        println!("{:>14}{rate:>8.2}{ratio:>8.2}", kind.name());
    }
}

/// Measures the rate of one connection, Gb/s.
fn measure(net: &Net, kind: Option<Kind>) -> f64 {
    net.reset_peer_policies();
    let control = match kind {
        Some(Kind::Wire(wire)) => {
            net.set_wire_format(wire);
            "xcp"
        }
        _ => "cubic",
    };
    let segments = match kind {
        Some(Kind::OneByOne | Kind::Wire(Wire::Header | Wire::Header2004)) => 1,
        _ => 65535,
    };
    net.within("c", || {
        common::run("ip", &format!("link set dev r gso_max_segs {segments}"));
    });
    let (client, server) = net.connect_to(SERVER, control, control);
    let received = AtomicU64::new(0);
    let rate = thread::scope(|scope| {
        scope.spawn(|| send(&client));
        scope.spawn(|| receive(&server, &received));
        thread::sleep(WARM_UP);
        let (begin, before) = (Instant::now(), received.load(Ordering::Relaxed));
        thread::sleep(MEASURED);
        let bytes = received.load(Ordering::Relaxed) - before;
        let rate = bytes as f64 * 8e-9 / begin.elapsed().as_secs_f64();
        let _ = server.shutdown(std::net::Shutdown::Both);
        let _ = client.shutdown(std::net::Shutdown::Both);
        rate
    });
    assert_eq!(
        common::control(&client),
        control,
        "the wrong congestion control is used"
    );
    rate
}

fn send(mut to: &TcpStream) {
    let bytes = vec![0; CHUNK];
    while to.write_all(&bytes).is_ok() {}
}

fn receive(mut from: &TcpStream, received: &AtomicU64) {
    let mut bytes = vec![0; CHUNK];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        received.fetch_add(n as u64, Ordering::Relaxed);
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

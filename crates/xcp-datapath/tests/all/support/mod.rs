// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Loads the router program and passes single packets through it.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, per second

pub mod crossed;
pub mod edit;
pub mod flow;
pub mod pin;

use std::net::IpAddr;

use libbpf_rs::{Map, MapCore, MapFlags};
use xcp_abi::{
    xcp_cloud, xcp_cloud_backoff, xcp_queue, xcp_router_config, xcp_router_counters,
    xcp_router_cpu, xcp_router_link, Record,
};
use xcp_datapath::router::Options;
use xcp_datapath::Result;
use xcp_testbed::{Bench, TestLock};

/// Repeats an attempt until all its packets fall into one control interval.
pub fn retry_until_one_interval<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let mut result = None;
    xcp_testbed::eventually(|| {
        result = attempt();
        result.is_some()
    });
    result.expect("all packets fall into one control interval")
}

/// The verdict TCX_NEXT: the next program decides.
const NEXT: i32 = -1;

pub struct Router {
    bench: Bench,
    _lock: TestLock,
}

impl Router {
    /// Loads a new router. Returns `None` and prints the reason on stderr if this machine
    /// cannot load one.
    pub fn new(capacity_bytes_per_s: u64) -> Option<Self> {
        Self::with(Options {
            capacity_bytes_per_s,
            ..Default::default()
        })
    }

    /// Loads a new router with these options.
    pub fn with(options: Options) -> Option<Self> {
        Self::load(|| Bench::new(options))
    }

    /// Loads a virtual router that has no measurements of its cloud yet.
    pub fn of_cloud(upstream: u32) -> Option<Self> {
        Self::load(|| Bench::of_cloud(upstream))
    }

    fn load(bench: impl FnOnce() -> Result<Bench>) -> Option<Self> {
        let turn = xcp_testbed::shared_test_lock().expect("the test lock is available");
        if !xcp_testbed::can_run("router on single packets") {
            return None;
        }
        let bench = bench().expect("the router loads");
        Some(Self { bench, _lock: turn })
    }

    /// Writes the measurements of the cloud for a virtual router.
    pub fn update(&self, cloud: xcp_cloud) {
        self.write(".data.cloud", &cloud);
    }

    /// Suspends a virtual router until `suspended_until_ns`.
    pub fn suspend_until(&self, suspended_until_ns: u64) {
        let backoff = xcp_cloud_backoff {
            suspended_until_ns,
            ..xcp_cloud_backoff::default()
        };
        self.write(".data.backoff", &backoff);
    }

    /// Configures the address that the router writes into last_xcp_router.
    pub fn set_edge(&self, edge: Option<IpAddr>) {
        let config: xcp_router_config = self.record(".data.config", 0);
        self.write(
            ".data.config",
            &xcp_datapath::router::with_edge(config, edge),
        );
    }

    /// Changes the capacity, as `xcp router set` does.
    pub fn set_capacity(&self, capacity_Bps: u64) {
        let mut config: xcp_router_config = self.record(".data.config", 0);
        config.params.capacity_Bps = capacity_Bps;
        self.write(".data.config", &config);
    }

    fn write(&self, map: &str, record: &impl Record) {
        self.map(map)
            .update(&0u32.to_ne_bytes(), record.bytes(), MapFlags::ANY)
            .expect("the map is writable");
    }

    pub fn bench(&self) -> &Bench {
        &self.bench
    }

    /// Sends a frame through the router and returns the result; no frame is ever dropped.
    pub fn send(&self, frame: &[u8]) -> Vec<u8> {
        self.try_send(frame).expect("the kernel takes the frame")
    }

    /// Like `send`, but returns `None` if the kernel's test run refuses the frame because
    /// its IP header is cut (on newer kernels, for frames without a VLAN tag).
    pub fn try_send(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let header = match frame[12..14] {
            [0x08, 0x00] => 20,
            [0x86, 0xdd] => 40,
            _ => 0,
        };
        let (out, verdict) = match self.bench.packet(frame) {
            Ok(result) => result,
            Err(_) if frame.len() < 14 + header => return None,
            Err(e) => panic!("the test run fails: {e}"),
        };
        assert_eq!(verdict, NEXT, "verdict");
        assert_eq!(out.len(), frame.len(), "length");
        Some(out)
    }

    pub fn counters(&self) -> xcp_router_counters {
        self.bench.counters().expect("the counters can be read")
    }

    pub fn link(&self) -> xcp_router_link {
        self.record(".data.link", 0)
    }

    /// Gives other traffic a separate queue, as with the `xcp` queue discipline.
    pub fn use_separate_queue(&self) {
        let mut config: xcp_router_config = self.record(".data.config", 0);
        config.queue = 1;
        let queue = xcp_queue {
            present: 1,
            ..xcp_queue::default()
        };
        self.write(".data.config", &config);
        self.write("queues", &queue);
    }

    /// Bytes that arrived for the other queue, since [`Self::reset`].
    pub fn other_B(&self) -> u64 {
        self.sum(|cpu| cpu.other_B)
    }

    /// Bytes of input traffic, since [`Self::reset`].
    pub fn input_B(&self) -> u64 {
        self.sum(|cpu| cpu.sums.input_traffic_B)
    }

    fn sum(&self, of: impl Fn(xcp_router_cpu) -> u64) -> u64 {
        let cpus = self.map("cpus").max_entries();
        (0..cpus).map(|cpu| of(self.record("cpus", cpu))).sum()
    }

    fn record<T: Record>(&self, map: &str, key: u32) -> T {
        let bytes = self
            .map(map)
            .lookup(&key.to_ne_bytes(), MapFlags::ANY)
            .expect("the map is readable")
            .expect("the record exists");
        T::from_bytes(&bytes).expect("the record has the right size")
    }

    /// Control intervals that have ended.
    pub fn intervals(&self) -> u64 {
        self.link().state.intervals
    }

    /// Resets the router to its initial state.
    pub fn reset(&self) {
        for name in [".data.link", "cpus"] {
            let map = self.map(name);
            let zeros = vec![0; map.value_size() as usize];
            for key in 0..map.max_entries() {
                map.update(&key.to_ne_bytes(), &zeros, MapFlags::ANY)
                    .expect("the map is writable");
            }
        }
    }

    fn map(&self, name: &str) -> Map<'_> {
        self.bench
            .object()
            .maps()
            .find(|m| m.name().to_str().is_some_and(|n| n.ends_with(name)))
            .expect("the map exists")
    }
}

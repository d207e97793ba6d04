// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Virtual routers on devices: `xcp edged` adds them, sends them probe results and
//! removes them. The devices are down, so they carry no packets.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::command::{NetNamespace, SystemState};
use crate::common::test_lock;
use xcp_datapath::cloud::{self, Reading, State, Status, Virtual};
use xcp_datapath::monotonic_ns;
use xcp_testbed::{can_run, eventually};

const PINS: &str = "/sys/fs/bpf/xcp/cloud";

/// Runs a test in a namespace with a device v0; it must leave nothing behind.
fn on_a_device(test: &str, body: impl FnOnce(&NetNamespace)) {
    let _lock = test_lock();
    if !can_run(test) {
        return;
    }
    let Some(before) = SystemState::capture_before(test) else {
        return;
    };
    body(&NetNamespace::new("cloud"));
    before.assert_nothing_left();
}

fn upstream() -> IpAddr {
    "10.79.2.254".parse().unwrap()
}

fn reading() -> Reading {
    Reading {
        now_ns: monotonic_ns(),
        wait_ns: 3_500_000,
        free_bytes_per_s: 1_250_000,
        error_bytes_per_s: 125_000,
        free_at_ns: monotonic_ns() - 2_000_000_000,
        routers: 2,
        base_probe: (1_000, 31_000),
        no_delta_limit: false,
    }
}

fn the_only_one() -> Status {
    let mut all = cloud::list().unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// The pin folders of all virtual routers of the system.
fn pins() -> Vec<PathBuf> {
    let entries = fs::read_dir(PINS).into_iter().flatten();
    entries.map(|e| e.unwrap().path()).collect()
}

/// The inode of the only pinned BPF link: a new link has another one.
fn link() -> u64 {
    let pins = pins();
    assert_eq!(pins.len(), 1, "{pins:?}");
    fs::metadata(pins[0].join("link")).unwrap().ino()
}

#[test]
fn a_virtual_router_is_suspended_without_recent_probes() {
    on_a_device("virtual router", |space| {
        space.within(|| {
            let router = Virtual::add("v0", upstream()).unwrap().unwrap();
            assert_eq!(router.ifindex, index_of("v0"));
            let status = the_only_one();
            assert_eq!((status.device.as_str(), status.routers), ("v0", 0));
            assert_eq!(status.upstream, Some(upstream()));
            assert_eq!((status.state, status.age_ms), (State::Unknown, None));

            let in_force = || {
                router.update(reading()).unwrap();
                the_only_one().state == State::Granting
            };
            assert!(eventually(in_force));
            sleep(Duration::from_millis(60));
            let status = the_only_one();
            assert_eq!(status.state, State::Unknown, "{status:?}");
            assert!(status.age_ms >= Some(60.0), "{status:?}");
            assert_eq!((status.routers, status.free_bps), (2, 10_000_000));
            assert_eq!(status.error_bps, 1_000_000);
            assert!(status.free_age_ms >= Some(2_060.0), "{status:?}");
            assert_eq!((status.queue_delay_ms, status.xcp_packets), (3.5, 0));
            assert!(eventually(in_force), "not resumed after another probe");
            assert_eq!(the_only_one().input_rate_bps, 0);
            router.del().unwrap();
            assert!(cloud::list().unwrap().is_empty());
        });
        assert!(!Path::new("/sys/fs/bpf/xcp").exists());
    });
}

#[test]
fn a_restarted_daemon_takes_over_its_virtual_router() {
    on_a_device("virtual router taken over", |space| {
        let other = NetNamespace::new("other");
        space.within(|| {
            let first = Virtual::add("v0", upstream()).unwrap().unwrap();
            assert_eq!(cloud::base_probe(upstream()), None);
            first.update(reading()).unwrap();
            let before = link();
            drop(first);
            let second = Virtual::add("v0", upstream()).unwrap().unwrap();
            assert_eq!(link(), before, "the link must stay the same");
            assert_eq!(
                the_only_one().queue_delay_ms,
                3.5,
                "the last reading must stay"
            );
            assert_eq!(cloud::base_probe(upstream()), Some(((1_000, 31_000), 2)));
            assert_eq!(cloud::base_probe("10.79.2.1".parse().unwrap()), None);

            // an incomplete one is set up again
            let complete = pins()[0].join("complete");
            fs::remove_dir_all(complete).unwrap();
            assert!(cloud::list().unwrap().is_empty());
            let third = Virtual::add("v0", upstream()).unwrap().unwrap();
            assert_ne!(link(), before);
            assert!(the_only_one().age_ms.is_none());
            drop(second);

            // there is one for each pair of upstream router and device
            let v6 = "2001:db8::1".parse().unwrap();
            let of_v6 = Virtual::add("v0", v6).unwrap().unwrap();
            let of_v1 = Virtual::add("v1", upstream()).unwrap().unwrap();
            let all = cloud::list().unwrap();
            let mut of: Vec<_> = all.iter().filter_map(|s| s.upstream).collect();
            of.sort_unstable();
            assert_eq!(of, [upstream(), upstream(), v6]);
            other.within(|| assert!(cloud::list().unwrap().is_empty()));
            for router in [third, of_v6, of_v1] {
                router.del().unwrap();
            }
        });
        assert!(pins().is_empty());
    });
}

#[test]
fn virtual_routers_of_deleted_devices_are_removed() {
    on_a_device("virtual router of a deleted device", |space| {
        space.within(|| Virtual::add("v0", upstream()).map(drop).unwrap());
        assert_eq!(pins().len(), 1);
        space.device("del v0");
        space.device("add w0 type veth peer name w1");
        space.within(|| {
            assert!(Virtual::add("v0", upstream()).is_err(), "no such device");
            let router = Virtual::add("w0", upstream()).unwrap().unwrap();
            assert_eq!(the_only_one().device, "w0");
            assert_eq!(pins().len(), 1);
            router.del().unwrap();
        });
        assert!(pins().is_empty());
    });
}

/// A killed daemon leaves its virtual router behind. If the daemon is not started again
/// with the same upstream router, the virtual router is removed.
#[test]
fn virtual_routers_without_recent_updates_are_removed() {
    on_a_device("virtual router without a daemon", |space| {
        space.within(|| {
            let router = Virtual::add("v0", upstream()).unwrap().unwrap();
            let now_ns = monotonic_ns();
            router.update(reading()).unwrap();
            cloud::clear_old(now_ns).unwrap();
            assert_eq!(pins().len(), 1);
            cloud::clear_old(monotonic_ns()).unwrap();
            assert!(pins().is_empty());
        });
    });
}

/// A virtual router is shown in the namespace of its device, and its daemon can remove
/// it there.
#[test]
fn a_virtual_router_moves_with_its_device() {
    on_a_device("virtual router, moved", |home| {
        let away = NetNamespace::new("away");
        home.device("set v0 name m0");
        home.within(|| Virtual::add("m0", upstream()).map(drop).unwrap());
        home.move_to("m0", &away);
        home.within(|| assert!(cloud::list().unwrap().is_empty()));
        away.within(|| {
            assert_eq!(the_only_one().device, "m0");
            cloud::clear().unwrap(); // it belongs to another daemon
            assert_eq!(pins().len(), 1);
        });
        home.within(|| cloud::clear().unwrap());
        assert!(pins().is_empty());
    });
}

/// The first device has moved to another namespace, with its virtual router.
#[test]
fn a_new_device_with_the_same_index_gets_its_own_virtual_router() {
    on_a_device("virtual router, index taken", |home| {
        let away = NetNamespace::new("away");
        home.device("set v0 name m0");
        let number = home.within(|| {
            Virtual::add("m0", upstream()).map(drop).unwrap();
            index_of("m0")
        });
        let before = link();
        home.move_to("m0", &away);
        home.device(&format!("add w0 index {number} type veth peer name w1"));
        home.within(|| {
            let router = Virtual::add("w0", upstream()).unwrap().unwrap();
            assert_ne!(link(), before);
            assert_eq!(the_only_one().device, "w0");
            router.del().unwrap();
        });
        assert!(pins().is_empty());
    });
}

fn index_of(device: &str) -> u32 {
    let name = std::ffi::CString::new(device).unwrap();
    // SAFETY: the argument is a C string.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

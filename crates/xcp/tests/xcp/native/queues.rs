// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Routers on devices with several queues: the backlogs and byte counters of all queues
//! are added up, also if they count per CPU.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use super::ethtool::set_queues;
use crate::command::NetNamespace;
use crate::common::{test_lock, wait_until};
use serde_json::Value;
use xcp_testbed::can_run;

const QUEUES: usize = 4;
/// The UDP payload, and the size of a packet with its headers.
const PAYLOAD_B: usize = 958;
const PACKET_B: u64 = 1000;
/// After this time, the next packet makes the router read the link's counters again.
const LOOK: Duration = Duration::from_millis(10);

/// Adds a device `m0` with several queues, and a neighbour to send to.
fn multi_queue(space: &NetNamespace) {
    space.device(&format!(
        "add m0 numtxqueues {QUEUES} type veth peer name m1 numrxqueues {QUEUES}"
    ));
    for device in ["m0", "m1"] {
        space.device(&format!("set {device} up"));
    }
    space.address("add 10.78.0.1/24 dev m0");
    space.neighbour("add 10.78.0.2 lladdr 02:00:00:00:00:02 dev m0");
}

/// Moves this thread to CPU 0 (n even) or CPU 1 (n odd), if there are two.
fn move_to_cpu(n: usize) {
    // SAFETY: a cpu_set_t is plain bits, valid for any value, and outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(n % 2, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Sends packets from several CPUs and sockets, so that they use different queues.
fn send(packets: usize) {
    for number in 0..packets {
        move_to_cpu(number);
        let socket = UdpSocket::bind("10.78.0.1:0").unwrap();
        let port = 1000 + number as u16;
        socket
            .send_to(&[0; PAYLOAD_B], ("10.78.0.2", port))
            .unwrap();
    }
}

/// A counter of all queue disciplines of one kind, from tc.
fn qdisc_counters(space: &NetNamespace, kind: &str, counter: &str) -> Vec<u64> {
    let all: Value = serde_json::from_str(&space.tc("-s -j qdisc show dev m0")).unwrap();
    let all = all.as_array().unwrap();
    all.iter()
        .filter(|qdisc| qdisc["kind"] == kind)
        .map(|qdisc| qdisc[counter].as_u64().unwrap())
        .collect()
}

#[test]
fn the_backlog_is_the_sum_of_all_queues() {
    let _lock = test_lock();
    if !can_run("backlog of several queues") {
        return;
    }
    let space = NetNamespace::new("mq");
    multi_queue(&space);
    space.tc("qdisc replace dev m0 root handle 1: mq");
    for queue in 1..=QUEUES {
        // one packet is dequeued every 100 s
        space.tc(&format!(
            "qdisc add dev m0 parent 1:{queue} tbf rate 80bit burst 2k limit 100k"
        ));
    }
    space.xcp("router add m0 --capacity 10mbit").ok();
    space.within(|| send(60));
    thread::sleep(LOOK);
    let held = qdisc_counters(&space, "tbf", "backlog");
    space.within(|| send(1));

    assert!(held.iter().filter(|&&b| b > 0).count() >= 2, "{held:?}");
    let status = space.xcp("router show m0 --json").ok().json();
    let seen = status["queue_bytes"].as_u64().unwrap();
    let held: u64 = held.iter().sum();
    assert!(held >= 40 * PACKET_B, "{held}");
    assert!(seen.abs_diff(held) <= 2 * PACKET_B, "{seen} of {held}");
    space.xcp("router del m0").ok();
}

#[test]
fn queue_counters_per_cpu_are_added_up() {
    let _lock = test_lock();
    if !can_run("queues counted per CPU") {
        return;
    }
    let space = NetNamespace::new("mqf");
    multi_queue(&space);
    // pfifo_fast has no lock, so it counts per CPU
    space.tc("qdisc replace dev m0 root pfifo_fast");
    space.xcp("router add m0 --capacity 10mbit").ok();
    let sent = || {
        qdisc_counters(&space, "pfifo_fast", "bytes")
            .iter()
            .sum::<u64>()
    };
    let link = space.within(|| {
        send(100);
        wait_until("100 packets sent", || sent() >= 100 * PACKET_B);
        thread::sleep(LOOK);
        send(1);
        xcp_testbed::router_link("m0").unwrap()
    });
    wait_until("the last packet sent", || sent() >= 101 * PACKET_B);
    let sent = sent();
    // the last packet was not sent yet when the router read the counters
    assert!(link.seen.sent_B >= 100 * PACKET_B, "{}", link.seen.sent_B);
    assert!(
        sent - link.seen.sent_B <= 2 * PACKET_B,
        "{} of {sent}",
        link.seen.sent_B
    );
    assert_eq!(link.seen.backlog_B, 0);
    space.xcp("router del m0").ok();
}

/// `ethtool -L` changes the number of queues. Queues that return have their old counters,
/// which must not count as packets that were just sent.
#[test]
fn changing_the_number_of_queues_does_not_count_as_traffic() {
    let _lock = test_lock();
    let test = "number of queues";
    if !can_run(test) {
        return;
    }
    let space = NetNamespace::new("mqn");
    multi_queue(&space);
    space.tc("qdisc replace dev m0 root handle 1: mq");
    for queue in 1..=QUEUES {
        space.tc(&format!("qdisc add dev m0 parent 1:{queue} pfifo"));
    }
    space.within(|| send(400));
    let sent = qdisc_counters(&space, "pfifo", "bytes");
    assert!(sent[1..].iter().sum::<u64>() > 100 * PACKET_B, "{sent:?}");
    space.xcp("router add m0 --capacity 10mbit").ok();
    let seen = || xcp_testbed::router_link("m0").unwrap().seen.sent_B;
    space.within(|| {
        // the router reads the counters for the first time
        send(1);
        set_queues("m0", 1).unwrap();
        thread::sleep(LOOK);
        send(1);
        let few = seen();
        set_queues("m0", QUEUES as u32).unwrap();
        thread::sleep(LOOK);
        send(1);
        let more = seen() - few;
        assert!(more <= 2 * PACKET_B, "{more} B counted as sent");
    });
    space.xcp("router del m0").ok();
}

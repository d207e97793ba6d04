// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Conservation: the sum of the deltas that routers granted equals what senders applied
//! plus what lost packets carried, exactly. The tests include offload, delayed ACKs, and
//! SACK blocks that leave no room for the option.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    self, pattern, test_lock, transfer, wait_for_acks, HostOn, Net, LINK_BYTES_PER_S,
};
use xcp_datapath::host::Sums2005;
use xcp_datapath::{host, router, SenderFeature, Wire};
use xcp_testbed::{can_run, FaultCounters, FaultInjector, FaultPlan, PATIENCE};

const BYTES: usize = 8_000_000;

#[derive(Debug)]
struct DeltaSums {
    granted: Option<i64>,
    hosts: host::Counters,
    /// Sums in the unit of the run's wire format.
    sums: Sums2005,
    lost: FaultCounters,
    /// What both receivers may hold back: less than one unit of a running total each.
    max_unreturned: i64,
    /// Every packet since the handshake has arrived, or the fault injector has counted
    /// it as dropped.
    complete: bool,
}

/// Numbers of headers that were sent and not received. The handshake has some: a peer
/// does not count headers before it knows that the other peer uses XCP.
struct HeadersInFlight {
    forward: u64,
    returned: u64,
    dropped: u64,
}

impl HeadersInFlight {
    fn now(faults: &FaultInjector) -> Self {
        let hosts = host::counters().unwrap();
        Self {
            forward: hosts.forward_sent.wrapping_sub(hosts.forward_received),
            returned: hosts.return_sent.wrapping_sub(hosts.return_received),
            dropped: faults.account().unwrap().dropped,
        }
    }

    /// Whether the headers missing since then are exactly those that were dropped.
    fn are_dropped_since(&self, before: &Self, how: &RunOptions) -> bool {
        let dropped = self.dropped - before.dropped;
        let acks = how.plan.drop_return != 0;
        // a header in a data packet always has return fields; an option is sent for the
        // return direction only if there is something to return
        let least = match acks || how.wire.is_some_and(Wire::is_header) {
            true => dropped,
            false => 0,
        };
        let returned = self.returned.wrapping_sub(before.returned);
        self.forward.wrapping_sub(before.forward) == if acks { 0 } else { dropped }
            && (least..=dropped).contains(&returned)
    }
}

impl DeltaSums {
    /// The first equation that does not hold.
    fn imbalance(&self) -> Option<&'static str> {
        let Self { sums, lost, .. } = self;
        let lost_with_data = lost.lost_delta_bytes_per_s;
        let lost_with_acks = lost.lost_feedback_bytes_per_s;
        let holds = [
            (
                "granted = received + lost with data",
                self.granted
                    .is_none_or(|granted| granted == sums.received + lost_with_data),
            ),
            (
                "received = returned",
                (0..=self.max_unreturned).contains(&(sums.received - sums.returned)),
            ),
            (
                "returned = come back + lost with ACKs",
                sums.returned == sums.feedback + lost_with_acks,
            ),
        ];
        let wrong = holds.into_iter().find(|(_, holds)| !holds);
        wrong.map(|(equation, _)| equation)
    }
}

/// The receiver's TCP discards a spurious retransmission before its option is counted,
/// so the delta that it carried is unknown. The same happens to an ACK that arrives
/// after later data of the same host. This happens on a busy machine; such runs are
/// repeated.
const RUNS: usize = 20;

/// Runs transfers with faults on the router's link to the server (data) or to the
/// client (ACKs), and reads all counters when no packet is in flight.
fn run_until_complete(how: RunOptions) -> DeltaSums {
    let mut books = run(how);
    for again in 1..RUNS {
        if books.complete {
            break;
        }
        println!("run {again} is incomplete: {books:?}");
        books = run(how);
    }
    books
}

/// The parameters of a run.
#[derive(Clone, Copy)]
struct RunOptions {
    name: &'static str,
    /// None: `option`, without the device programs that make room on ACKs full of SACK
    /// blocks.
    wire: Option<Wire>,
    plan: FaultPlan,
    /// The capacity of the routers, bytes per second.
    capacity: u64,
    measure: bool,
    both_ways: bool,
    bytes: usize,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            name: "n",
            wire: None,
            plan: FaultPlan::default(),
            capacity: LINK_BYTES_PER_S,
            measure: true,
            both_ways: false,
            bytes: BYTES,
        }
    }
}

fn run(how: RunOptions) -> DeltaSums {
    let RunOptions { name, plan, .. } = how;
    let net = Net::new(name);
    net.add_routers_with(router::Options {
        capacity_bytes_per_s: how.capacity,
        measure: how.measure,
        ..Default::default()
    });
    // the loss response would make windows too small for many holes at a time
    let _host = HostOn::without(&[SenderFeature::Losses]);
    if let Some(wire) = how.wire {
        net.set_wire_format(wire);
        // a dropped packet must be one segment, not a GSO packet
        net.tool("c", "ip link set dev r gso_max_segs 1");
    }
    for (node, gateway) in [("c", "10.77.1.2"), ("s", "10.77.2.1")] {
        // timeouts of 200 ms would be most of a run; delayed ACKs take up to 40 ms
        net.tool(
            node,
            &format!("ip route change default via {gateway} rto_min 60ms"),
        );
    }
    let dev = if plan.drop_return != 0 { "c" } else { "s" };
    let faults = net.within("r", || FaultInjector::start(dev, plan).unwrap());
    let syn = FaultPlan {
        strip: plan.strip & TOTALS_OF_SYN,
        ..Default::default()
    };
    let _syn = net.within("r", || {
        (dev == "c").then(|| FaultInjector::start("s", syn).unwrap())
    });
    let (mut client, mut server) = net.connect("xcp", "xcp");
    let handshake = HeadersInFlight::now(&faults);
    let bytes = pattern(how.bytes);
    if how.both_ways {
        thread::scope(|scope| {
            let (mut a, mut b) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let answer = &bytes;
            scope.spawn(move || transfer(&mut b, &mut a, answer));
            transfer(&mut client, &mut server, &bytes);
        });
    } else {
        transfer(&mut client, &mut server, &bytes);
    }
    // what did not fit into an ACK is sent with the next ones
    faults.plan(FaultPlan::default()).unwrap();
    for _ in 0..4 {
        wait_for_acks([&client, &server]);
        transfer(&mut client, &mut server, b"x");
        transfer(&mut server, &mut client, b"x");
    }
    wait_for_acks([&client, &server]);
    assert_eq!(common::control(&client), "xcp", "the client must use XCP");
    // TCP frees the data before it applies the feedback of the same ACK
    let begun = Instant::now();
    loop {
        let books = read(&how, &net, &faults, &handshake);
        let waited = begun.elapsed();
        if books.imbalance().is_none() && books.complete
            || waited > LATE && !books.complete
            || waited > PATIENCE
        {
            return books;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// How long a run may be incomplete before it is repeated.
const LATE: Duration = Duration::from_secs(1);

fn read(
    how: &RunOptions,
    net: &Net,
    faults: &FaultInjector,
    handshake: &HeadersInFlight,
) -> DeltaSums {
    let complete = HeadersInFlight::now(faults).are_dropped_since(handshake, how);
    let granted = net.within("r", || {
        let all = router::list().unwrap();
        all.iter().map(|r| r.counters.granted_bytes_per_s).sum()
    });
    let hosts = host::counters().unwrap();
    DeltaSums {
        // routers count in B/s, hosts with this format in packets
        granted: (how.wire != Some(Wire::Option2005)).then_some(granted),
        sums: match how.wire {
            Some(Wire::Option2005) => hosts.option_2005,
            _ => Sums2005 {
                received: hosts.received_bytes_per_s,
                returned: hosts.returned_bytes_per_s,
                unreturned: hosts.unreturned_bytes_per_s,
                feedback: hosts.feedback_bytes_per_s,
                applied: hosts.applied_bytes_per_s,
            },
        },
        hosts,
        lost: faults.account().unwrap(),
        max_unreturned: match how.wire {
            None | Some(Wire::Option) if how.plan.strip == 0 => 2 * 7,
            _ => 0,
        },
        complete,
    }
}

fn assert_balanced(books: &DeltaSums) {
    println!("{books:?}");
    assert!(books.hosts.forward_received > 1000 && books.sums.feedback != 0);
    assert_eq!(books.imbalance(), None, "{books:?}");
}

#[test]
fn deltas_are_conserved_without_loss() {
    let _lock = test_lock();
    if !can_run("conservation without loss") {
        return;
    }
    let books = run_until_complete(RunOptions::default());
    assert_balanced(&books);
    assert_eq!(books.sums.feedback, books.sums.applied, "not all applied");
    assert!(
        books.hosts.return_sent < books.hosts.forward_received,
        "no ACK was delayed and no segments were merged"
    );
}

#[test]
fn deltas_are_conserved_with_lost_data_and_acks_full_of_sack_blocks() {
    let _lock = test_lock();
    if !can_run("conservation with lost data") {
        return;
    }
    // it depends on timing whether SACK blocks fill an ACK
    let crowded = (0..RUNS).any(|_| {
        let books = run_until_complete(RunOptions {
            name: "d",
            ..many_holes()
        });
        assert_balanced(&books);
        assert!(books.lost.dropped > 10);
        books.hosts.return_no_room > 0
    });
    assert!(crowded, "SACK blocks never filled an ACK");
}

/// The routers grant more than the link carries. The queue stays long, and enough
/// packets are in flight that several are missing at a time.
fn many_holes() -> RunOptions {
    RunOptions {
        plan: FaultPlan {
            drop_every: 40,
            ..Default::default()
        },
        capacity: 3 * LINK_BYTES_PER_S,
        measure: false,
        ..RunOptions::default()
    }
}

#[test]
fn deltas_are_conserved_with_lost_data_in_every_wire_format() {
    let _lock = test_lock();
    if !can_run("conservation in every format") {
        return;
    }
    for wire in Wire::ALL {
        let mut how = RunOptions {
            name: "w",
            wire: Some(wire),
            // longer than the router's first control interval, which grants nothing
            bytes: BYTES / 2,
            ..many_holes()
        };
        how.plan.drop_every = 12;
        if wire == Wire::Option2005 {
            // its ACKs are short and have room for two SACK blocks: the test needs three
            // holes at a time, so a longer queue
            how.capacity = 5 * LINK_BYTES_PER_S;
        }
        let mut books = run_until_complete(how);
        println!("{wire}");
        for _ in 1..RUNS {
            // the number of holes at a time depends on timing
            if wire.is_header() || books.hosts.sacks_trimmed > 0 {
                break;
            }
            books = run_until_complete(how);
        }
        assert_balanced(&books);
        assert!(books.lost.dropped > 10);
        if !wire.is_header() {
            let hosts = &books.hosts;
            assert!(
                hosts.sacks_trimmed > 0,
                "no ACK had three SACK blocks: {hosts:?}"
            );
            assert!(hosts.return_sent > hosts.return_no_room, "{hosts:?}");
        }
    }
}

#[test]
fn deltas_are_conserved_with_lost_acks_in_other_wire_formats() {
    let _lock = test_lock();
    if !can_run("conservation in every format with lost ACKs") {
        return;
    }
    for wire in [Wire::Option2005, Wire::Header] {
        let books = run_until_complete(RunOptions {
            name: "v",
            wire: Some(wire),
            bytes: BYTES / 2,
            plan: FaultPlan {
                drop_every: 10,
                drop_return: 1,
                ..Default::default()
            },
            ..RunOptions::default()
        });
        assert_balanced(&books);
        assert!(books.lost.dropped > 10);
    }
}

#[test]
fn deltas_are_conserved_with_lost_acks() {
    let _lock = test_lock();
    if !can_run("conservation with lost ACKs") {
        return;
    }
    let plan = FaultPlan {
        drop_every: 10,
        drop_return: 1,
        ..Default::default()
    };
    let books = run_until_complete(RunOptions {
        name: "a",
        plan,
        ..RunOptions::default()
    });
    assert_balanced(&books);
    assert!(books.lost.dropped > 10);
    assert_eq!(
        books.lost.lost_feedback_bytes_per_s, 0,
        "a lost running total must lose no feedback"
    );
}

/// Different versions are compatible: if one peer does not support running totals, the
/// other returns differences, and the feedback in a lost ACK is lost.
#[test]
fn deltas_are_conserved_with_lost_acks_and_a_peer_without_totals() {
    let _lock = test_lock();
    if !can_run("conservation with a peer without running totals") {
        return;
    }
    for strip in [TOTALS_OF_SYN, TOTALS_OF_SYN_ACK] {
        let books = run_until_complete(RunOptions {
            name: "o",
            plan: FaultPlan {
                strip,
                drop_every: 10,
                drop_return: 1,
                ..Default::default()
            },
            ..RunOptions::default()
        });
        assert_balanced(&books);
        assert!(books.lost.dropped > 10);
        assert_ne!(books.lost.lost_feedback_bytes_per_s, 0);
    }
}

/// Bits of `FaultPlan::strip`.
const TOTALS_OF_SYN: u32 = 8;
const TOTALS_OF_SYN_ACK: u32 = 16;

#[test]
fn deltas_are_conserved_with_data_in_both_directions() {
    let _lock = test_lock();
    if !can_run("conservation with data in both directions") {
        return;
    }
    let books = run_until_complete(RunOptions {
        name: "b",
        both_ways: true,
        ..RunOptions::default()
    });
    assert_balanced(&books);
}

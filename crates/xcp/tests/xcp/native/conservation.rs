// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Conservation: what routers granted is what senders applied, and what lost
//! packets carried, to the last byte per second. With offload, delayed ACKs,
//! and SACK blocks that crowd the option out.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{self, pattern, test_lock, transfer, wait_for_acks, HostOn, Net, LINK_BPS};
use xcp_datapath::host::Sums2005;
use xcp_datapath::{host, router, SenderFeature, Wire};
use xcp_testbed::{can_run, FaultCounters, FaultInjector, FaultPlan, PATIENCE};

const BYTES: usize = 8_000_000;

#[derive(Debug)]
struct Books {
    granted: Option<i64>,
    hosts: host::Counters,
    /// In the unit of the run's wire format.
    sums: Sums2005,
    lost: FaultCounters,
    /// Both receivers keep what is less than the unit of a running total.
    may_wait: i64,
    /// Every packet since the handshake has arrived, or the accident has
    /// counted it.
    complete: bool,
}

/// Headers that were sent and have not been received. In the handshake there
/// are some: nobody counts them before both ends know that they speak XCP.
struct Missing {
    forward: u64,
    returned: u64,
    dropped: u64,
}

impl Missing {
    fn now(accident: &FaultInjector) -> Self {
        let hosts = host::counters().unwrap();
        Self {
            forward: hosts.forward_sent.wrapping_sub(hosts.forward_received),
            returned: hosts.return_sent.wrapping_sub(hosts.return_received),
            dropped: accident.account().unwrap().dropped,
        }
    }

    /// Whether those that are missing since are those that were dropped.
    fn are_dropped_since(&self, before: &Self, how: &How) -> bool {
        let dropped = self.dropped - before.dropped;
        let acks = how.plan.drop_return != 0;
        // data has a header for both ways, but options as they are needed: the
        // first window's do, for nothing has come back yet
        let least = match acks || how.wire.is_some_and(Wire::is_header) {
            true => dropped,
            false => 0,
        };
        let returned = self.returned.wrapping_sub(before.returned);
        self.forward.wrapping_sub(before.forward) == if acks { 0 } else { dropped }
            && (least..=dropped).contains(&returned)
    }
}

impl Books {
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
                (0..=self.may_wait).contains(&(sums.received - sums.returned)),
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

/// A segment that is sent twice for nothing, as on a busy machine, is thrown
/// away by the receiver's TCP before anyone sees its option: it is lost, but
/// nobody can tell what it carried. So is an ACK that data of the same host has
/// overtaken. Such runs are made again.
const RUNS: usize = 20;

/// Runs transfers with an accident on the router's link to the server (data)
/// or to the client (ACKs), and reads all the books when all is quiet.
fn keep_books(how: How) -> Books {
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

/// What a run is like.
#[derive(Clone, Copy)]
struct How {
    name: &'static str,
    /// None: `option`, without the devices that make room on crowded ACKs.
    wire: Option<Wire>,
    plan: FaultPlan,
    /// Of the routers, bytes per second.
    capacity: u64,
    measure: bool,
    both_ways: bool,
    bytes: usize,
}

impl Default for How {
    fn default() -> Self {
        Self {
            name: "n",
            wire: None,
            plan: FaultPlan::default(),
            capacity: LINK_BPS,
            measure: true,
            both_ways: false,
            bytes: BYTES,
        }
    }
}

fn run(how: How) -> Books {
    let How { name, plan, .. } = how;
    let net = Net::new(name);
    net.add_routers_with(router::Options {
        capacity_bytes_per_s: how.capacity,
        measure: how.measure,
        ..Default::default()
    });
    // with every twelfth packet lost, windows would be too small for many holes
    let _host = HostOn::without(&[SenderFeature::Losses]);
    if let Some(wire) = how.wire {
        net.speak(wire);
        // a lost packet is one hole, not a super-packet's
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
    let accident = net.within("r", || FaultInjector::start(dev, plan).unwrap());
    let syn = FaultPlan {
        strip: plan.strip & TOTALS_OF_SYN,
        ..Default::default()
    };
    let _syn = net.within("r", || {
        (dev == "c").then(|| FaultInjector::start("s", syn).unwrap())
    });
    let (mut client, mut server) = net.connect("xcp", "xcp");
    let handshake = Missing::now(&accident);
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
    // whatever an ACK had no room for goes out with the next ones
    accident.plan(FaultPlan::default()).unwrap();
    for _ in 0..4 {
        wait_for_acks([&client, &server]);
        transfer(&mut client, &mut server, b"x");
        transfer(&mut server, &mut client, b"x");
    }
    wait_for_acks([&client, &server]);
    assert_eq!(common::control(&client), "xcp", "it must have been XCP");
    // TCP frees the data before it applies the feedback of the same ACK
    let begun = Instant::now();
    loop {
        let books = read(&how, &net, &accident, &handshake);
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

/// How long a run may be incomplete before it is made again.
const LATE: Duration = Duration::from_secs(1);

fn read(how: &How, net: &Net, accident: &FaultInjector, handshake: &Missing) -> Books {
    let complete = Missing::now(accident).are_dropped_since(handshake, how);
    let granted = net.within("r", || {
        let all = router::list().unwrap();
        all.iter().map(|r| r.counters.granted_bytes_per_s).sum()
    });
    let hosts = host::counters().unwrap();
    Books {
        // routers count in B/s, hosts of this format in packets
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
        lost: accident.account().unwrap(),
        may_wait: match how.wire {
            None | Some(Wire::Option) if how.plan.strip == 0 => 2 * 7,
            _ => 0,
        },
        complete,
    }
}

fn assert_balanced(books: &Books) {
    println!("{books:?}");
    assert!(books.hosts.forward_received > 1000 && books.sums.feedback != 0);
    assert_eq!(books.imbalance(), None, "{books:?}");
}

#[test]
fn without_loss() {
    let _turn = test_lock();
    if !can_run("conservation without loss") {
        return;
    }
    let books = keep_books(How::default());
    assert_balanced(&books);
    assert_eq!(books.sums.feedback, books.sums.applied, "all of it applied");
    assert!(
        books.hosts.return_sent < books.hosts.forward_received,
        "ACKs were delayed, or segments merged"
    );
}

#[test]
fn with_lost_data_and_crowded_acks() {
    let _turn = test_lock();
    if !can_run("conservation with lost data") {
        return;
    }
    // whether blocks fill an ACK depends on when packets arrive
    let crowded = (0..RUNS).any(|_| {
        let books = keep_books(How {
            name: "d",
            ..many_holes()
        });
        assert_balanced(&books);
        assert!(books.lost.dropped > 10);
        books.hosts.return_crowded > 0
    });
    assert!(crowded, "SACK blocks left no room at least once");
}

/// More than the link carries: a standing queue, and so many packets on their
/// way that there are several holes at a time.
fn many_holes() -> How {
    How {
        plan: FaultPlan {
            drop_every: 40,
            ..Default::default()
        },
        capacity: 3 * LINK_BPS,
        measure: false,
        ..How::default()
    }
}

#[test]
fn in_every_format_with_lost_data() {
    let _turn = test_lock();
    if !can_run("conservation in every format") {
        return;
    }
    for wire in Wire::ALL {
        let mut how = How {
            name: "w",
            wire: Some(wire),
            // longer than the router's first interval, in which it grants nothing
            bytes: BYTES / 2,
            ..many_holes()
        };
        how.plan.drop_every = 12;
        if wire == Wire::Option2005 {
            // its short ACKs have room for two SACK blocks: three holes are
            // needed at a time, in a longer queue
            how.capacity = 5 * LINK_BPS;
        }
        let mut books = keep_books(how);
        println!("{wire}");
        for _ in 1..RUNS {
            // how many holes there are at a time is a matter of timing
            if wire.is_header() || books.hosts.sacks_trimmed > 0 {
                break;
            }
            books = keep_books(how);
        }
        assert_balanced(&books);
        assert!(books.lost.dropped > 10);
        if !wire.is_header() {
            let hosts = &books.hosts;
            assert!(
                hosts.sacks_trimmed > 0,
                "ACKs with three SACK blocks: {hosts:?}"
            );
            assert!(hosts.return_sent > hosts.return_crowded, "{hosts:?}");
        }
    }
}

#[test]
fn in_every_format_with_lost_acks() {
    let _turn = test_lock();
    if !can_run("conservation in every format with lost ACKs") {
        return;
    }
    for wire in [Wire::Option2005, Wire::Header] {
        let books = keep_books(How {
            name: "v",
            wire: Some(wire),
            bytes: BYTES / 2,
            plan: FaultPlan {
                drop_every: 10,
                drop_return: 1,
                ..Default::default()
            },
            ..How::default()
        });
        assert_balanced(&books);
        assert!(books.lost.dropped > 10);
    }
}

#[test]
fn with_lost_acks() {
    let _turn = test_lock();
    if !can_run("conservation with lost ACKs") {
        return;
    }
    let plan = FaultPlan {
        drop_every: 10,
        drop_return: 1,
        ..Default::default()
    };
    let books = keep_books(How {
        name: "a",
        plan,
        ..How::default()
    });
    assert_balanced(&books);
    assert!(books.lost.dropped > 10);
    assert_eq!(books.lost.lost_feedback_bytes_per_s, 0, "it was a total");
}

/// Versions understand each other: if one end does not know totals, the other
/// returns differences, and what a lost ACK returned is lost.
#[test]
fn with_lost_acks_and_a_peer_that_knows_no_totals() {
    let _turn = test_lock();
    if !can_run("conservation with a peer that knows no totals") {
        return;
    }
    for strip in [TOTALS_OF_SYN, TOTALS_OF_SYN_ACK] {
        let books = keep_books(How {
            name: "o",
            plan: FaultPlan {
                strip,
                drop_every: 10,
                drop_return: 1,
                ..Default::default()
            },
            ..How::default()
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
fn with_data_both_ways() {
    let _turn = test_lock();
    if !can_run("conservation with data both ways") {
        return;
    }
    let books = keep_books(How {
        name: "b",
        both_ways: true,
        ..How::default()
    });
    assert_balanced(&books);
}

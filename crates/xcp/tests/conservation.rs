// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Conservation: what routers granted is what senders applied, and what lost
//! packets carried, to the last byte per second. With offload, delayed ACKs,
//! and SACK blocks that crowd the option out.

mod common;

use common::{pattern, settle, transfer, turn, HostOn, Net, LINK_BPS};
use xcp_datapath::testing::can_run;
use xcp_datapath::testing::{Accident, AccidentAccount, AccidentPlan};
use xcp_datapath::{host, router};

const BYTES: usize = 8_000_000;

struct Books {
    granted: i64,
    hosts: host::Counters,
    lost: AccidentAccount,
}

/// A segment that is sent twice for nothing, as on a busy machine, is thrown
/// away by the receiver's TCP before anyone sees its option: it is lost, but
/// nobody can tell what it carried. Such runs are made again.
const RUNS: usize = 5;

/// Runs transfers with an accident on the router's link to the server (data)
/// or to the client (ACKs), and reads all the books when all is quiet.
fn keep_books(name: &str, plan: AccidentPlan, capacity: u64, both_ways: bool) -> Books {
    let mut books = run(name, plan, capacity, both_ways);
    for _ in 1..RUNS {
        let lost = if plan.drop_return == 0 {
            books.lost.dropped
        } else {
            0
        };
        if books.hosts.forward_sent == books.hosts.forward_received + lost {
            break;
        }
        books = run(name, plan, capacity, both_ways);
    }
    books
}

fn run(name: &str, plan: AccidentPlan, capacity: u64, both_ways: bool) -> Books {
    let net = Net::new(name);
    net.add_routers(capacity);
    let _host = HostOn::new();
    let dev = if plan.drop_return != 0 { "c" } else { "s" };
    let accident = net.within("r", || Accident::start(dev, plan).unwrap());
    let (mut client, mut server) = net.connect("xcp", "xcp");
    let bytes = pattern(BYTES);
    if both_ways {
        std::thread::scope(|scope| {
            let (mut a, mut b) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let answer = &bytes;
            scope.spawn(move || transfer(&mut b, &mut a, answer));
            transfer(&mut client, &mut server, &bytes);
        });
    } else {
        transfer(&mut client, &mut server, &bytes);
    }
    // whatever an ACK had no room for goes out with the next ones
    accident.plan(AccidentPlan::default()).unwrap();
    for _ in 0..4 {
        settle();
        transfer(&mut client, &mut server, b"x");
        transfer(&mut server, &mut client, b"x");
    }
    settle();
    let granted = net.within("r", || {
        let all = router::list().unwrap();
        all.iter().map(|r| r.granted_bytes_per_s).sum()
    });
    assert_eq!(common::control(&client), "xcp", "it must have been XCP");
    Books {
        granted,
        hosts: host::counters().unwrap(),
        lost: accident.account().unwrap(),
    }
}

fn assert_balanced(books: &Books) {
    let Books {
        granted,
        hosts,
        lost,
    } = books;
    println!("granted {granted}, {hosts:?}, {lost:?}");
    assert!(hosts.forward_received > 1000 && hosts.feedback_bytes_per_s != 0);
    assert_eq!(
        *granted,
        hosts.received_bytes_per_s + lost.lost_delta_bytes_per_s,
        "granted = received + lost with data"
    );
    assert_eq!(
        hosts.received_bytes_per_s, hosts.returned_bytes_per_s,
        "received = returned"
    );
    assert_eq!(
        hosts.returned_bytes_per_s,
        hosts.feedback_bytes_per_s + lost.lost_feedback_bytes_per_s,
        "returned = come back + lost with ACKs"
    );
}

#[test]
fn without_loss() {
    let _turn = turn();
    if !can_run("conservation without loss") {
        return;
    }
    let books = keep_books("n", AccidentPlan::default(), LINK_BPS, false);
    assert_balanced(&books);
    assert_eq!(
        books.hosts.feedback_bytes_per_s, books.hosts.applied_bytes_per_s,
        "all of it applied"
    );
    assert!(
        books.hosts.return_sent < books.hosts.forward_received,
        "ACKs were delayed, or segments merged"
    );
}

#[test]
fn with_lost_data_and_crowded_acks() {
    let _turn = turn();
    if !can_run("conservation with lost data") {
        return;
    }
    let plan = AccidentPlan {
        drop_every: 40,
        ..Default::default()
    };
    // more than the link carries: a standing queue, and so many packets on
    // their way that there are several holes at a time
    let books = keep_books("d", plan, 3 * LINK_BPS, false);
    assert_balanced(&books);
    assert!(books.lost.dropped > 10);
    assert!(
        books.hosts.return_crowded > 0,
        "SACK blocks left no room at least once"
    );
}

#[test]
fn with_lost_acks() {
    let _turn = turn();
    if !can_run("conservation with lost ACKs") {
        return;
    }
    let plan = AccidentPlan {
        drop_every: 10,
        drop_return: 1,
        ..Default::default()
    };
    let books = keep_books("a", plan, LINK_BPS, false);
    assert_balanced(&books);
    assert!(books.lost.dropped > 10);
}

#[test]
fn with_data_both_ways() {
    let _turn = turn();
    if !can_run("conservation with data both ways") {
        return;
    }
    let books = keep_books("b", AccidentPlan::default(), LINK_BPS, true);
    assert_balanced(&books);
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Conversations between an asker and an answerer in virtual time. Each test decides which
//! messages are lost.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use xcp_edge::conversation::{
    Answerer, Asker, Ignored, Received, LIFETIME_NS, MAX_PEERS, REFRESH_NS,
};
use xcp_edge::message::{
    Acknowledgement, Ask, Body, Grant, Key, Message, Path, Probe, Request, Role, Status, Train,
    PORT, SINGLE,
};

use crate::key;

const SECOND: u64 = 1_000_000_000;
const UP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

fn address(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    (Ipv4Addr::new(198, 51, high, low), PORT).into()
}

fn ask() -> Ask {
    Ask {
        interval_us: 1_000_000,
        size_B: 200,
        train: Train {
            packets: 20,
            size_B: 1_000,
            lowest_Bps: 125_000,
            highest_Bps: 12_500_000,
        },
        estimate_Bps: 0,
    }
}

fn seed(number: u16) -> Key {
    let mut seed = [9; 32];
    seed[..2].copy_from_slice(&number.to_be_bytes());
    Key::new(&seed).unwrap()
}

fn asker(start: u16) -> Asker {
    Asker::new(key(), seed(start), path(0), ask()).unwrap()
}

fn answerer(secret: u8) -> Answerer {
    Answerer::new(key(), Key::new(&[secret; 32]).unwrap())
}

fn probe(answerer: &mut Answerer, now_ns: u64) -> Option<Vec<u8>> {
    let probe = Probe {
        sent_ns: now_ns,
        number: SINGLE,
        train: 0,
        length: 200,
    };
    answerer.measurement(now_ns, address(0), Body::Probe(probe))
}

fn path(number: u16) -> Path {
    Path::new(address(number).ip(), UP)
}

fn request(from: u16, stream: u64, sequence: u64, cookie: [u8; 16], ask: Ask) -> Vec<u8> {
    let request = Request {
        path: path(from),
        cookie,
        ask,
    };
    let message = Message {
        stream,
        sequence,
        body: Body::Request(request),
    };
    message.build(&key())
}

/// Returns the answer to a request that is signed with the key.
fn answer(answerer: &mut Answerer, now_ns: u64, from: u16, request: &[u8]) -> Acknowledgement {
    let reply = answerer.receive(now_ns, address(from), UP, request);
    let reply = reply.unwrap().unwrap();
    match Message::parse(&reply, &key()).unwrap().body {
        Body::Acknowledgement(acknowledgement) => acknowledgement,
        other => panic!("{other:?}"),
    }
}

/// Sends the asker's messages until all are answered; returns the sent messages.
fn talk(asker: &mut Asker, answerer: &mut Answerer, now_ns: u64) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    let mut next = asker.poll(now_ns);
    while let Some(request) = next.take() {
        if let Ok(Some(reply)) = answerer.receive(now_ns, address(0), UP, &request) {
            next = asker.receive(now_ns, &reply).unwrap().1;
        }
        sent.push(request);
    }
    sent
}

#[test]
fn conversation_needs_a_cookie_and_is_refreshed() {
    let (mut k, mut up) = (asker(0), answerer(1));
    assert_eq!(talk(&mut k, &mut up, 0).len(), 2);
    let granted = Grant {
        interval_us: 1_000_000,
        train_packets: 20,
    };
    assert_eq!(k.grant(0), Some(granted));
    let streams: Vec<_> = up.streams(0).map(|(to, a, g)| (to, *a, g)).collect();
    assert_eq!(streams, [(address(0), ask(), granted)]);
    for second in 1..=100 {
        let now_ns = second * SECOND;
        let refreshes = usize::from(second % 10 == 0);
        assert_eq!(talk(&mut k, &mut up, now_ns).len(), refreshes, "{second}");
        let probe = probe(&mut up, now_ns).unwrap();
        let heard = k.receive(now_ns, &probe).unwrap();
        assert!(matches!(heard, (Received::Measurement(_), None)));
    }
    assert_eq!(k.counters(), Default::default());
    assert_eq!(up.counters(), Default::default());
}

#[test]
fn path_without_an_answer_is_broken_until_a_retry() {
    let mut k = asker(0);
    let mut sent = Vec::new();
    while let Some(now_ns) = k.next_ns() {
        assert!(now_ns == 0 || k.poll(now_ns - 1).is_none());
        if k.poll(now_ns).is_some() {
            sent.push(now_ns / SECOND);
        }
    }
    assert_eq!(sent, [0, 1, 3]);
    assert!(k.is_broken());
    assert!(k.poll(8 * SECOND).is_none());
    k.retry(8 * SECOND);
    assert!(!k.is_broken());
    assert_eq!(talk(&mut k, &mut answerer(1), 8 * SECOND).len(), 2);
    assert!(k.grant(8 * SECOND).is_some());
}

#[test]
fn stream_ends_unless_it_is_refreshed() {
    let (mut k, mut up) = (asker(0), answerer(1));
    talk(&mut k, &mut up, 0);
    assert!(probe(&mut up, LIFETIME_NS - 1).is_some());
    assert!(probe(&mut up, LIFETIME_NS).is_none());
    assert_eq!(up.streams(LIFETIME_NS).count(), 0);
    assert!(k.grant(LIFETIME_NS).is_none());
    assert_eq!(up.remembered(), 1);
    up.expire(LIFETIME_NS);
    assert_eq!(up.remembered(), 0);
}

#[test]
fn lost_acknowledgement_costs_one_more_request() {
    let (mut k, mut up) = (asker(0), answerer(1));
    talk(&mut k, &mut up, 0);
    let lost = k.poll(REFRESH_NS).unwrap();
    assert!(up.receive(REFRESH_NS, address(0), UP, &lost).is_ok());
    assert_eq!(talk(&mut k, &mut up, REFRESH_NS + SECOND).len(), 2);
    assert!(k.next_ns() > Some(REFRESH_NS + 2 * SECOND));
}

#[test]
fn grant_may_answer_an_earlier_request() {
    let (mut k, mut up) = (asker(0), answerer(1));
    talk(&mut k, &mut up, 0);
    let request = k.poll(REFRESH_NS).unwrap();
    let reply = up.receive(REFRESH_NS, address(0), UP, &request).unwrap();
    let mut less = ask();
    less.train.packets = 0;
    k.set_ask(less).unwrap();
    assert!(k.receive(REFRESH_NS, &reply.unwrap()).is_ok());
    assert_eq!(k.grant(REFRESH_NS).unwrap().train_packets, 20);
}

#[test]
fn asker_retries_only_once_with_a_new_cookie() {
    let mut k = asker(0);
    let mut next = k.poll(0);
    let mut sent = 0;
    while let Some(request) = next.take() {
        sent += 1;
        // a router whose secret changes each time
        let reply = answerer(sent).receive(0, address(0), UP, &request);
        next = k.receive(0, &reply.unwrap().unwrap()).unwrap().1;
    }
    assert_eq!(sent, 2);
}

#[test]
fn next_refresh_detects_a_restarted_answerer() {
    let (mut k, mut up) = (asker(0), answerer(1));
    talk(&mut k, &mut up, 0);
    for _ in 0..100 {
        let probe = probe(&mut up, SECOND).unwrap();
        assert!(k.receive(SECOND, &probe).is_ok());
    }
    let mut up = answerer(2);
    assert_eq!(talk(&mut k, &mut up, REFRESH_NS).len(), 2);
    let probe = probe(&mut up, REFRESH_NS).unwrap();
    assert!(k.receive(REFRESH_NS, &probe).is_ok());
}

#[test]
fn restarted_asker_replaces_its_old_stream() {
    let mut up = answerer(1);
    let old = talk(&mut asker(0), &mut up, 0);
    let mut k = asker(1);
    talk(&mut k, &mut up, SECOND);
    assert!(k.grant(SECOND).is_some());
    assert_eq!(up.remembered(), 1);
    for request in old {
        let _ = up.receive(SECOND, address(0), UP, &request);
    }
    let probe = probe(&mut up, SECOND).unwrap();
    assert!(k.receive(SECOND, &probe).is_ok());
}

#[test]
fn replayed_requests_open_no_stream() {
    let (mut k, mut up) = (asker(0), answerer(1));
    let mut sent = talk(&mut k, &mut up, 0);
    sent.extend(talk(&mut k, &mut up, REFRESH_NS));
    let bye = k.bye(REFRESH_NS);
    up.receive(REFRESH_NS, address(0), UP, &bye).unwrap();
    let other = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    let mut elsewhere = answerer(1);
    let mut restarted = answerer(2);
    for second in 10..100 {
        let now_ns = second * SECOND;
        for request in &sent {
            let _ = up.receive(now_ns, address(0), UP, request);
            let _ = restarted.receive(now_ns, address(0), UP, request);
            for (from, to) in [(address(0), other), (address(1), UP)] {
                let result = elsewhere.receive(now_ns, from, to, request);
                assert_eq!(result, Err(Ignored::Unexpected));
            }
        }
        for answerer in [&up, &restarted, &elsewhere] {
            assert_eq!(answerer.streams(now_ns).count(), 0, "{second}");
        }
    }
    assert!(up.counters().of(Ignored::Replayed) > 0);
    assert_eq!(up.remembered() + restarted.remembered(), 0);
}

#[test]
fn each_cookie_is_accepted_once() {
    let mut up = answerer(1);
    let mut sequence = 0;
    let mut ask_with = |cookie, now_ns| {
        sequence += 1;
        answer(&mut up, now_ns, 0, &request(0, 7, sequence, cookie, ask()))
    };
    let first = ask_with([0; 16], 0);
    assert_eq!(first.status, Status::CookieNeeded);
    let second = ask_with(first.cookie, 0);
    assert_eq!(second.status, Status::Accepted);
    assert_eq!(ask_with(first.cookie, 0).status, Status::CookieNeeded);
    assert_eq!(ask_with(second.cookie, 0).status, Status::Accepted);
    assert_eq!(ask_with(second.cookie, 0).status, Status::CookieNeeded);
    // the stream has expired, but its used cookies are still known
    for cookie in [first.cookie, second.cookie] {
        let late = ask_with(cookie, LIFETIME_NS);
        assert_eq!(late.status, Status::CookieNeeded);
    }
}

#[test]
fn cookie_is_bound_to_one_address_and_one_stream() {
    let mut up = answerer(1);
    let cookie = answer(&mut up, 0, 0, &request(0, 7, 1, [0; 16], ask())).cookie;
    for (from, stream) in [(1, 7), (0, 8)] {
        let other = answer(&mut up, 0, from, &request(from, stream, 2, cookie, ask()));
        assert_eq!(other.status, Status::CookieNeeded);
    }
}

#[test]
fn reflected_messages_are_ignored() {
    let (mut k, mut up) = (asker(0), answerer(1));
    let mut sent = talk(&mut k, &mut up, 0);
    let probe = probe(&mut up, 0).unwrap();
    let result = up.receive(0, address(0), UP, &probe);
    assert_eq!(result, Err(Ignored::Unexpected));
    let bye = k.bye(0);
    let mut k = asker(0);
    sent.extend(talk(&mut k, &mut answerer(1), 0));
    for message in sent.iter().chain([&bye]) {
        assert_eq!(k.receive(0, message), Err(Ignored::Unexpected));
    }
    assert!(k.grant(0).is_some());
}

#[test]
fn repeated_and_late_messages_are_ignored() {
    let (mut k, mut up) = (asker(0), answerer(1));
    let request = k.poll(0).unwrap();
    let cookie = up.receive(0, address(0), UP, &request).unwrap().unwrap();
    let request = k.receive(0, &cookie).unwrap().1.unwrap();
    assert_eq!(k.receive(0, &cookie), Err(Ignored::Replayed));
    let accepted = up.receive(0, address(0), UP, &request).unwrap().unwrap();
    let again = up.receive(0, address(0), UP, &request);
    assert_eq!(again, Err(Ignored::Replayed));
    k.receive(0, &accepted).unwrap();
    assert_eq!(k.receive(0, &accepted), Err(Ignored::Replayed));
    assert_eq!(k.receive(0, &cookie), Err(Ignored::Stale));
    let probes: Vec<_> = (0..100).map(|_| probe(&mut up, 0).unwrap()).collect();
    assert!(k.receive(0, &probes[70]).is_ok());
    assert!(k.receive(0, &probes[69]).is_ok());
    assert_eq!(k.receive(0, &probes[69]), Err(Ignored::Replayed));
    assert_eq!(k.receive(0, &probes[6]), Err(Ignored::Stale));
    assert_eq!(k.counters().of(Ignored::Replayed), 3);
    assert_eq!(k.counters().of(Ignored::Stale), 2);
}

#[test]
fn asker_pauses_after_a_bye() {
    let (mut k, mut up) = (asker(0), answerer(1));
    talk(&mut k, &mut up, 0);
    let byes = up.stop();
    assert_eq!((byes.len(), byes[0].0), (1, address(0)));
    assert_eq!(k.receive(0, &byes[0].1).unwrap(), (Received::Bye, None));
    assert!(k.is_broken());
    k.retry(REFRESH_NS - 1);
    assert!(k.is_broken());
    k.retry(REFRESH_NS);
    assert_eq!(talk(&mut k, &mut up, REFRESH_NS).len(), 1); // the answerer refuses
    k.retry(REFRESH_NS + 1);
    assert!(k.is_broken());
}

#[test]
fn requests_without_the_key_are_counted_and_ignored() {
    let mut up = answerer(1);
    let other = Key::new(&[3; 16]).unwrap();
    let mut stranger = Asker::new(other, seed(5), path(5), ask()).unwrap();
    let request = stranger.poll(0).unwrap();
    for count in 1..=1_000 {
        let result = up.receive(0, address(5), UP, &request);
        assert_eq!(result, Err(Ignored::BadTag));
        assert_eq!(up.counters().of(Ignored::BadTag), count);
    }
    // other askers are not affected
    let mut k = asker(0);
    talk(&mut k, &mut up, 0);
    assert!(k.grant(0).is_some());
}

#[test]
fn cookie_requests_are_rate_limited_but_refreshes_are_not() {
    let (mut k, mut up) = (asker(0), answerer(1));
    talk(&mut k, &mut up, 0);
    let mut answered = 0;
    for stream in 0..1_000 {
        let from = 1 + stream as u16;
        let request = request(from, stream, 1, [0; 16], ask());
        let from = address(from);
        answered += u64::from(up.receive(REFRESH_NS, from, UP, &request).is_ok());
    }
    assert_eq!((answered, up.counters().of(Ignored::Rate)), (100, 900));
    assert_eq!(talk(&mut k, &mut up, REFRESH_NS).len(), 1);
    assert!(k.next_ns() > Some(REFRESH_NS + SECOND));
}

#[test]
fn number_and_requests_of_askers_are_limited() {
    let mut up = answerer(1);
    let mut open = |from: u16, now_ns| {
        let mut ask_with = |sequence, cookie| {
            answer(
                &mut up,
                now_ns,
                from,
                &request(from, 7, sequence, cookie, ask()),
            )
        };
        let cookie = ask_with(1, [0; 16]).cookie;
        let answer = ask_with(2, cookie);
        (answer.status, up.remembered())
    };
    for number in 0..MAX_PEERS {
        let opened = open(number as u16, number as u64 * SECOND / 10);
        assert_eq!(opened, (Status::Accepted, number + 1));
    }
    let now_ns = 10 * SECOND;
    assert_eq!(open(999, now_ns), (Status::Busy, MAX_PEERS));
    // the place of an asker that has ended is free
    let bye = Message {
        stream: 7,
        sequence: 3,
        body: Body::Bye(Role::Asker),
    };
    let bye = bye.build(&key());
    up.receive(now_ns, address(5), UP, &bye).unwrap();
    let cookie = answer(&mut up, now_ns, 998, &request(998, 7, 1, [0; 16], ask())).cookie;
    let mut last = answer(&mut up, now_ns, 998, &request(998, 7, 2, cookie, ask()));
    assert_eq!(up.remembered(), MAX_PEERS);
    let mut accepted = 0;
    for sequence in 3..100 {
        if last.status != Status::Accepted {
            break;
        }
        accepted += 1;
        last = answer(
            &mut up,
            now_ns,
            998,
            &request(998, 7, sequence, last.cookie, ask()),
        );
    }
    // the first request is not counted, because no record existed yet
    assert_eq!((accepted, last.status), (9, Status::Busy));
}

#[test]
fn probing_stays_within_its_budget() {
    for (estimate_Bps, budget_Bps) in [(0, 12_500), (500_000, 12_500), (12_500_000, 250_000)] {
        let mut up = answerer(1);
        let ask = Ask {
            interval_us: 1,
            size_B: 1_000,
            train: Train {
                packets: u16::MAX,
                ..ask().train
            },
            estimate_Bps,
        };
        let mut cookie = [0; 16];
        let mut trains_B = 0;
        for sequence in 0..100 {
            let now_ns = sequence * 2 * SECOND;
            let answer = answer(
                &mut up,
                now_ns,
                0,
                &request(0, 7, sequence + 1, cookie, ask),
            );
            cookie = answer.cookie;
            if answer.status != Status::Accepted {
                continue;
            }
            let singles_Bps = 1_048_000_000 / u64::from(answer.grant.interval_us);
            assert!(singles_Bps <= budget_Bps / 2, "{singles_Bps}");
            assert!(singles_Bps > budget_Bps / 2 * 9 / 10, "{singles_Bps}");
            assert!(answer.grant.train_packets <= 256);
            trains_B += 1_048 * u64::from(answer.grant.train_packets);
        }
        // 200 s, plus the initial budget of 10 s
        assert!(trains_B <= budget_Bps / 2 * 210, "{trains_B}");
        assert!(trains_B > budget_Bps / 2 * 180, "{trains_B}");
    }
}

#[test]
fn requests_accept_any_estimate_and_time() {
    for estimate_Bps in [0, 1, 1 << 40, u64::MAX] {
        for now_ns in [0, u64::MAX - 1] {
            let (mut k, mut up) = (asker(0), answerer(1));
            let big = Ask {
                estimate_Bps,
                ..ask()
            };
            k.set_ask(big).unwrap();
            talk(&mut k, &mut up, now_ns);
            assert!(k.grant(now_ns).is_some());
        }
    }
    let mut k = asker(0);
    let small = Ask { size_B: 1, ..ask() };
    assert!(k.set_ask(small).is_err());
}

#[test]
fn grant_above_the_request_is_ignored() {
    for (interval_us, train_packets) in [(999_999, 20), (1_000_000, 21)] {
        let mut k = asker(0);
        let request = Message::parse(&k.poll(0).unwrap(), &key()).unwrap();
        let answer = Message {
            body: Body::Acknowledgement(Acknowledgement {
                status: Status::Accepted,
                cookie: [0; 16],
                grant: Grant {
                    interval_us,
                    train_packets,
                },
            }),
            ..request
        };
        let result = k.receive(0, &answer.build(&key()));
        assert_eq!(result, Err(Ignored::Unexpected));
        assert!(k.grant(0).is_none());
    }
}

#[test]
fn replayed_request_of_a_replaced_asker_opens_no_stream() {
    let mut up = answerer(1);
    let open = |up: &mut Answerer, from: u16, now_ns: u64| {
        let cookie = answer(up, now_ns, from, &request(from, 7, 1, [0; 16], ask())).cookie;
        let second = request(from, 7, 2, cookie, ask());
        assert_eq!(answer(up, now_ns, from, &second).status, Status::Accepted);
        second
    };
    let opened: Vec<_> = (0..MAX_PEERS as u16)
        .map(|from| open(&mut up, from, 0))
        .collect();
    let bye = Message {
        stream: 7,
        sequence: 3,
        body: Body::Bye(Role::Asker),
    };
    let bye = bye.build(&key());
    for from in [0, 1] {
        up.receive(SECOND, address(from), UP, &bye).unwrap();
    }
    open(&mut up, 100, SECOND); // takes the place of asker 0; that of asker 1 is free
    let again = answer(&mut up, SECOND, 0, &opened[0]);
    assert_eq!(again.status, Status::CookieNeeded);
}

#[test]
fn probes_before_the_acknowledgement_are_ignored() {
    let (mut k, mut up) = (asker(0), answerer(1));
    let request = k.poll(0).unwrap();
    let cookie = up.receive(0, address(0), UP, &request).unwrap().unwrap();
    let request = k.receive(0, &cookie).unwrap().1.unwrap();
    let accepted = up.receive(0, address(0), UP, &request).unwrap().unwrap();
    let (first, second) = (probe(&mut up, 0).unwrap(), probe(&mut up, 0).unwrap());
    assert_eq!(k.receive(0, &first), Err(Ignored::Unexpected));
    k.receive(0, &accepted).unwrap();
    assert!(k.receive(0, &second).is_ok());
    let late = probe(&mut up, LIFETIME_NS - 1).unwrap();
    assert_eq!(k.receive(LIFETIME_NS, &late), Err(Ignored::Unexpected));
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Two edges with a simulated cloud between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use xcp_edge::conversation::{Ignored, LIFETIME_NS};
use xcp_edge::edge::{Arrived, Cloud, Datagram, Edge, State, Time};
use xcp_edge::estimate::Source;
use xcp_edge::message::{overhead_B, Key, Message, PORT};

use crate::key;
use crate::random::Random;
use crate::simulated::{Cross, Path};

const UP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const DOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const SECOND: u64 = 1_000_000_000;
/// The delay of the return path, which has no queue.
const BACK_NS: u64 = 20_000_000;
/// The TTL of packets that have passed three routers.
const TTL: u8 = 252;

fn seed(number: u8) -> Key {
    Key::new(&[number; 32]).unwrap()
}

/// A message in flight: arrival time, send order, direction (true: down), bytes.
type Flight = Reverse<(u64, u64, bool, Vec<u8>)>;

struct Net {
    up: Edge,
    down: Edge,
    path: Path,
    now_ns: u64,
    flights: BinaryHeap<Flight>,
    sent: u64,
    /// Whether the answerer's kernel returns transmit timestamps.
    stamps: bool,
    /// The largest delay of the programs; one wake-up in 4 is late.
    late_ns: u64,
    probed_B: u64,
    /// The step of each edge's clock, s.
    up_set_s: i64,
    down_set_s: i64,
    /// One in this many messages of the answerer is lost; 0: none.
    lost_one_in: u64,
    attacker: Option<Attacker>,
}

/// An attacker that has seen all messages and their directions, but does not have the key.
struct Attacker {
    random: Random,
    seen: Vec<(bool, Vec<u8>)>,
    sent: u32,
}

impl Attacker {
    fn new(seed: u64) -> Self {
        Attacker {
            random: Random(seed),
            seen: Vec::new(),
            sent: 0,
        }
    }

    /// Returns an earlier message: unchanged, in the other direction, cut, changed, or signed with
    /// another key.
    fn message(&mut self) -> (bool, Vec<u8>) {
        self.sent += 1;
        let at = self.random.below(self.seen.len() as u64) as usize;
        let (is_down, mut bytes) = self.seen[at].clone();
        let length = bytes.len() as u64;
        match self.random.below(5) {
            0 => return (!is_down, bytes),
            1 => bytes.truncate(self.random.below(length) as usize),
            2 => bytes[self.random.below(length) as usize] ^= 1 << self.random.below(8),
            3 => bytes = Message::parse(&bytes, &key()).unwrap().build(&seed(3)),
            _ => {}
        }
        (is_down, bytes)
    }
}

/// The clocks start long after 0.
const CLOCKS_S: i64 = 1_000_000;

impl Net {
    fn new(path: Path) -> Self {
        let mut down = Edge::new(key(), seed(2));
        down.ask(0, DOWN, UP).unwrap();
        Net {
            up: Edge::new(key(), seed(1)),
            down,
            path,
            now_ns: 0,
            flights: BinaryHeap::new(),
            sent: 0,
            stamps: true,
            late_ns: 0,
            probed_B: 0,
            up_set_s: 0,
            down_set_s: 0,
            lost_one_in: 0,
            attacker: None,
        }
    }

    fn cloud(&self) -> &Cloud {
        self.down.clouds().next().unwrap().1
    }

    fn estimate_Bps(&self) -> Option<f64> {
        self.cloud().estimate().estimate_Bps(self.now_ns)
    }

    /// Returns the answerer's time, from its own clock. The kernel sends a packet up to a
    /// millisecond after the program has read that clock.
    fn up_time(&self) -> (Time, u64) {
        let wall_ns = set(self.path.sender_ns(self.now_ns as f64 / 1e9), self.up_set_s);
        let late_ns = self.sent * 7_919 % 1_000_000;
        let time = Time {
            now_ns: self.now_ns,
            wall_ns: wall_ns - late_ns,
        };
        (time, wall_ns)
    }

    fn send_down(&mut self, datagram: Datagram) {
        assert_eq!((datagram.from, datagram.to), (UP, (DOWN, PORT).into()));
        let size_B = datagram.bytes.len() as f64 + f64::from(overhead_B(UP));
        self.probed_B += size_B as u64;
        self.sent += 1;
        let arrives = self.path.send(self.now_ns as f64 / 1e9, size_B);
        let is_lost = self.lost_one_in > 0 && self.sent.is_multiple_of(self.lost_one_in);
        if let Some(at_s) = arrives.filter(|_| !is_lost) {
            let at_ns = (at_s * 1e9) as u64;
            self.flights
                .push(Reverse((at_ns, self.sent, true, datagram.bytes)));
        }
    }

    fn send_up(&mut self, datagram: Datagram) {
        assert_eq!((datagram.from, datagram.to), (DOWN, (UP, PORT).into()));
        self.sent += 1;
        let at_ns = self.now_ns + BACK_NS;
        self.flights
            .push(Reverse((at_ns, self.sent, false, datagram.bytes)));
    }

    /// Sends and receives everything that is due now.
    fn step(&mut self) {
        loop {
            let (time, wall_ns) = self.up_time();
            let Some(datagram) = self.up.poll(time) else {
                break;
            };
            if let Some(stamp) = datagram.stamp.filter(|_| self.stamps) {
                self.up.transmitted(stamp, wall_ns);
            }
            self.send_down(datagram);
        }
        let time = Time {
            now_ns: self.now_ns,
            wall_ns: set(self.now_ns, self.down_set_s),
        };
        while let Some(datagram) = self.down.poll(time) {
            self.send_up(datagram);
        }
        while let Some(Reverse((at_ns, ..))) = self.flights.peek() {
            if *at_ns > self.now_ns {
                break;
            }
            let Some(Reverse((at_ns, _, is_down, bytes))) = self.flights.pop() else {
                break;
            };
            self.deliver(at_ns, is_down, &bytes);
        }
    }

    fn deliver(&mut self, at_ns: u64, is_down: bool, bytes: &[u8]) {
        let (from, to) = if is_down { (UP, DOWN) } else { (DOWN, UP) };
        let arrived = Arrived {
            from: SocketAddr::from((from, PORT)),
            to,
            ttl: Some(TTL),
            wall_ns: set(
                at_ns,
                if is_down {
                    self.down_set_s
                } else {
                    self.up_set_s
                },
            ),
            bytes,
        };
        let edge = if is_down {
            &mut self.down
        } else {
            &mut self.up
        };
        if let Ok(Some(answer)) = edge.receive(self.now_ns, &arrived) {
            if is_down {
                self.send_up(answer);
            } else {
                self.send_down(answer);
            }
        }
        self.attack(is_down, bytes);
    }

    /// The attacker sends three messages after each real one. Answers to them are lost.
    fn attack(&mut self, is_down: bool, bytes: &[u8]) {
        let Some(mut attacker) = self.attacker.take() else {
            return;
        };
        attacker.seen.push((is_down, bytes.to_vec()));
        for _ in 0..3 {
            let (is_down, bytes) = attacker.message();
            let (edge, to) = match is_down {
                true => (&mut self.down, DOWN),
                false => (&mut self.up, UP),
            };
            let others = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
            let from = [UP, DOWN, others][attacker.random.below(3) as usize];
            let arrived = Arrived {
                from: SocketAddr::from((from, PORT)),
                to,
                ttl: Some(attacker.random.below(256) as u8),
                wall_ns: set(self.now_ns, 0),
                bytes: &bytes,
            };
            let _ = edge.receive(self.now_ns, &arrived);
        }
        self.attacker = Some(attacker);
    }

    fn run(&mut self, seconds: u64) {
        let end_ns = self.now_ns + seconds * SECOND;
        while self.now_ns < end_ns {
            self.step();
            let flight_ns = self.flights.peek().map(|Reverse((at_ns, ..))| *at_ns);
            let edges = [self.up.next_ns(), self.down.next_ns(), flight_ns];
            let next_ns = edges.into_iter().flatten().min().unwrap_or(end_ns);
            let late_ns = match self.late_ns {
                most_ns if most_ns > 0 && self.path.random.below(4) == 0 => {
                    self.path.random.below(most_ns)
                }
                _ => 0,
            };
            self.now_ns = (next_ns + late_ns).clamp(self.now_ns, end_ns);
        }
    }
}

fn set(ns: u64, by_s: i64) -> u64 {
    let by_ns = (CLOCKS_S + by_s) * SECOND.cast_signed();
    ns.wrapping_add_signed(by_ns)
}

fn path(load: f64) -> Path {
    seeded(1, load)
}

fn seeded(seed: u64, load: f64) -> Path {
    Path::new(seed, 12.5e6, load, Cross::Poisson)
}

/// Returns the mean error over four seeds, after a minute with a load of 30 %.
fn mean_error(change: impl Fn(&mut Net)) -> f64 {
    let error = |seed| {
        let mut net = Net::new(seeded(seed, 0.3));
        change(&mut net);
        net.run(60);
        (net.estimate_Bps().unwrap_or(0.0) / net.path.truth_Bps() - 1.0).abs()
    };
    (1..=4).map(error).sum::<f64>() / 4.0
}

#[test]
fn edge_measures_the_available_bandwidth_of_its_cloud() {
    let mut net = Net::new(path(0.3));
    assert_eq!(net.cloud().state(0), State::Asking);
    net.run(60);
    assert_eq!(net.cloud().state(net.now_ns), State::Probed);
    assert_eq!(net.cloud().routers(), Some(3));
    let error = net.estimate_Bps().unwrap() / net.path.truth_Bps() - 1.0;
    println!(
        "{:+.1} % after a minute, {} trains, {} probes, {} B/s",
        error * 100.0,
        net.cloud().trains(),
        net.cloud().probes(),
        net.probed_B / 60
    );
    assert!(error.abs() < 0.1, "{error}");
    assert!(net.cloud().queue_ns().unwrap() < 5_000_000);
    assert!(net.probed_B / 60 < 12_500_000 / 50);
    assert_eq!(net.up.askers(net.now_ns).count(), 1);
}

/// Kernel timestamps show when the packets of a train were really sent.
#[test]
fn kernel_timestamps_improve_the_estimate() {
    let error = |stamps| mean_error(|net| net.stamps = stamps);
    let (with, without) = (error(true), error(false));
    println!("error {with:.3} with kernel timestamps, {without:.3} without");
    assert!(with < 0.1 && with < without);
}

/// Edges may be late because other programs use the processors.
#[test]
fn late_edges_still_measure_the_available_bandwidth() {
    let error = mean_error(|net| net.late_ns = 2_000_000);
    println!(
        "error {:.1} % if one wake-up in 4 is up to 2 ms late",
        error * 100.0
    );
    assert!(error < 0.1, "{error}");
}

/// A clock is set forward or back by a second or by two hours. There is never a queue, and 15 s
/// later the edge measures that again.
#[test]
fn clock_changes_are_not_taken_for_a_queue() {
    for by_s in [1, -1, 7_200, -7_200] {
        for is_down in [true, false] {
            for begin_s in [3, 30] {
                let mut net = Net::new(path(0.0));
                net.run(begin_s);
                let clock = if is_down {
                    &mut net.down_set_s
                } else {
                    &mut net.up_set_s
                };
                *clock = by_s;
                net.run(15);
                let case = format!("{by_s} s, {is_down}, after {begin_s} s");
                let queue_ns = net.cloud().queue_ns();
                assert!(
                    queue_ns.is_some_and(|ns| ns < 5_000_000),
                    "{case}: {queue_ns:?}"
                );
                assert!(!net.cloud().estimate().is_full(), "{case}");
            }
        }
    }
}

/// Messages without the key change no result.
#[test]
fn ten_thousand_messages_of_an_attacker_do_not_change_the_estimate() {
    let found = |attacker: Option<Attacker>| {
        let mut net = Net::new(path(0.3));
        net.attacker = attacker;
        net.run(90);
        let cloud = net.cloud();
        let known = (cloud.queue_ns(), cloud.trains(), cloud.routers());
        (
            net.estimate_Bps(),
            known,
            net.attacker.map_or(0, |a| a.sent),
        )
    };
    let (estimate, known, _) = found(None);
    assert!(estimate.is_some());
    for seed in 0..4 {
        let attacked = found(Some(Attacker::new(seed)));
        assert_eq!((attacked.0, attacked.1), (estimate, known));
        assert!(attacked.2 > 10_000, "{}", attacked.2);
    }
}

fn trains_per_minute(net: &mut Net) -> u64 {
    let before = net.cloud().trains();
    net.run(120);
    (net.cloud().trains() - before) / 2
}

/// With a buffer of 12 KB and a load of 60 %, each train makes other flows lose packets.
#[test]
fn trains_become_rare_where_they_lose_packets() {
    let short = |change: fn(Edge) -> Edge| {
        let mut net = Net::new(path(0.6));
        net.path.buffer_B = 12_000.0;
        net.down = change(Edge::new(key(), seed(2)));
        net.down.ask(0, DOWN, UP).unwrap();
        net.run(60);
        trains_per_minute(&mut net)
    };
    let (rare, frequent) = (short(|edge| edge), short(Edge::with_frequent_trains));
    let mut long = Net::new(path(0.6));
    long.run(60);
    let usual = trains_per_minute(&mut long);
    println!("{rare} trains per minute, {frequent} if losses are ignored; {usual} without losses");
    assert!(3 * rare < frequent && usual > 2 * rare);
}

/// A base delay from before a restart is not used if the path had another number of routers, or
/// if the clock was two hours ahead.
#[test]
fn base_delay_of_another_path_is_not_restored() {
    let with = |routers, ahead_s| {
        let mut net = Net::new(path(0.0));
        let probe_ns = set(0, ahead_s);
        // this probe was 3 s faster than probes are now
        net.down
            .restore_base_probe(UP, (probe_ns + 10 * SECOND, probe_ns), routers);
        net.run(15);
        net.cloud().queue_ns()
    };
    assert!(with(3, 0) > Some(SECOND));
    for (routers, ahead_s) in [(4, 0), (3, 7_200)] {
        let queue_ns = with(routers, ahead_s);
        assert!(queue_ns.is_some_and(|ns| ns < 5_000_000), "{queue_ns:?}");
    }
}

#[test]
fn bye_ends_the_estimate_and_a_restart_restores_it() {
    let mut net = Net::new(path(0.0));
    net.run(30);
    assert!(net.estimate_Bps().is_some());
    for bye in net.up.stop(net.now_ns) {
        net.send_down(bye);
    }
    net.run(5);
    assert_eq!(net.cloud().state(net.now_ns), State::Broken);
    assert_eq!(net.up.askers(net.now_ns).count(), 0);
    // the same program starts again
    net.up = Edge::new(key(), seed(3));
    net.run(60);
    assert_eq!(net.cloud().state(net.now_ns), State::Probed);
    assert!(net.cloud().estimate().age_ns(net.now_ns).unwrap() < 15 * SECOND);
}

#[test]
fn estimate_ends_if_the_answerer_does_not_answer() {
    let mut net = Net::new(path(0.0));
    net.run(30);
    net.up = Edge::new(Key::new(b"another key, not the same").unwrap(), seed(3));
    net.run(40);
    assert_ne!(net.cloud().state(net.now_ns), State::Probed);
    assert_eq!(net.estimate_Bps(), None);
    assert!(net.up.ignored().of(Ignored::BadTag) > 0);
}

#[test]
fn a_forgotten_asker_is_removed() {
    let mut net = Net::new(path(0.0));
    net.run(10);
    assert_eq!(net.up.askers(net.now_ns).count(), 1);
    assert!(net.down.forget(net.now_ns, UP).is_some());
    net.run(2 * LIFETIME_NS / SECOND);
    assert_eq!(net.up.askers(net.now_ns).count(), 0);
    assert_eq!(net.up.next_ns(), None);
    assert_eq!(net.down.next_ns(), None);
}

/// An answer from an address that was not asked, or to an address that did not ask, belongs to
/// no cloud.
#[test]
fn unrequested_answers_are_ignored_and_counted() {
    let mut net = Net::new(path(0.0));
    net.run(3);
    let bytes = [b"XCPi\x01\x02".as_slice(), &[0; 57]].concat();
    for (from, to) in [((DOWN, PORT), DOWN), ((UP, PORT), UP), ((UP, 7), DOWN)] {
        let arrived = Arrived {
            from: from.into(),
            to,
            ttl: None,
            wall_ns: 0,
            bytes: &bytes,
        };
        let before = net.down.unrequested();
        let heard = net.down.receive(net.now_ns, &arrived);
        assert_eq!(heard, Err(Ignored::Unexpected));
        assert_eq!(net.down.unrequested(), before + 1);
    }
}

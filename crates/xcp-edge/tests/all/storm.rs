// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Two askers and two answerers with the same key, and between them an attacker without the
//! key that drops, repeats, delays, cuts, changes, forges and redirects 10,000 messages.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use xcp_edge::conversation::{Answerer, Asker, Ignored, Received, LIFETIME_NS, TRIES};
use xcp_edge::message::{Ask, Body, Message, Path, Probe, Report, Status, Train, PORT, SINGLE};

use crate::key;
use crate::random::Random;

const MESSAGES: u32 = 10_000;
const MILLISECOND: u64 = 1_000_000;
/// The round-trip time of an undisturbed path.
const DELAY_NS: u64 = 20 * MILLISECOND;

/// A receiver: an answerer, or an asker's conversation with one answerer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Asker { asker: usize, of: usize },
    Answerer(usize),
}

fn asker_address(asker: usize) -> SocketAddr {
    (Ipv4Addr::new(198, 51, 100, asker as u8), PORT).into()
}

fn answerer_address(answerer: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, answerer as u8).into()
}

/// A message that an asker or answerer has sent.
#[derive(Clone, Debug)]
struct Sent {
    bytes: Vec<u8>,
    /// The number of the sender, and the receiver.
    from: usize,
    to: End,
}

struct World {
    random: Random,
    now_ns: u64,
    askers: [[Asker; 2]; 2],
    answerers: [Answerer; 2],
    history: Vec<Sent>,
    /// The sender and the receiver of each message.
    destinations: HashMap<Vec<u8>, (usize, End)>,
    /// The messages that had an effect; none may have one twice.
    taken: HashSet<Vec<u8>>,
    delivered: u32,
    measurements: u32,
    accepted: u32,
}

fn ask() -> Ask {
    Ask {
        interval_us: 100_000,
        size_B: 100,
        train: Train {
            packets: 10,
            size_B: 500,
            lowest_Bps: 1_000,
            highest_Bps: 1_000_000,
        },
        estimate_Bps: 0,
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let askers = [0, 1].map(|asker| {
            [0, 1].map(|of| {
                let path = Path::new(asker_address(asker).ip(), answerer_address(of));
                Asker::new(key(), random.key(), path, ask()).unwrap()
            })
        });
        let answerers = [(); 2].map(|()| Answerer::new(key(), random.key()));
        World {
            random,
            now_ns: 0,
            askers,
            answerers,
            history: Vec::new(),
            destinations: HashMap::new(),
            taken: HashSet::new(),
            delivered: 0,
            measurements: 0,
            accepted: 0,
        }
    }

    fn send(&mut self, from: usize, to: End, bytes: Vec<u8>) -> Sent {
        self.destinations.insert(bytes.clone(), (from, to));
        let sent = Sent { bytes, from, to };
        self.history.push(sent.clone());
        sent
    }

    /// Returns the messages that askers and answerers send by themselves.
    fn messages(&mut self) -> Vec<Sent> {
        let mut due = Vec::new();
        let now_ns = self.now_ns;
        for (asker, of) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let k = &mut self.askers[asker][of];
            if self.random.below(4) == 0 {
                k.retry(now_ns);
            }
            let request = k.poll(now_ns);
            let bye = (self.random.below(2_000) == 0).then(|| k.bye(now_ns));
            due.extend(
                [request, bye]
                    .into_iter()
                    .flatten()
                    .map(|bytes| (asker, End::Answerer(of), bytes)),
            );
            if self.random.below(16) != 0 {
                continue;
            }
            let up = &mut self.answerers[of];
            let body = if self.random.below(4) == 0 {
                Body::Report(Report::default())
            } else {
                Body::Probe(Probe {
                    sent_ns: now_ns,
                    number: SINGLE,
                    train: 0,
                    length: 100,
                })
            };
            let measurement = up.measurement(now_ns, asker_address(asker), body);
            due.extend(measurement.map(|bytes| (of, End::Asker { asker, of }, bytes)));
        }
        due.into_iter()
            .map(|(from, to, bytes)| self.send(from, to, bytes))
            .collect()
    }

    /// Delivers bytes to a receiver, and checks that it accepts only messages meant for it, and
    /// each only once. `address` is the source address of the packet.
    fn deliver(&mut self, bytes: &[u8], to: End, address: SocketAddr) -> Option<Sent> {
        self.delivered += 1;
        let meant = self.destinations.get(bytes).copied();
        match to {
            End::Asker { asker, of } => {
                let k = &mut self.askers[asker][of];
                let (heard, again) = k.receive(self.now_ns, bytes).ok()?;
                assert_eq!(meant, Some((of, to)), "{heard:?}");
                assert!(self.taken.insert(bytes.to_vec()), "twice: {heard:?}");
                self.measurements += u32::from(matches!(heard, Received::Measurement(_)));
                Some(self.send(asker, End::Answerer(of), again?))
            }
            End::Answerer(of) => {
                let (up, local) = (&mut self.answerers[of], answerer_address(of));
                let before = up.remembered();
                let reply = up.receive(self.now_ns, address, local, bytes);
                let after = up.remembered();
                assert!(after <= before || meant.is_some_and(|m| m.1 == to));
                assert!(after <= 2); // the number of askers
                let reply = reply.ok()??;
                let (asker, _) = meant.filter(|m| m.1 == to).expect("sent by an asker");
                let message = Message::parse(&reply, &key()).unwrap();
                if let Body::Acknowledgement(answer) = &message.body {
                    if answer.status == Status::Accepted {
                        assert_eq!(address, asker_address(asker));
                        assert!(self.taken.insert(bytes.to_vec()), "accepted twice");
                        self.accepted += 1;
                    }
                }
                // the reply goes to the source address: to that asker, or it is lost
                let asker = usize::from(address == asker_address(1));
                Some(self.send(of, End::Asker { asker, of }, reply))
            }
        }
    }

    fn any_end(&mut self) -> End {
        let (asker, of) = (self.random.below(2) as usize, self.random.below(2) as usize);
        match self.random.below(2) {
            0 => End::Answerer(of),
            _ => End::Asker { asker, of },
        }
    }

    /// Changes a message in a way that is possible without the key.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        match self.random.below(4) {
            0 => bytes.truncate(self.random.below(bytes.len() as u64) as usize),
            1 => {
                let at = self.random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.random.below(8);
            }
            2 => {
                let wrong = self.random.key();
                let message = Message::parse(bytes, &key()).unwrap();
                *bytes = message.build(&wrong);
            }
            _ => {
                let length = self.random.below(200);
                *bytes = (0..length).map(|_| self.random.next() as u8).collect();
            }
        }
    }

    fn address_of(sent: &Sent) -> SocketAddr {
        match sent.to {
            End::Answerer(_) => asker_address(sent.from),
            End::Asker { of, .. } => (answerer_address(of), PORT).into(),
        }
    }

    /// Processes one message: one that is due, one that waits, or an old one.
    fn storm(&mut self, waiting: &mut Vec<Sent>) {
        let due = self.messages();
        waiting.extend(due);
        self.now_ns += self.random.below(20 * MILLISECOND);
        if self.random.below(1_000) == 0 {
            // long enough for streams to expire, and at times for askers to become idle
            self.now_ns += self.random.below(2 * LIFETIME_NS);
        }
        let fate = self.random.below(100);
        let (mut sent, real) = if fate < 60 && !waiting.is_empty() {
            // in any order
            let at = self.random.below(waiting.len().min(8) as u64) as usize;
            (waiting.remove(at), true)
        } else if self.history.is_empty() {
            return;
        } else {
            let at = self.random.below(self.history.len() as u64) as usize;
            (self.history[at].clone(), false)
        };
        let mut address = World::address_of(&sent);
        match fate {
            0..10 => return, // lost
            10..14 if real => waiting.push(sent.clone()),
            60..70 => sent.to = self.any_end(),
            70..75 => address = asker_address(self.random.below(3) as usize),
            75..90 => self.spoil(&mut sent.bytes),
            _ => {}
        }
        let answer = self.deliver(&sent.bytes, sent.to, address);
        waiting.extend(answer);
    }

    /// Opens a conversation over an undisturbed path; returns the number of requests that the
    /// asker's timer sends.
    fn set_up(&mut self, asker: usize, of: usize) -> u32 {
        let mut polls = 0;
        for _ in 0..10_000 {
            self.now_ns += DELAY_NS;
            let k = &mut self.askers[asker][of];
            k.retry(self.now_ns);
            let mut next = k.poll(self.now_ns);
            polls += u32::from(next.is_some());
            while let Some(bytes) = next.take() {
                let sent = self.send(asker, End::Answerer(of), bytes);
                let answer = self.deliver(&sent.bytes, sent.to, asker_address(asker));
                let again = answer.and_then(|a| self.deliver(&a.bytes, a.to, asker_address(2)));
                next = again.map(|again| again.bytes);
            }
            let open = self.answerers[of]
                .streams(self.now_ns)
                .any(|(to, ..)| to == asker_address(asker));
            if self.askers[asker][of].grant(self.now_ns).is_some() && open {
                return polls;
            }
        }
        panic!("no conversation");
    }
}

#[test]
fn attacked_messages_have_no_effect_and_leave_no_state() {
    for seed in 0..8 {
        let mut world = World::new(seed);
        let mut waiting = Vec::new();
        while world.delivered < MESSAGES {
            world.storm(&mut waiting);
        }
        // the attack must not have blocked everything
        assert!(world.accepted > 20, "{}", world.accepted);
        assert!(world.measurements > 500, "{}", world.measurements);
        for (asker, of) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let tries = world.set_up(asker, of);
            assert!(tries <= TRIES, "{tries}");
        }
        for why in [
            Ignored::Malformed,
            Ignored::BadTag,
            Ignored::Replayed,
            Ignored::Stale,
            Ignored::Unexpected,
        ] {
            let askers = world.askers.iter().flatten().map(|k| k.counters().of(why));
            let answerers = world.answerers.iter().map(|up| up.counters().of(why));
            let ignored: u64 = askers.chain(answerers).sum();
            assert!(ignored > 50, "{why:?}: {ignored}");
        }
        world.now_ns += 2 * LIFETIME_NS;
        for up in &mut world.answerers {
            up.expire(world.now_ns);
            assert_eq!(up.remembered(), 0);
        }
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The upstream edge: it sends probes to askers that have the key and that receive
//! packets sent to their address.
//!
//! A cookie is the tag, by a random secret, of the asker's address, its stream,
//! a generation, and the number of requests accepted in the stream. The answerer stores
//! nothing about an asker before it accepts the asker's first request: until then the
//! cookie has the current generation and zero requests. When a stream is removed, the
//! generation is increased, so each cookie is valid once. The secret changes at each
//! start.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::common::{
    Counters, Ignored, Window, FLOOR_BPS, LIFETIME_NS, PROBING_SHARE, REFRESH_NS, SECOND_NS,
};
use crate::message::{
    Acknowledgement, Ask, Body, Cookie, Grant, Key, Message, Path, Request, Role, Status, Train,
    MAX_LENGTH, OVERHEAD_B,
};

/// Most askers at a time: together they receive at most 0.8 MB/s of probes before
/// they have an estimate.
pub const MAX_PEERS: usize = 64;
/// Number of requests per second without a valid cookie that are answered, over all
/// askers: more than [`MAX_PEERS`], so that all askers can begin within a second.
const COOKIES_PER_S: u64 = 100;
/// Number of requests that one asker may send at once, and per [`REFRESH_NS`]. A refresh
/// needs one request, or up to six with all tries and a new cookie for each.
const REQUESTS: u64 = 8;
/// Most packets of a train: a chirp whose rate grows by 1.05 per gap spans a factor of 10^5.
const MAX_TRAIN: u16 = 256;

/// A token bucket whose tokens are ns. It stores the time when it will be full.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    full_ns: u64,
}

impl Bucket {
    /// The tokens in the bucket, at most `depth_ns`.
    fn level_ns(&self, now_ns: u64, depth_ns: u64) -> u64 {
        depth_ns.saturating_sub(self.full_ns.saturating_sub(now_ns))
    }

    fn spend(&mut self, now_ns: u64, cost_ns: u64) {
        self.full_ns = self.full_ns.max(now_ns).saturating_add(cost_ns);
    }

    fn take(&mut self, now_ns: u64, cost_ns: u64, depth_ns: u64) -> bool {
        let enough = self.level_ns(now_ns, depth_ns) >= cost_ns;
        if enough {
            self.spend(now_ns, cost_ns);
        }
        enough
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Probes are sent until the lifetime ends.
    Open,
    /// The asker has ended the stream. Its sequence numbers and token buckets are
    /// kept until the lifetime ends.
    #[default]
    Ended,
}

/// The record of an asker.
#[derive(Debug, Default)]
struct Peer {
    state: State,
    stream: u64,
    until_ns: u64,
    generation: u64,
    accepted: u64,
    received: Window,
    /// Sequence number of the last message to the asker.
    sequence: u64,
    requests: Bucket,
    trains: Bucket,
    ask: Ask,
    grant: Grant,
    /// The granted train has not been started yet.
    train_due: bool,
}

/// Answers the requests of askers.
#[derive(Debug)]
pub struct Answerer {
    key: Key,
    secret: Key,
    generation: u64,
    cookies: Bucket,
    peers: BTreeMap<SocketAddr, Peer>,
    refusing: bool,
    counters: Counters,
}

impl Answerer {
    /// Creates an answerer. `secret` must be random and different after each start.
    #[must_use]
    pub fn new(key: Key, secret: Key) -> Self {
        Answerer {
            key,
            secret,
            generation: 0,
            cookies: Bucket::default(),
            peers: BTreeMap::new(),
            refusing: false,
            counters: Counters::default(),
        }
    }

    /// The open streams: the asker's address, its request, and the grant.
    pub fn streams(&self, now_ns: u64) -> impl Iterator<Item = (SocketAddr, &Ask, Grant)> {
        let streams = self.peers.iter();
        let streams = streams.filter(move |(_, peer)| peer.is_open(now_ns));
        streams.map(|(addr, peer)| (*addr, &peer.ask, peer.grant))
    }

    /// The number of stored askers, at most [`MAX_PEERS`].
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.peers.len()
    }

    /// The number of ignored messages.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The request and the grant of this asker, if its stream is open.
    #[must_use]
    pub fn stream(&self, now_ns: u64, to: SocketAddr) -> Option<(&Ask, Grant)> {
        let peer = self.peers.get(&to).filter(|peer| peer.is_open(now_ns))?;
        Some((&peer.ask, peer.grant))
    }

    /// The last train granted to this asker, and the granted number of packets. Returned
    /// once per grant.
    pub fn take_train(&mut self, now_ns: u64, to: SocketAddr) -> Option<(Train, u16)> {
        let peer = self.peers.get_mut(&to)?;
        let is_due = std::mem::take(&mut peer.train_due) && peer.is_open(now_ns);
        let packets = peer.grant.train_packets;
        (is_due && packets > 0).then_some((peer.ask.train, packets))
    }

    /// The sequence number of the next message to this asker.
    #[must_use]
    pub fn next_sequence(&self, to: SocketAddr) -> Option<u64> {
        Some(self.peers.get(&to)?.sequence + 1)
    }

    /// Removes streams whose lifetime is over.
    pub fn expire(&mut self, now_ns: u64) {
        let before = self.peers.len();
        self.peers.retain(|_, peer| now_ns < peer.until_ns);
        if self.peers.len() < before {
            self.generation += 1;
        }
    }

    /// Builds a probe or a report for an asker, with the next sequence number of
    /// its stream. None without an open stream, or for another message kind.
    pub fn measurement(&mut self, now_ns: u64, to: SocketAddr, body: Body) -> Option<Vec<u8>> {
        let peer = self.peers.get_mut(&to)?;
        if !peer.is_open(now_ns) || !matches!(body, Body::Probe(_) | Body::Report(_)) {
            return None;
        }
        Some(peer.message(body).build(&self.key))
    }

    /// Ends all streams and refuses new ones. Returns the byes to send.
    pub fn stop(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        self.refusing = true;
        self.generation += 1;
        let peers = std::mem::take(&mut self.peers).into_iter();
        let open = peers.filter(|(_, peer)| peer.state == State::Open);
        open.map(|(addr, mut peer)| {
            let bye = peer.message(Body::Bye(Role::Answerer));
            (addr, bye.build(&self.key))
        })
        .collect()
    }

    /// Processes a message that was sent to `to`, an address of this router. Returns
    /// the acknowledgement of a request.
    ///
    /// # Errors
    /// The reason why the message was ignored, which is also counted.
    pub fn receive(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        to: IpAddr,
        bytes: &[u8],
    ) -> Result<Option<Vec<u8>>, Ignored> {
        self.expire(now_ns);
        let received = self.handle_message(now_ns, from, to, bytes);
        if let Err(why) = received {
            self.counters.count(why);
        }
        received
    }

    fn handle_message(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        to: IpAddr,
        bytes: &[u8],
    ) -> Result<Option<Vec<u8>>, Ignored> {
        let message = Message::parse(bytes, &self.key)?;
        let peer = self.peers.get_mut(&from);
        let peer = peer.filter(|peer| peer.stream == message.stream);
        match message.body {
            Body::Request(request) => {
                if request.path != Path::new(from.ip(), to) {
                    return Err(Ignored::Unexpected);
                }
                if let Some(peer) = peer {
                    peer.received.accept(message.sequence)?;
                }
                let answer = self.on_request(now_ns, from, &message, &request)?;
                let acknowledgement = Message {
                    body: Body::Acknowledgement(answer),
                    ..message
                };
                Ok(Some(acknowledgement.build(&self.key)))
            }
            Body::Bye(Role::Asker) => {
                let peer = peer.ok_or(Ignored::Unexpected)?;
                peer.received.accept(message.sequence)?;
                peer.state = State::Ended;
                Ok(None)
            }
            _ => Err(Ignored::Unexpected),
        }
    }

    fn on_request(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        message: &Message,
        request: &Request,
    ) -> Result<Acknowledgement, Ignored> {
        let known = self.peers.get(&from);
        let same = known.filter(|peer| peer.stream == message.stream);
        let (generation, accepted) = same.map_or((self.generation, 0), |peer| {
            (peer.generation, peer.accepted)
        });
        let bytes = cookie_bytes(from, message.stream, generation, accepted);
        let good = self.secret.verify(&bytes, &request.cookie);
        if !good && !self.take_cookie(now_ns) {
            return Err(Ignored::Rate);
        }
        if self.refusing {
            return Ok(without_grant(Status::Refused));
        }
        if !good {
            return Ok(Acknowledgement {
                cookie: self.secret.tag(&bytes),
                ..without_grant(Status::CookieNeeded)
            });
        }
        let cost_ns = REFRESH_NS / REQUESTS;
        let allowed = match self.peers.get_mut(&from) {
            Some(peer) => peer.requests.take(now_ns, cost_ns, REFRESH_NS),
            None => self.has_room(),
        };
        if !allowed {
            return Ok(without_grant(Status::Busy));
        }
        let peer = self.peer(from, message);
        peer.accept(now_ns, &request.ask);
        let (grant, generation, accepted) = (peer.grant, peer.generation, peer.accepted);
        let bytes = cookie_bytes(from, message.stream, generation, accepted);
        Ok(Acknowledgement {
            status: Status::Accepted,
            cookie: self.secret.tag(&bytes),
            grant,
        })
    }

    /// Limits the answers to requests without a valid cookie, which may be replayed.
    fn take_cookie(&mut self, now_ns: u64) -> bool {
        let cost_ns = SECOND_NS / COOKIES_PER_S;
        self.cookies.take(now_ns, cost_ns, SECOND_NS)
    }

    /// Makes room for another asker. If needed, removes an asker whose stream has ended.
    fn has_room(&mut self) -> bool {
        if self.peers.len() < MAX_PEERS {
            return true;
        }
        let ended = self.peers.iter().find(|(_, p)| p.state == State::Ended);
        let Some(addr) = ended.map(|(addr, _)| *addr) else {
            return false;
        };
        self.peers.remove(&addr);
        self.generation += 1;
        true
    }

    /// The record of this asker and stream. A new stream replaces the old one and
    /// keeps its token buckets.
    fn peer(&mut self, from: SocketAddr, message: &Message) -> &mut Peer {
        let replaced = self.peers.get(&from);
        if replaced.is_some_and(|peer| peer.stream != message.stream) {
            self.generation += 1;
        }
        let generation = self.generation;
        let peer = self.peers.entry(from).or_default();
        if peer.accepted == 0 || peer.stream != message.stream {
            *peer = Peer {
                stream: message.stream,
                generation,
                // higher than any sequence number of this stream before a restart
                sequence: message.sequence << 32,
                requests: peer.requests,
                trains: peer.trains,
                ..Peer::default()
            };
            // an empty window accepts any number
            let _ = peer.received.accept(message.sequence);
        }
        peer
    }
}

impl Peer {
    fn is_open(&self, now_ns: u64) -> bool {
        self.state == State::Open && now_ns < self.until_ns
    }

    fn accept(&mut self, now_ns: u64, ask: &Ask) {
        self.state = State::Open;
        self.accepted += 1;
        self.until_ns = now_ns.saturating_add(LIFETIME_NS);
        self.ask = *ask;
        let rate_Bps = (ask.estimate_Bps / PROBING_SHARE).max(FLOOR_BPS) / 2;
        let time_ns = |size_B: u16| {
            let ns = u64::from(size_B + OVERHEAD_B) * SECOND_NS;
            ns.div_ceil(rate_Bps).max(1)
        };
        let least_us = time_ns(ask.size_B.min(MAX_LENGTH)).div_ceil(1_000);
        let least_us = u32::try_from(least_us).unwrap_or(u32::MAX);
        let interval_us = match ask.interval_us {
            0 => 0,
            asked_us => asked_us.max(least_us),
        };
        let cost_ns = time_ns(ask.train.size_B.min(MAX_LENGTH));
        let affordable = self.trains.level_ns(now_ns, REFRESH_NS) / cost_ns;
        let wanted = ask.train.packets.min(MAX_TRAIN);
        let train_packets = match u64::from(wanted).min(affordable) {
            0 | 1 => 0, // a train needs at least one gap
            packets => packets as u16,
        };
        self.trains
            .spend(now_ns, u64::from(train_packets) * cost_ns);
        self.grant = Grant {
            interval_us,
            train_packets,
        };
        self.train_due = true;
    }

    fn message(&mut self, body: Body) -> Message {
        self.sequence += 1;
        Message {
            stream: self.stream,
            sequence: self.sequence,
            body,
        }
    }
}

fn without_grant(status: Status) -> Acknowledgement {
    Acknowledgement {
        status,
        cookie: Cookie::default(),
        grant: Grant::default(),
    }
}

/// The bytes that a cookie authenticates.
fn cookie_bytes(addr: SocketAddr, stream: u64, generation: u64, accepted: u64) -> Vec<u8> {
    let mut bytes = match addr.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    bytes.extend(addr.port().to_be_bytes());
    for number in [stream, generation, accepted] {
        bytes.extend(number.to_be_bytes());
    }
    bytes
}

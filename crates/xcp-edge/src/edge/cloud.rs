// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! An edge's measurements of the cloud between it and one upstream edge.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::datagram::Arrived;
use crate::conversation::{Asker, Counters, Ignored, Received, REFRESH_NS};
use crate::delay::Delay;
use crate::estimate::{Estimate, Source};
use crate::message::{
    self, overhead_B, Ask, Body, Error, Key, Message, Path, Probe, Report, MIN_PROBE_LENGTH, SINGLE,
};
use crate::train::{Packet, Train};

/// Requested time between single probes: 100 per second if the answerer grants it.
/// A control interval of a long path then has several probes; short paths have one probe
/// in a few control intervals.
const PROBE_INTERVAL_US: u32 = 10_000;
/// How long after the last packet of a train its corrections are accepted.
const LATE_NS: u64 = 1_000_000_000;
/// Most packets that are stored for a train: more than an answerer grants.
const MOST_PACKETS: usize = 1_024;
/// A train packet that follows the previous one after at least this gap also counts as a
/// single probe, since single probes pause during a train.
const SLOW_NS: u64 = 5_000_000;
/// How often the single probes are evaluated.
const INTERVAL_NS: u64 = 1_000_000_000;
/// The TTL of sent messages. The receiver computes the number of hops from it.
pub const FIRST_TTL: u8 = 255;

/// State of the conversation with an upstream edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No answer yet to the first request, or to the refresh of an expired grant.
    Asking,
    /// The upstream edge sends probes.
    Probed,
    /// The upstream edge does not answer or refuses.
    Broken,
}

/// A train that is being received.
#[derive(Debug)]
struct Arriving {
    number: u16,
    size_B: u16,
    /// Packets by sequence number, each with a flag: its send time has been corrected.
    packets: BTreeMap<u64, (Packet, bool)>,
    until_ns: u64,
}

/// A cloud, and the conversation with its upstream edge.
#[derive(Debug)]
pub struct Cloud {
    local: IpAddr,
    asker: Asker,
    delay: Delay,
    estimate: Estimate,
    ttl: Option<u8>,
    arriving: Option<Arriving>,
    /// The last complete train, and the time until which its late packets are ignored.
    over: Option<(u16, u64)>,
    probes: u64,
    trains: u64,
    /// Sequence number and send time of the last single probe.
    last: (u64, u64),
    /// No train is requested before this time.
    train_ns: u64,
    /// Whether the next request asks for a train.
    asks_train: bool,
    interval_ns: u64,
    retry_ns: u64,
}

impl Cloud {
    pub(super) fn new(
        key: Key,
        seed: Key,
        local: IpAddr,
        upstream: IpAddr,
        now_ns: u64,
        mut estimate: Estimate,
    ) -> Result<Self, Error> {
        let ask = ask_for(estimate.next_train(now_ns), 0);
        Ok(Cloud {
            local,
            asker: Asker::new(key, seed, Path::new(local, upstream), ask)?,
            delay: Delay::default(),
            estimate,
            ttl: None,
            arriving: None,
            over: None,
            probes: 0,
            trains: 0,
            last: (0, 0),
            train_ns: 0,
            asks_train: true,
            interval_ns: now_ns + INTERVAL_NS,
            retry_ns: now_ns,
        })
    }

    /// The source address of this router's requests.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// The state of the conversation.
    #[must_use]
    pub fn state(&self, now_ns: u64) -> State {
        if self.asker.is_broken() {
            State::Broken
        } else if self.asker.grant(now_ns).is_some() {
            State::Probed
        } else {
            State::Asking
        }
    }

    /// The number of routers in the cloud, from the TTL of the last probe.
    #[must_use]
    pub fn routers(&self) -> Option<u8> {
        Some(FIRST_TTL - self.ttl?)
    }

    /// The estimate of the available bandwidth.
    #[must_use]
    pub fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    /// The queueing delay of the last single probe, ns.
    #[must_use]
    pub fn queue_ns(&self) -> Option<u64> {
        self.delay.last_ns()
    }

    /// The send and receive times to pass to [`super::Edge::restore_base_probe`] after a restart.
    #[must_use]
    pub fn base_probe(&self) -> Option<(u64, u64)> {
        self.delay.base_probe()
    }

    pub(super) fn restore_base_probe(&mut self, (sent_ns, received_ns): (u64, u64), routers: u8) {
        self.delay.on_probe(sent_ns, received_ns);
        self.ttl = Some(FIRST_TTL - routers);
    }

    /// This system's wall clock was stepped.
    pub(super) fn on_step(&mut self) {
        self.delay.reset();
    }

    /// The number of received probes.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// The number of trains that the estimate used.
    #[must_use]
    pub fn trains(&self) -> u64 {
        self.trains
    }

    /// The number of ignored messages from the upstream edge.
    #[must_use]
    pub fn ignored(&self) -> Counters {
        self.asker.counters()
    }

    pub(super) fn bye(&mut self, now_ns: u64) -> Vec<u8> {
        self.asker.bye(now_ns)
    }

    pub(super) fn next_ns(&self) -> u64 {
        let asker_ns = self.asker.next_ns().unwrap_or(u64::MAX);
        let train_ns = self.arriving.as_ref().map_or(u64::MAX, |a| a.until_ns);
        let own_ns = self.interval_ns.min(self.retry_ns);
        asker_ns.min(train_ns).min(own_ns)
    }

    /// The request to send now, if any.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if now_ns >= self.retry_ns {
            self.retry_ns = now_ns + REFRESH_NS;
            self.asker.retry(now_ns);
        }
        if self.arriving.as_ref().is_some_and(|a| now_ns >= a.until_ns) {
            self.end_train(now_ns);
        }
        if now_ns >= self.interval_ns {
            self.interval_ns = now_ns + INTERVAL_NS;
            let least_ns = self.delay.take_least_ns();
            self.estimate.on_interval(least_ns);
            if self.asks_train != self.wants_train(now_ns) {
                self.update_request(now_ns);
            }
        }
        self.asker.poll(now_ns)
    }

    pub(super) fn receive(
        &mut self,
        now_ns: u64,
        arrived: &Arrived<'_>,
    ) -> Result<Option<Vec<u8>>, Ignored> {
        let (heard, answer) = self.asker.receive(now_ns, arrived.bytes)?;
        if let Received::Measurement(Message { sequence, body, .. }) = heard {
            if self.ttl.is_some() && arrived.ttl.is_some() && self.ttl != arrived.ttl {
                self.delay.reset(); // the route changed
            }
            self.ttl = arrived.ttl.or(self.ttl);
            match body {
                Body::Probe(probe) => self.on_probe(now_ns, sequence, &probe, arrived.wall_ns),
                Body::Report(report) => self.on_report(now_ns, sequence, &report),
                _ => {}
            }
        }
        Ok(answer)
    }

    fn on_probe(&mut self, now_ns: u64, sequence: u64, probe: &Probe, received_ns: u64) {
        self.probes += 1;
        if probe.number == SINGLE {
            let (last, sent_ns) = std::mem::replace(&mut self.last, (sequence, probe.sent_ns));
            if sequence > last && probe.sent_ns < sent_ns {
                self.delay.reset(); // the answerer's clock was stepped
            }
            return self.delay.on_probe(probe.sent_ns, received_ns);
        }
        let is_over = |(number, until_ns)| number == probe.train && now_ns < until_ns;
        if self.over.is_some_and(is_over) {
            return;
        }
        if self
            .arriving
            .as_ref()
            .is_some_and(|a| a.number != probe.train)
        {
            self.end_train(now_ns);
        }
        let arriving = self.arriving.get_or_insert_with(|| Arriving {
            number: probe.train,
            size_B: probe.length,
            packets: BTreeMap::new(),
            until_ns: 0,
        });
        arriving.until_ns = now_ns + LATE_NS;
        let slow = |packet: &Packet| probe.sent_ns.saturating_sub(packet.sent_ns) >= SLOW_NS;
        if arriving
            .packets
            .values()
            .last()
            .is_some_and(|(p, _)| slow(p))
        {
            self.delay.on_probe(probe.sent_ns, received_ns);
        }
        let packet = Packet {
            number: probe.number,
            sent_ns: probe.sent_ns,
            received_ns,
        };
        if arriving.packets.len() < MOST_PACKETS {
            arriving.packets.insert(sequence, (packet, false));
        }
    }

    fn on_report(&mut self, now_ns: u64, sequence: u64, report: &Report) {
        let Some(arriving) = &mut self.arriving else {
            return;
        };
        for correction in &report.corrections {
            let probe = sequence.wrapping_sub(u64::from(correction.behind));
            if let Some((packet, is_corrected)) = arriving.packets.get_mut(&probe) {
                let offset_ns = i64::from(correction.offset_ns);
                if !std::mem::replace(is_corrected, true) {
                    packet.sent_ns = packet.sent_ns.wrapping_add_signed(offset_ns);
                }
            }
        }
        if arriving.packets.values().all(|(_, corrected)| *corrected) {
            self.end_train(now_ns);
        }
    }

    /// Updates the estimate with the train, and requests the next one.
    fn end_train(&mut self, now_ns: u64) {
        let Some(arriving) = self.arriving.take() else {
            return;
        };
        self.over = Some((arriving.number, now_ns + LATE_NS));
        let numbers = arriving.packets.values().map(|(packet, _)| packet.number);
        let sent = numbers.max().map_or(0, |last| usize::from(last) + 1);
        self.estimate.on_train_lost(arriving.packets.len() < sent);
        let packets = arriving.packets.into_values().map(|(packet, _)| packet);
        let size_B = arriving.size_B + overhead_B(self.local);
        if let Some(train) = Train::new(packets.collect(), size_B) {
            self.trains += 1;
            self.estimate.on_train(now_ns, train);
        }
        let after_ns = self.estimate.next_train_after_ns(now_ns);
        let is_rare = self.estimate.is_lossy();
        self.train_ns = now_ns + if is_rare { after_ns } else { 0 };
        if self.update_request(now_ns) && !is_rare {
            self.asker.refresh_at(now_ns + after_ns);
        }
    }

    fn wants_train(&self, now_ns: u64) -> bool {
        !self.estimate.is_full() && now_ns >= self.train_ns
    }

    /// Sets the next request. It has no train while there is a standing queue: no bandwidth is
    /// available then, and a train would add to the queue.
    fn update_request(&mut self, now_ns: u64) -> bool {
        let known_Bps = self.estimate.estimate_Bps(now_ns).unwrap_or(0.0);
        let mut train = self.estimate.next_train(now_ns);
        self.asks_train = self.wants_train(now_ns);
        if !self.asks_train {
            train.packets = 0;
        }
        // an invalid request is discarded: the previous one stays
        self.asker.set_ask(ask_for(train, known_Bps as u64)).is_ok()
    }
}

fn ask_for(train: message::Train, estimate_Bps: u64) -> Ask {
    Ask {
        interval_us: PROBE_INTERVAL_US,
        size_B: MIN_PROBE_LENGTH,
        train,
        estimate_Bps,
    }
}

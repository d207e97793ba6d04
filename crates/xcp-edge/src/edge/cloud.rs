// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What an edge knows of the cloud between it and one upstream edge.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::datagram::Arrived;
use crate::conversation::{Asker, Counters, Heard, Ignored, REFRESH_NS};
use crate::delay::Delay;
use crate::estimate::{Estimate, Source};
use crate::message::{
    self, overhead_B, Ask, Body, Error, Key, Message, Path, Probe, Report, MIN_PROBE_LENGTH, SINGLE,
};
use crate::train::{Packet, Train};

/// Single probes, a hundred a second where so many are granted: some in each control
/// interval of a long path, and in a few of a short one.
const PROBE_INTERVAL_US: u32 = 10_000;
/// How long after the last packet of a train its corrections may come.
const LATE_NS: u64 = 1_000_000_000;
/// Packets of a train that are kept: more than are granted.
const MOST_PACKETS: usize = 1_024;
/// A packet of a train that comes so long after the one before it is as good as a
/// single probe, of which there are none in the meantime.
const SLOW_NS: u64 = 5_000_000;
/// How often the single probes are judged.
const INTERVAL_NS: u64 = 1_000_000_000;
/// The TTL that messages are sent with: what is missing are hops.
pub const FIRST_TTL: u8 = 255;

/// How the conversation with an upstream edge stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not answered yet, or not again.
    Asking,
    /// It sends probes.
    Probed,
    /// It does not answer, or does not want to.
    Broken,
}

/// A train that is arriving.
#[derive(Debug)]
struct Arriving {
    number: u16,
    size_B: u16,
    /// By sequence number; whether its time of sending has been corrected.
    packets: BTreeMap<u64, (Packet, bool)>,
    until_ns: u64,
}

/// A cloud, and the conversation with the edge at its other side.
#[derive(Debug)]
pub struct Cloud {
    local: IpAddr,
    asker: Asker,
    delay: Delay,
    estimate: Estimate,
    ttl: Option<u8>,
    arriving: Option<Arriving>,
    /// A train that is over, and until when packets of it may come.
    over: Option<(u16, u64)>,
    probes: u64,
    trains: u64,
    /// The last single probe's sequence number, and when it was sent.
    last: (u64, u64),
    /// Before this time no train is asked for.
    train_ns: u64,
    /// Whether the next request asks for one.
    asks_train: bool,
    interval_ns: u64,
    seen_ns: u64,
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
            asker: Asker::new(key, seed, Path::new(local, upstream), ask, now_ns)?,
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
            seen_ns: now_ns,
        })
    }

    /// The address that this router asks from.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// How the conversation stands.
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

    /// Routers in the cloud, as the TTL of the last probe tells: 0 where there is
    /// none.
    #[must_use]
    pub fn routers(&self) -> Option<u8> {
        Some(FIRST_TTL - self.ttl?)
    }

    /// What is known of what is free.
    #[must_use]
    pub fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    /// The queueing delay that the last single probe has met, ns.
    #[must_use]
    pub fn queue_ns(&self) -> Option<u64> {
        self.delay.last_ns()
    }

    /// What [`super::Edge::recall`] takes after a restart.
    #[must_use]
    pub fn base_probe(&self) -> Option<(u64, u64)> {
        self.delay.base_probe()
    }

    pub(super) fn recall(&mut self, (sent_ns, received_ns): (u64, u64), routers: u8) {
        self.delay.on_probe(sent_ns, received_ns);
        self.ttl = Some(FIRST_TTL - routers);
    }

    /// This system's clock was set.
    pub(super) fn on_step(&mut self) {
        self.delay.reset();
    }

    /// Probes that have arrived.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// Trains that the estimate has learnt from.
    #[must_use]
    pub fn trains(&self) -> u64 {
        self.trains
    }

    /// What was ignored of what the upstream edge sent.
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
        let own_ns = self.interval_ns.min(self.seen_ns);
        asker_ns.min(train_ns).min(own_ns)
    }

    /// The request to send now, if there is one.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if now_ns >= self.seen_ns {
            // nobody tells yet whether packets come from there
            self.seen_ns = now_ns + REFRESH_NS;
            self.asker.packet_seen(now_ns);
        }
        if self.arriving.as_ref().is_some_and(|a| now_ns >= a.until_ns) {
            self.end_train(now_ns);
        }
        if now_ns >= self.interval_ns {
            self.interval_ns = now_ns + INTERVAL_NS;
            let least_ns = self.delay.take_least_ns();
            self.estimate.on_interval(least_ns);
            if self.asks_train != self.wants_train(now_ns) {
                self.ask_anew(now_ns);
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
        if let Heard::Measurement(Message { sequence, body, .. }) = heard {
            if self.ttl.is_some() && arrived.ttl.is_some() && self.ttl != arrived.ttl {
                self.delay.reset(); // by another route
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
                self.delay.reset(); // the answerer's clock was set
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

    /// Learns from the train, and asks for the next one.
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
        if self.ask_anew(now_ns) && !is_rare {
            self.asker.refresh_at(now_ns + after_ns);
        }
    }

    fn wants_train(&self, now_ns: u64) -> bool {
        !self.estimate.is_full() && now_ns >= self.train_ns
    }

    /// Asks for another train. For none while a queue stands: nothing is free then,
    /// and a train would add to it.
    fn ask_anew(&mut self, now_ns: u64) -> bool {
        let known_Bps = self.estimate.estimate_Bps(now_ns).unwrap_or(0.0);
        let mut train = self.estimate.next_train(now_ns);
        self.asks_train = self.wants_train(now_ns);
        if !self.asks_train {
            train.packets = 0;
        }
        // an ask that cannot be made leaves the last one
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

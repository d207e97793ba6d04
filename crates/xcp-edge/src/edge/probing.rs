// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The probes that an edge sends to one asker: single probes, trains, and after each
//! train a report with the transmit timestamps of its packets.
//!
//! ```text
//!            a train was granted           its last packet is sent
//!   Resting --------------------> Sending -------------------------+
//!      ^                                                           v
//!      +---------------------------------------------------- Reporting
//!                 all known timestamps are reported
//! ```

use std::net::{IpAddr, SocketAddr};

use super::datagram::{Datagram, Stamp, Time};
use crate::conversation::Answerer;
use crate::message::{overhead_B, Body, Correction, Probe, Report, Train, MAX_CORRECTIONS, SINGLE};

/// How long after a train the kernel has returned all transmit timestamps: twice
/// the time to drain a 10 ms queue in this system.
const SETTLED_NS: u64 = 20_000_000;
/// A transmit timestamp further from the probe's own time is from another clock.
const MOST_NS: i64 = 1_000_000_000;

/// A packet of the last train.
#[derive(Clone, Copy, Debug)]
struct Sent {
    sequence: u64,
    sent_ns: u64,
    offset_ns: Option<i32>,
}

#[derive(Debug)]
enum State {
    /// Single probes only.
    Resting,
    /// A train is being sent. Single probes pause, since they would fall between
    /// its packets. A late packet delays all later ones: if they made up for the delay,
    /// they would follow in a burst and measure the queue that the burst built.
    Sending {
        train: Train,
        times_ns: Vec<u64>,
        next_ns: u64,
    },
    /// Reports are sent from this time on.
    Reporting { from_ns: u64 },
}

/// The state of probing for one asker.
#[derive(Debug)]
pub(super) struct Probing {
    local: IpAddr,
    state: State,
    /// When the next single probe is due.
    single_ns: u64,
    trains: u16,
    probes: u64,
    /// The packets of the last train.
    sent: Vec<Sent>,
}

impl Probing {
    /// Creates the state for probes that are sent from this address.
    pub(super) fn new(local: IpAddr, now_ns: u64) -> Self {
        Probing {
            local,
            state: State::Resting,
            single_ns: now_ns,
            trains: 0,
            probes: 0,
            sent: Vec::new(),
        }
    }

    pub(super) fn local(&self) -> IpAddr {
        self.local
    }

    pub(super) fn next_ns(&self) -> u64 {
        match &self.state {
            State::Resting => self.single_ns,
            State::Sending { next_ns, .. } => *next_ns,
            State::Reporting { from_ns } => *from_ns,
        }
    }

    pub(super) fn transmitted(&mut self, sequence: u64, wall_ns: u64) {
        let sent = self.sent.iter_mut().find(|sent| sent.sequence == sequence);
        let Some(sent) = sent else { return };
        let offset_ns = wall_ns.wrapping_sub(sent.sent_ns).cast_signed();
        if offset_ns.abs() < MOST_NS {
            sent.offset_ns = Some(offset_ns as i32);
        }
    }

    pub(super) fn poll(
        &mut self,
        time: Time,
        to: SocketAddr,
        answerer: &mut Answerer,
    ) -> Option<Datagram> {
        if matches!(self.state, State::Resting) {
            if let Some((train, packets)) = answerer.take_train(time.now_ns, to) {
                self.begin(train, packets, time.now_ns);
            }
        }
        if time.now_ns < self.next_ns() {
            return None;
        }
        match &self.state {
            State::Resting => self.single(time, to, answerer),
            State::Sending { .. } => self.of_train(time, to, answerer),
            State::Reporting { .. } => self.report(time, to, answerer),
        }
    }

    fn begin(&mut self, train: Train, packets: u16, now_ns: u64) {
        self.trains = self.trains.wrapping_add(1);
        self.sent.clear();
        self.state = State::Sending {
            train,
            times_ns: train.times_ns(packets, overhead_B(self.local)),
            next_ns: now_ns,
        };
    }

    fn single(&mut self, time: Time, to: SocketAddr, answerer: &mut Answerer) -> Option<Datagram> {
        let (ask, grant) = answerer.stream(time.now_ns, to)?;
        let (length, interval_us) = (ask.size_B, grant.interval_us);
        if interval_us == 0 {
            // no single probes requested: check again soon, a new grant may change that
            self.single_ns = time.now_ns + SETTLED_NS;
            return None;
        }
        let interval_ns = u64::from(interval_us) * 1_000;
        self.single_ns = time.now_ns + interval_ns;
        let probe = Probe {
            sent_ns: time.wall_ns,
            number: SINGLE,
            train: self.trains,
            length,
        };
        self.send(time, to, answerer, Body::Probe(probe))
    }

    fn of_train(
        &mut self,
        time: Time,
        to: SocketAddr,
        answerer: &mut Answerer,
    ) -> Option<Datagram> {
        let sent = self.sent.len();
        let State::Sending {
            train,
            times_ns,
            next_ns,
        } = &mut self.state
        else {
            return None;
        };
        let next = times_ns.get(sent + 1);
        let is_last = next.is_none();
        *next_ns = time.now_ns + next.map_or(0, |at_ns| at_ns - times_ns[sent]);
        let probe = Probe {
            sent_ns: time.wall_ns,
            number: sent as u16,
            train: self.trains,
            length: train.size_B,
        };
        let sequence = answerer.next_sequence(to)?;
        self.sent.push(Sent {
            sequence,
            sent_ns: time.wall_ns,
            offset_ns: None,
        });
        if is_last {
            let from_ns = time.now_ns + SETTLED_NS;
            self.state = State::Reporting { from_ns };
        }
        let datagram = self.send(time, to, answerer, Body::Probe(probe))?;
        Some(Datagram {
            stamp: Some(Stamp { to, sequence }),
            ..datagram
        })
    }

    fn report(&mut self, time: Time, to: SocketAddr, answerer: &mut Answerer) -> Option<Datagram> {
        let sequence = answerer.next_sequence(to)?;
        self.sent.retain(|sent| sent.offset_ns.is_some());
        let count = self.sent.len().min(MAX_CORRECTIONS);
        let corrections = self.sent.drain(..count).filter_map(|sent| {
            Some(Correction {
                // skips probes of an earlier stream
                behind: u32::try_from(sequence.checked_sub(sent.sequence)?).ok()?,
                offset_ns: sent.offset_ns?,
            })
        });
        let report = Report {
            xcp_B: 0,
            probes: self.probes,
            corrections: corrections.collect(),
        };
        if self.sent.is_empty() {
            self.state = State::Resting;
        }
        self.send(time, to, answerer, Body::Report(report))
    }

    fn send(
        &mut self,
        time: Time,
        to: SocketAddr,
        answerer: &mut Answerer,
        body: Body,
    ) -> Option<Datagram> {
        self.probes += u64::from(matches!(body, Body::Probe(_)));
        let bytes = answerer.measurement(time.now_ns, to, body)?;
        Some(Datagram::plain(self.local, to, bytes))
    }
}

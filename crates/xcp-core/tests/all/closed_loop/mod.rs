// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Simulates senders, a router and a link with variable capacity, packet by packet: the
//! control laws of core/ in a closed loop, without a kernel.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, per second

use std::collections::VecDeque;
use std::fmt::{Debug, Formatter, Result};

use xcp_core::*;

pub const PACKET_B: u32 = 1500;

/// The parameters of a simulation.
pub struct Loop {
    pub flows: usize,
    pub rtt_s: f64,
    /// Each flow's RTT is longer than that of the flow before it by this, s.
    pub rtt_step_s: f64,
    pub duration_s: f64,
    /// The capacity that is configured at the router, B/s; 0 = none.
    pub configured_Bps: f64,
    pub measure: bool,
    /// The link's capacity at a time, B/s.
    pub link_Bps: fn(f64) -> f64,
    /// The length of the warm-up, which the outcome ignores, s.
    pub warm_s: f64,
    /// When flows end, s, and how many of the first flows remain.
    pub leave: Option<(f64, usize)>,
    pub forged: Option<Forged>,
}

impl Default for Loop {
    fn default() -> Self {
        Loop {
            flows: 1,
            rtt_s: 0.1,
            rtt_step_s: 0.0,
            duration_s: 60.0,
            configured_Bps: 0.0,
            measure: true,
            link_Bps: |_| 1_250_000.0,
            warm_s: 5.0,
            leave: None,
            forged: None,
        }
    }
}

impl Loop {
    fn flow_rtt_s(&self, i: usize) -> f64 {
        self.rtt_s + i as f64 * self.rtt_step_s
    }
}

/// A sender of small packets with forged headers.
#[derive(Clone, Copy)]
pub struct Forged {
    pub every_s: f64,
    /// When it stops sending, s.
    pub until_s: f64,
    pub packet: xcp_bench_packet,
}

/// The result of a simulation, after the warm-up.
pub struct Outcome {
    /// The used part of the link's capacity.
    pub utilisation: f64,
    /// The queueing delays of all dequeued packets, s, sorted.
    delays_s: Vec<f64>,
    pub jain: f64,
    /// d at the end, s.
    pub d_s: f64,
    /// The most flows that the router counted.
    pub most_flows: f64,
    /// When the link had sent each packet, s.
    sent_s: Vec<f64>,
}

impl Debug for Outcome {
    fn fmt(&self, f: &mut Formatter) -> Result {
        f.debug_struct("Outcome")
            .field("utilisation", &self.utilisation)
            .field("delay_s(0.99)", &self.delay_s(0.99))
            .field("jain", &self.jain)
            .field("d_s", &self.d_s)
            .field("most_flows", &self.most_flows)
            .finish()
    }
}

impl Outcome {
    /// What the link sent in a time, B/s.
    pub fn rate_Bps(&self, from_s: f64, to_s: f64) -> f64 {
        let before = |at_s| self.sent_s.partition_point(|sent_s| *sent_s < at_s);
        (before(to_s) - before(from_s)) as f64 * f64::from(PACKET_B) / (to_s - from_s)
    }

    /// The queueing delay that this part of the packets did not exceed, s.
    pub fn delay_s(&self, part: f64) -> f64 {
        self.delays_s[((self.delays_s.len() - 1) as f64 * part) as usize]
    }
}

struct InFlight {
    sent_s: f64,
    delta: i32,
}

struct Flow {
    sender: xcp_sender,
    next_s: f64,
    in_flight: usize,
    acks: VecDeque<(f64, InFlight)>,
    acked: u64,
}

impl Flow {
    fn new(start_s: f64, rtt_s: f64) -> Self {
        Flow {
            sender: new_sender(PACKET_B, 10, 1 << 24, xcp_ns_to_ticks((rtt_s * 1e9) as u64)),
            next_s: start_s,
            in_flight: 0,
            acks: VecDeque::new(),
            acked: 0,
        }
    }

    /// When the flow may send next; infinity while its window is full.
    fn ready_s(&self, now_s: f64) -> f64 {
        if self.in_flight < xcp_sender_packets(&self.sender) as usize + 2 {
            self.next_s.max(now_s)
        } else {
            f64::INFINITY
        }
    }

    fn take_ack(&mut self, now_s: f64) {
        let Some((_, packet)) = self.acks.pop_front() else {
            return;
        };
        let rtt = xcp_ns_to_ticks(((now_s - packet.sent_s) * 1e9) as u64);
        self.in_flight -= 1;
        self.acked += 1;
        xcp_sender_rtt(&mut self.sender, rtt, false);
        xcp_sender_feedback(&mut self.sender, packet.delta.into());
        xcp_sender_update(&mut self.sender);
    }
}

enum Event {
    Leaves,
    Ack(usize),
    Sends(usize),
    Lies(xcp_bench_packet),
}

/// Returns how long a link takes to send a packet from `begin_s` on, s. The link's rate
/// is sampled every 20 ms.
fn transmission_time_s(link_Bps: fn(f64) -> f64, begin_s: f64) -> f64 {
    const POLL_S: f64 = 0.02;
    let (mut left_B, mut at_s) = (f64::from(PACKET_B), begin_s);
    loop {
        let rate_Bps = link_Bps(at_s);
        let next_s = ((at_s / POLL_S + 1e-6).floor() + 1.0) * POLL_S;
        if rate_Bps * (next_s - at_s) >= left_B {
            return at_s + left_B / rate_Bps - begin_s;
        }
        left_B -= rate_Bps * (next_s - at_s);
        at_s = next_s;
    }
}

pub fn run(what: &Loop) -> Outcome {
    let params = xcp_router_params {
        capacity_Bps: what.configured_Bps as u64,
        min_interval_ns: 1_000_000,
        ..xcp_router_params::default()
    };
    let mut router = Router::new(params, 0);
    let mut flows: Vec<Flow> = (0..what.flows)
        .map(|i| Flow::new(0.013 * i as f64, what.flow_rtt_s(i)))
        .collect();
    let mut queue: VecDeque<(usize, InFlight)> = VecDeque::new();
    let (mut now_s, mut leaves_s) = (0.0, f64::INFINITY);
    let mut lies_s = 0.0;
    let (mut sent, mut sent_warm, mut offered_B) = (0u64, 0u64, 0.0);
    let mut seen = xcp_link_samples::default();
    let (mut delays_s, mut most_flows) = (Vec::new(), 0.0);
    let mut sent_s = Vec::new();
    let size_s = |at_s| transmission_time_s(what.link_Bps, at_s);
    loop {
        let (mut at_s, mut event) = (leaves_s, Event::Leaves);
        if let Some(forged) = what.forged {
            if lies_s < at_s.min(forged.until_s) {
                (at_s, event) = (lies_s, Event::Lies(forged.packet));
            }
        }
        for (i, flow) in flows.iter().enumerate() {
            if let Some((ack_s, _)) = flow.acks.front().filter(|(t, _)| *t < at_s) {
                (at_s, event) = (*ack_s, Event::Ack(i));
            }
            let ready_s = flow.ready_s(now_s);
            let gone = |(leave_s, stay)| ready_s >= leave_s && i >= stay;
            if ready_s < at_s && !what.leave.is_some_and(gone) {
                (at_s, event) = (ready_s, Event::Sends(i));
            }
        }
        if at_s > what.duration_s {
            break;
        }
        if at_s > what.warm_s {
            offered_B += (what.link_Bps)(now_s) * (at_s - now_s);
        }
        now_s = at_s;
        let backlog_B = queue.len() as u64 * u64::from(PACKET_B);
        match event {
            Event::Leaves => {
                let Some((i, packet)) = queue.pop_front() else {
                    break;
                };
                sent += 1;
                sent_s.push(now_s);
                if now_s > what.warm_s {
                    sent_warm += 1;
                    delays_s.push(now_s - packet.sent_s - size_s(now_s));
                }
                flows[i]
                    .acks
                    .push_back((now_s + what.flow_rtt_s(i), packet));
                leaves_s = if queue.is_empty() {
                    f64::INFINITY
                } else {
                    now_s + size_s(now_s)
                };
            }
            Event::Ack(i) => flows[i].take_ack(now_s),
            Event::Lies(p) => {
                lies_s += what.forged.map_or(0.0, |forged| forged.every_s);
                router.arrival(p.size_B);
                router.arrival_xcp(1, p.size_B, p.x, p.rtt);
                router.departure(1, p.size_B, p.x, p.rtt, p.delta);
            }
            Event::Sends(i) => {
                let now_ns = (now_s * 1e9) as u64;
                xcp_link_sample(&mut seen, now_ns, sent * u64::from(PACKET_B), backlog_B);
                router.backlog(backlog_B);
                if router.queue_due(now_ns) {
                    router.queue_end(backlog_B, now_ns);
                }
                let changed = what.measure && router.link_changed(&seen);
                router.check_rtts(now_ns);
                if changed || router.interval_due(now_ns) {
                    if what.measure {
                        router.interval_end_seen(now_ns, &seen);
                    } else {
                        router.interval_end(now_ns);
                    }
                    seen.min_backlog_B = backlog_B;
                    if now_s > what.warm_s {
                        most_flows = router.flows().max(most_flows);
                    }
                }
                let flow = &mut flows[i];
                let packet = xcp_bench_packet {
                    size_B: PACKET_B.into(),
                    x: xcp_sender_next_x(&mut flow.sender),
                    rtt: flow.sender.rtt,
                    n: 1,
                    delta: flow.sender.request_Bps,
                    ..xcp_bench_packet::default()
                };
                router.arrival(packet.size_B);
                router.arrival_xcp(1, packet.size_B, packet.x, packet.rtt);
                let delta = router.departure(1, packet.size_B, packet.x, packet.rtt, packet.delta);
                flow.next_s = now_s + f64::from(PACKET_B) / flow.sender.pacing_Bps as f64;
                flow.in_flight += 1;
                if queue.is_empty() {
                    leaves_s = now_s + size_s(now_s);
                }
                let sent_s = now_s;
                queue.push_back((i, InFlight { sent_s, delta }));
            }
        }
    }
    delays_s.sort_by(f64::total_cmp);
    let sum: f64 = flows.iter().map(|f| f.acked as f64).sum();
    let squares: f64 = flows.iter().map(|f| (f.acked as f64).powi(2)).sum();
    Outcome {
        utilisation: sent_warm as f64 * f64::from(PACKET_B) / offered_B,
        delays_s,
        jain: sum * sum / squares / flows.len() as f64,
        d_s: router.d_s(),
        most_flows,
        sent_s,
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Simulates a path in virtual time: a fast hop, a FIFO bottleneck with other traffic and
//! a buffer, and another fast hop. The sender's clock is off by seconds and drifts.

use crate::random::Random;

/// The arrival pattern of the other traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cross {
    /// Single packets at random times.
    Poisson,
    /// In bursts of ten packets on average, at the bottleneck's rate.
    Bursts,
}

pub struct Path {
    pub random: Random,
    pub rate_Bps: f64,
    pub load: f64,
    pub cross: Cross,
    pub buffer_B: f64,
    pub drift: f64,
    /// The time that the bottleneck needs to send its queue, at `now_s`.
    queue_s: f64,
    now_s: f64,
    next_cross_s: f64,
    first_hop_s: f64,
    last_hop_s: f64,
}

/// The rate of the other hops relative to the bottleneck.
const FASTER: f64 = 10.0;
const PROPAGATION_S: f64 = 0.01;

impl Path {
    pub fn new(seed: u64, rate_Bps: f64, load: f64, cross: Cross) -> Self {
        Path {
            random: Random(seed),
            rate_Bps,
            load,
            cross,
            buffer_B: rate_Bps / 10.0,
            drift: 50e-6,
            queue_s: 0.0,
            now_s: 0.0,
            next_cross_s: 0.0,
            first_hop_s: 0.0,
            last_hop_s: 0.0,
        }
    }

    /// Returns the true available bandwidth, B/s.
    pub fn truth_Bps(&self) -> f64 {
        self.rate_Bps * (1.0 - self.load)
    }

    /// Returns the time of the sender's clock.
    pub fn sender_ns(&self, now_s: f64) -> u64 {
        7_000_000_000 + (now_s * (1.0 + self.drift) * 1e9) as u64
    }

    /// Sends a packet; packets are sent in order. Returns when it arrives, or
    /// None if it is lost.
    pub fn send(&mut self, sent_s: f64, size_B: f64) -> Option<f64> {
        let fast_s = size_B / self.rate_Bps / FASTER;
        self.first_hop_s = self.first_hop_s.max(sent_s) + fast_s;
        let at_s = self.first_hop_s + PROPAGATION_S;
        self.cross_until(at_s);
        self.advance(at_s);
        if !self.enqueue(size_B) {
            return None;
        }
        self.last_hop_s = self.last_hop_s.max(at_s + self.queue_s) + fast_s;
        Some(self.last_hop_s + PROPAGATION_S)
    }

    fn advance(&mut self, to_s: f64) {
        self.queue_s = (self.queue_s - (to_s - self.now_s)).max(0.0);
        self.now_s = to_s;
    }

    fn enqueue(&mut self, size_B: f64) -> bool {
        let fits = self.queue_s * self.rate_Bps + size_B <= self.buffer_B;
        if fits {
            self.queue_s += size_B / self.rate_Bps;
        }
        fits
    }

    /// Sends the other traffic until `at_s`: packets of 1500, 576 and 40 B, as in Internet mixes.
    fn cross_until(&mut self, at_s: f64) {
        const MEAN_B: f64 = 0.4 * 1_500.0 + 0.2 * 576.0 + 0.4 * 40.0;
        const BURST: f64 = 10.0;
        while self.load > 0.0 && self.next_cross_s <= at_s {
            self.advance(self.next_cross_s);
            let size_B = match self.random.unit() {
                x if x < 0.4 => 1_500.0,
                x if x < 0.6 => 576.0,
                _ => 40.0,
            };
            self.enqueue(size_B);
            let rate_Bps = self.rate_Bps * self.load;
            self.next_cross_s += match self.cross {
                Cross::Poisson => self.random.exponential(MEAN_B / rate_Bps),
                Cross::Bursts if self.random.unit() >= 1.0 / BURST => size_B / self.rate_Bps,
                Cross::Bursts => {
                    let pause_s = BURST * MEAN_B * (1.0 / rate_Bps - 1.0 / self.rate_Bps);
                    size_B / self.rate_Bps + self.random.exponential(pause_s)
                }
            };
        }
    }
}

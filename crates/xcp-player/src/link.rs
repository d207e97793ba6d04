// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A link of an experiment, and what it offers over time.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use xcp_datapath::router::Framing;

/// Two directions alike. Either a path, with a delay and a rate (or neither),
/// or a bottleneck, with a rate and a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub between: [String; 2],
    /// As fast as the devices are if absent.
    pub rate_mbit: Option<f64>,
    /// Of a bottleneck, in place of `rate_mbit`: `[s, Mb/s]`, from that second
    /// on that rate.
    #[serde(default)]
    pub rates: Vec<[f64; 2]>,
    /// The rates begin anew after so many seconds.
    pub repeat_s: Option<f64>,
    /// One way.
    #[serde(default)]
    pub delay_ms: f64,
    /// Limit of the queue at the bottleneck, in packets.
    pub queue_packets: Option<u32>,
    /// False for a queue that is never behind an XCP router, and always a FIFO.
    #[serde(default = "yes")]
    pub router: bool,
    /// What the link adds to each packet beyond what Linux counts.
    #[serde(default)]
    pub framing_bytes: u32,
    /// Only one end can send at a time.
    #[serde(default)]
    pub half_duplex: bool,
}

fn yes() -> bool {
    true
}

impl Default for Link {
    fn default() -> Self {
        Self {
            between: [String::new(), String::new()],
            rate_mbit: None,
            rates: Vec::new(),
            repeat_s: None,
            delay_ms: 0.0,
            queue_packets: None,
            router: true,
            framing_bytes: 0,
            half_duplex: false,
        }
    }
}

impl Link {
    pub const DELAYS_MS: RangeInclusive<f64> = 0.0..=60_000.0;

    /// What it adds to packets.
    pub fn framing(&self) -> Framing {
        Framing {
            overhead_bytes: self.framing_bytes as i32,
            ..Framing::default()
        }
    }

    /// Whether a path of its own kind must be emulated.
    pub fn needs_netem(&self) -> bool {
        self.queue_packets.is_none() && self.is_path()
    }

    fn is_path(&self) -> bool {
        self.rate_mbit.is_some() || self.delay_ms > 0.0
    }

    /// Whether its rate changes.
    pub fn varies(&self) -> bool {
        !self.rates.is_empty()
    }

    /// Bits per second at a moment; None if only the devices limit it.
    pub fn rate_bps(&self, time_s: f64) -> Option<f64> {
        if !self.varies() {
            return self.rate_mbit.map(|r| r * 1e6);
        }
        let time_s = self.repeat_s.map_or(time_s, |period| time_s % period);
        let step = self.rates.iter().rev().find(|[from, _]| *from <= time_s);
        step.map(|[_, mbit]| mbit * 1e6)
    }

    /// The highest rate it ever has, bits per second.
    pub fn highest_bps(&self) -> Option<f64> {
        let steps = self.rates.iter().map(|[_, mbit]| *mbit);
        let highest = steps.chain(self.rate_mbit).reduce(f64::max);
        highest.map(|mbit| mbit * 1e6)
    }

    /// Bits that it can carry between two moments.
    pub fn offered_bits(&self, from_s: f64, to_s: f64) -> f64 {
        if !self.varies() {
            return self.rate_bps(0.0).unwrap_or(0.0) * (to_s - from_s);
        }
        let mut bits = 0.0;
        let mut at = from_s;
        while at < to_s {
            let next = self.next_change(at).min(to_s);
            bits += self.rate_bps(at).unwrap_or(0.0) * (next - at);
            at = next;
        }
        bits
    }

    /// When the rate changes next; never if infinite.
    fn next_change(&self, after_s: f64) -> f64 {
        let (begin, within) = match self.repeat_s {
            Some(period) => ((after_s / period).floor() * period, after_s % period),
            None => (0.0, after_s),
        };
        // the next period begins with the first step
        let steps = self.rates.iter().map(|[from, _]| *from);
        steps
            .chain(self.repeat_s)
            .find(|from| *from > within)
            .map_or(f64::INFINITY, |from| {
                // rounding must not make time stand still
                (begin + from).max(after_s.next_up())
            })
    }

    /// What is wrong with it, if anything.
    pub fn fault(&self) -> Option<&'static str> {
        const RATES: std::ops::RangeInclusive<f64> = 0.008..=100_000.0;
        let mut all = self.rates.iter().map(|[_, mbit]| *mbit);
        if !all
            .by_ref()
            .chain(self.rate_mbit)
            .all(|r| RATES.contains(&r))
        {
            return Some("rates must be 0.008 to 100000 Mb/s");
        }
        if self.varies() && self.rate_mbit.is_some() {
            return Some("give either rate_mbit or rates");
        }
        if self.rate_mbit.is_none() && !self.varies() && self.queue_packets.is_some() {
            return Some("a queue needs a rate_mbit");
        }
        if !Self::DELAYS_MS.contains(&self.delay_ms) {
            return Some("delay_ms must be 0 to 60000");
        }
        if self.queue_packets.is_some() && self.delay_ms > 0.0 {
            return Some("a link with a queue has no delay: put it on the next link");
        }
        if self.queue_packets.is_none()
            && (self.varies() || self.half_duplex || self.framing_bytes > 0 || !self.router)
        {
            return Some(
                "rates, half_duplex, framing_bytes and router are for a link with queue_packets",
            );
        }
        if self.framing_bytes > 1000 {
            return Some("framing_bytes must be 0 to 1000");
        }
        let first = self.rates.first().map_or(0.0, |[from, _]| *from);
        if first != 0.0 || !self.rates.is_sorted_by(|[a, _], [b, _]| a < b) {
            return Some("the steps of rates must begin at 0 and follow each other");
        }
        let last = self.rates.last().map_or(0.0, |[from, _]| *from);
        if self
            .repeat_s
            .is_some_and(|period| period.is_nan() || period <= last)
        {
            return Some("repeat_s must be more than the last step's time");
        }
        if self.repeat_s.is_some() && !self.varies() {
            return Some("repeat_s needs rates");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(repeat_s: Option<f64>) -> Link {
        Link {
            rates: vec![[0.0, 10.0], [5.0, 2.0], [10.0, 6.0]],
            repeat_s,
            queue_packets: Some(100),
            ..Link::default()
        }
    }

    #[test]
    fn the_rate_is_that_of_the_last_step() {
        let once = steps(None);
        for (time_s, mbit) in [
            (0.0, 10.0),
            (4.99, 10.0),
            (5.0, 2.0),
            (10.0, 6.0),
            (99.0, 6.0),
        ] {
            assert_eq!(once.rate_bps(time_s), Some(mbit * 1e6), "{time_s}");
        }
        let again = steps(Some(15.0));
        for (time_s, mbit) in [(14.9, 6.0), (15.0, 10.0), (20.0, 2.0), (45.0, 10.0)] {
            assert_eq!(again.rate_bps(time_s), Some(mbit * 1e6), "{time_s}");
        }
        assert_eq!(again.highest_bps(), Some(10e6));
    }

    #[test]
    fn what_is_offered_is_the_area_under_the_rate() {
        let once = steps(None);
        assert_eq!(once.offered_bits(0.0, 5.0), 50e6);
        assert_eq!(once.offered_bits(4.0, 11.0), 10e6 + 10e6 + 6e6);
        assert_eq!(once.offered_bits(20.0, 21.0), 6e6);
        let again = steps(Some(15.0));
        assert_eq!(again.offered_bits(0.0, 30.0), 2.0 * (50e6 + 10e6 + 30e6));
        assert_eq!(again.offered_bits(14.0, 16.0), 6e6 + 10e6);
        let constant = Link {
            rate_mbit: Some(8.0),
            ..Link::default()
        };
        assert_eq!(constant.offered_bits(1.0, 3.0), 16e6);
    }

    #[test]
    fn time_goes_on_whatever_the_period() {
        let mut link = steps(Some(0.3));
        link.rates = vec![[0.0, 1.0], [0.1, 3.0], [0.2, 2.0]];
        let mean = link.offered_bits(0.0, 300.0) / 300.0;
        assert!((mean - 2e6).abs() < 1.0, "{mean}");
    }

    #[test]
    fn faults_are_found() {
        let fault = |change: fn(&mut Link)| {
            let mut link = steps(None);
            change(&mut link);
            link.fault().unwrap_or("none")
        };
        assert_eq!(fault(|_| {}), "none");
        for (change, part) in [
            ((|l| l.rate_mbit = Some(1.0)) as fn(&mut Link), "either"),
            (|l| l.rates[1][1] = 0.0, "0.008"),
            (|l| l.rates[0][0] = 1.0, "begin at 0"),
            (|l| l.rates[2][0] = 5.0, "follow"),
            (|l| l.repeat_s = Some(10.0), "repeat_s"),
            (|l| l.queue_packets = None, "queue_packets"),
            (|l| l.delay_ms = 1.0, "no delay"),
            (|l| l.framing_bytes = 1001, "framing_bytes"),
            (
                |l| {
                    l.rates.clear();
                    l.rate_mbit = Some(1.0);
                    l.repeat_s = Some(1.0);
                },
                "needs rates",
            ),
        ] {
            assert!(fault(change).contains(part), "{part}: {}", fault(change));
        }
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A link of an experiment, and its rate and delay over time.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use xcp_datapath::router::Framing;

use crate::trace_file::{self, LEAST_MBIT};
use crate::{Error, Result};

/// A link with two equal directions. It is either a path, with a delay and a
/// rate (or neither), or a bottleneck, with a rate and a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub between: [String; 2],
    /// The rate; limited only by the devices if absent.
    pub rate_mbit: Option<f64>,
    /// For a bottleneck, instead of `rate_mbit`: `[s, Mb/s]`, the rate from
    /// that second on.
    #[serde(default)]
    pub rates: Vec<[f64; 2]>,
    /// Instead of `rates`: a trace in mahimahi's format, also gzip; its path is
    /// relative to the experiment's file. It repeats.
    #[serde(default, skip_serializing)]
    pub rates_file: Option<String>,
    /// The time over which the rates of a trace are averaged.
    #[serde(default = "rates_step_ms", skip_serializing)]
    pub rates_step_ms: f64,
    /// The rates or delays repeat after this many seconds.
    pub repeat_s: Option<f64>,
    /// The delay, one way.
    #[serde(default)]
    pub delay_ms: f64,
    /// For a path, instead of `delay_ms`: `[s, ms]`, the delay from that second
    /// on, one way. No packet overtakes another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delays: Vec<[f64; 2]>,
    /// Instead of `delays`: a file with a delay (ms) in each line, also gzip. It
    /// repeats.
    #[serde(default, skip_serializing)]
    pub delays_file: Option<String>,
    /// How long each line of that file applies.
    #[serde(default = "delays_step_ms", skip_serializing)]
    pub delays_step_ms: f64,
    /// Limit of the queue at the bottleneck, in packets.
    pub queue_packets: Option<u32>,
    /// False for a queue that is never behind an XCP router, and always a FIFO.
    #[serde(default = "yes")]
    pub router: bool,
    /// Bytes that the link adds to each packet, beyond those that Linux counts.
    #[serde(default)]
    pub framing_bytes: u32,
    /// Only one end can send at a time.
    #[serde(default)]
    pub half_duplex: bool,
}

fn yes() -> bool {
    true
}

fn rates_step_ms() -> f64 {
    100.0
}

fn delays_step_ms() -> f64 {
    10.0
}

/// The value at a time, from steps that may repeat.
fn value_at(steps: &[[f64; 2]], repeat_s: Option<f64>, time_s: f64) -> Option<f64> {
    let time_s = repeat_s.map_or(time_s, |period| time_s % period);
    let later = steps.partition_point(|[from, _]| *from <= time_s);
    steps.get(later.checked_sub(1)?).map(|[_, value]| *value)
}

impl Default for Link {
    fn default() -> Self {
        Self {
            between: [String::new(), String::new()],
            rate_mbit: None,
            rates: Vec::new(),
            rates_file: None,
            rates_step_ms: rates_step_ms(),
            repeat_s: None,
            delay_ms: 0.0,
            delays: Vec::new(),
            delays_file: None,
            delays_step_ms: delays_step_ms(),
            queue_packets: None,
            router: true,
            framing_bytes: 0,
            half_duplex: false,
        }
    }
}

impl Link {
    pub const DELAYS_MS: RangeInclusive<f64> = 0.0..=60_000.0;

    /// The bytes that it adds to packets.
    pub fn framing(&self) -> Framing {
        Framing {
            overhead_bytes: self.framing_bytes as i32,
            ..Framing::default()
        }
    }

    /// Whether it is a path with a rate or delay that netem must emulate.
    pub fn needs_netem(&self) -> bool {
        self.queue_packets.is_none() && self.is_path()
    }

    fn is_path(&self) -> bool {
        self.rate_mbit.is_some() || self.delay_ms > 0.0 || !self.delays.is_empty()
    }

    /// Reads the files that it names; `read` returns the text of a file.
    pub fn read_files(&mut self, read: &dyn Fn(&str) -> Result<String>) -> Result<()> {
        const STEPS_MS: RangeInclusive<f64> = 1.0..=60_000.0;
        let step_s = |ms: f64, field: &str| match STEPS_MS.contains(&ms) {
            true => Ok(ms / 1e3),
            false => Err(Error::new(field, "must be 1 to 60000", "change it")),
        };
        let twice =
            |file: &str| Error::new(file, "steps or repeat_s are given too", "remove either");
        let mut period_s = None;
        if let Some(file) = self.rates_file.take() {
            let step_s = step_s(self.rates_step_ms, "rates_step_ms")?;
            let read = trace_file::rates(&file, &read(&file)?, step_s)?;
            if self.varies() || self.repeat_s.is_some() {
                return Err(twice(&file));
            }
            (self.rates, period_s) = (read.steps, Some(read.period_s));
        }
        if let Some(file) = self.delays_file.take() {
            let step_s = step_s(self.delays_step_ms, "delays_step_ms")?;
            let read = trace_file::delays(&file, &read(&file)?, step_s)?;
            if !self.delays.is_empty() || self.repeat_s.is_some() {
                return Err(twice(&file));
            }
            (self.delays, period_s) = (read.steps, Some(read.period_s));
        }
        self.repeat_s = period_s.or(self.repeat_s);
        Ok(())
    }

    /// Whether its rate changes.
    pub fn varies(&self) -> bool {
        !self.rates.is_empty()
    }

    /// The delay at a time, one way, ms.
    pub fn delay_ms(&self, time_s: f64) -> f64 {
        value_at(&self.delays, self.repeat_s, time_s).unwrap_or(self.delay_ms)
    }

    /// The smallest delay that it ever has, one way, ms.
    pub fn least_delay_ms(&self) -> f64 {
        let delays = self.delays.iter().map(|[_, ms]| *ms);
        delays.reduce(f64::min).unwrap_or(self.delay_ms)
    }

    /// Bits per second at a time; None if only the devices limit it.
    pub fn rate_bps(&self, time_s: f64) -> Option<f64> {
        if !self.varies() {
            return self.rate_mbit.map(|r| r * 1e6);
        }
        value_at(&self.rates, self.repeat_s, time_s).map(|mbit| mbit * 1e6)
    }

    /// The highest rate it ever has, bits per second.
    pub fn highest_bps(&self) -> Option<f64> {
        let steps = self.rates.iter().map(|[_, mbit]| *mbit);
        let highest = steps.chain(self.rate_mbit).reduce(f64::max);
        highest.map(|mbit| mbit * 1e6)
    }

    /// Bits that it can carry between two times.
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

    /// The time of the next rate change; infinite if there is none.
    fn next_change(&self, after_s: f64) -> f64 {
        let (begin, within) = match self.repeat_s {
            Some(period) => ((after_s / period).floor() * period, after_s % period),
            None => (0.0, after_s),
        };
        // the next period begins with the first step
        let later = self.rates.partition_point(|[from, _]| *from <= within);
        let next = self.rates.get(later).map(|[from, _]| *from);
        next.or(self.repeat_s).map_or(f64::INFINITY, |from| {
            // time must advance despite rounding
            (begin + from).max(after_s.next_up())
        })
    }

    /// Returns the first error, if there is one.
    pub fn fault(&self) -> Option<&'static str> {
        const RATES: RangeInclusive<f64> = LEAST_MBIT..=100_000.0;
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
        let mut delays = self.delays.iter().map(|[_, ms]| ms);
        if !delays
            .by_ref()
            .chain([&self.delay_ms])
            .all(|ms| Self::DELAYS_MS.contains(ms))
        {
            return Some("delays must be 0 to 60000 ms");
        }
        if self.delay_ms > 0.0 && !self.delays.is_empty() {
            return Some("give either delay_ms or delays");
        }
        if self.queue_packets.is_some() && (self.delay_ms > 0.0 || !self.delays.is_empty()) {
            return Some("a link with a queue has no delay: put the delay on the next link");
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
        for (steps, reason) in [
            (
                &self.rates,
                "the steps of rates must begin at 0 and be in order",
            ),
            (
                &self.delays,
                "the steps of delays must begin at 0 and be in order",
            ),
        ] {
            let first = steps.first().map_or(0.0, |[from, _]| *from);
            if first != 0.0 || !steps.is_sorted_by(|[a, _], [b, _]| a < b) {
                return Some(reason);
            }
            let last = steps.last().map_or(0.0, |[from, _]| *from);
            if self
                .repeat_s
                .is_some_and(|period| period.is_nan() || period <= last)
            {
                return Some("repeat_s must be more than the last step's time");
            }
        }
        if self.repeat_s.is_some() && !self.varies() && self.delays.is_empty() {
            return Some("repeat_s needs rates or delays");
        }
        None
    }
}

/// Name of a node's device towards a neighbour.
pub fn device(node: &str, peer: &str) -> String {
    format!("{node}-{peer}")
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
    fn offered_bits_are_the_area_under_the_rate() {
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
    fn rounding_does_not_stop_time() {
        let mut link = steps(Some(0.3));
        link.rates = vec![[0.0, 1.0], [0.1, 3.0], [0.2, 2.0]];
        let mean = link.offered_bits(0.0, 300.0) / 300.0;
        assert!((mean - 2e6).abs() < 1.0, "{mean}");
    }

    #[test]
    fn steps_are_read_from_files() {
        let read = |file: &str| match file {
            "r" => Ok("100\n100\n200\n".to_owned()),
            "d" => Ok("20\n30\n".to_owned()),
            _ => Err(Error::new(file, "not there", "")),
        };
        let mut bottleneck = Link {
            rates_file: Some("r".into()),
            queue_packets: Some(100),
            ..Link::default()
        };
        bottleneck.read_files(&read).expect("a trace");
        assert_eq!(bottleneck.rates, [[0.0, 0.24], [0.1, 0.12]]);
        assert_eq!(bottleneck.rate_bps(0.35), Some(120e3), "it repeats");
        assert_eq!(bottleneck.fault(), None);
        let mut path = Link {
            delays_file: Some("d".into()),
            delays_step_ms: 1000.0,
            ..Link::default()
        };
        path.read_files(&read).expect("delays");
        assert_eq!((path.delay_ms(0.9), path.delay_ms(3.1)), (20.0, 30.0));
        assert_eq!(path.least_delay_ms(), 20.0);
        assert!(path.needs_netem() && path.fault().is_none());
        let mut both = steps(None);
        both.rates_file = Some("r".into());
        assert!(both.read_files(&read).is_err());
        path.delays_file = Some("x".into());
        assert!(path.read_files(&read).is_err());
    }

    #[test]
    fn invalid_links_are_rejected() {
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
            (|l| l.rates[2][0] = 5.0, "in order"),
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

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The available bandwidth of the cloud, from recent trains.
//!
//! All trains together yield the capacity of the bottleneck. With the capacity, each
//! train yields the available bandwidth, and the estimate is the mean of the middle
//! half of these values. Trains slower than that only show that their rate is
//! available, so they do not count. If four trains in a row deviate far to the same
//! side, or never exceed the available bandwidth, the older ones are discarded.
//! Between trains, a standing queue for an interval means that no bandwidth is
//! available.

use std::collections::VecDeque;

use crate::conversation::{FLOOR_BPS, PROBING_SHARE, REFRESH_NS};
use crate::message::{self, OVERHEAD_B};
use crate::train::{fit, Found, Train};

/// Number of trains that are stored.
const TRAINS: usize = 24;
/// Number of deviating trains in a row that show a change of the path.
const CHANGED: usize = 4;
/// The estimate expires this long after the last train: three refreshes, so that two lost
/// trains do no harm.
const STALE_NS: u64 = 3 * REFRESH_NS;
/// There is a standing queue if all probes of an interval had a higher queueing delay than
/// this: longer than a full-size packet takes at 10 Mb/s.
const STANDING_NS: u64 = 2_000_000;
/// Message length of a train's packets: 1,400 B with IPv6 and UDP, which fits into tunnels.
const SIZE_B: u16 = 1_352;
/// Rates of the first train: from the slowest to the fastest expected link, B/s.
const FIRST_BPS: (f64, f64) = (50e3, 2e9);
/// Lowest and highest rate of the first few trains after the first one, as multiples of the
/// estimate.
const FEW: (f64, f64) = (0.5, 8.0);
/// The same for every fourth later train, which measures the capacity of the bottleneck.
const WIDE: (f64, f64) = (1.0, 8.0);
/// The same for the other trains, which measure the available bandwidth: high enough to keep
/// the queue busy.
const NARROW: (f64, f64) = (1.1, 1.6);
/// The longest time between trains if each one causes losses, also for other traffic. Less
/// than [`STALE_NS`], so that the estimate does not expire.
const RARE_NS: u64 = 2 * REFRESH_NS;
/// If more than this part of a train's mean rate is available, the train was too slow to
/// find a limit.
const MOSTLY: f64 = 0.95;

/// A source of estimates of the available bandwidth.
pub trait Source {
    /// The unused bandwidth, B/s, if it is known now.
    fn estimate_Bps(&self, now_ns: u64) -> Option<f64>;
}

impl<S: Source> Source for &S {
    fn estimate_Bps(&self, now_ns: u64) -> Option<f64> {
        (*self).estimate_Bps(now_ns)
    }
}

#[derive(Clone, Debug)]
struct Seen {
    train: Train,
    available_Bps: f64,
}

/// The estimate of one cloud's available bandwidth.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    seen: VecDeque<Seen>,
    /// When the last train arrived.
    seen_ns: u64,
    found: Option<Found>,
    /// Whether there is a standing queue.
    is_full: bool,
    asked: u64,
    /// Whether the rates of the last requested train are near the available bandwidth.
    is_narrow: bool,
    /// Number of such trains in a row that lost packets.
    lossy: u32,
    is_frequent: bool,
}

impl Estimate {
    /// Adds a received train.
    pub fn on_train(&mut self, now_ns: u64, train: Train) {
        if self.is_stale(now_ns) {
            self.seen.clear();
        }
        self.seen_ns = now_ns;
        if self.seen.len() == TRAINS {
            self.seen.pop_front();
        }
        self.seen.push_back(Seen {
            train,
            available_Bps: 0.0,
        });
        self.update();
        if self.has_changed() {
            self.seen.drain(..self.seen.len() - CHANGED);
            self.update();
        }
    }

    /// Creates an estimate that requests trains at the same rate even if they lose packets.
    #[must_use]
    pub fn with_frequent_trains() -> Self {
        Self {
            is_frequent: true,
            ..Self::default()
        }
    }

    /// Called when a train is complete. `lost`: whether packets of it were lost.
    pub fn on_train_lost(&mut self, lost: bool) {
        self.lossy = match lost {
            true => self.lossy + u32::from(self.is_narrow && !self.is_frequent),
            false => 0,
        };
    }

    /// Whether trains are rare because they lose packets: a buffer in the cloud is too small
    /// to measure the available bandwidth without losses.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.lossy > 0
    }

    /// Called at the end of each interval, with its lowest queueing delay if there was a probe.
    pub fn on_interval(&mut self, least_ns: Option<u64>) {
        self.is_full = least_ns.is_some_and(|least_ns| least_ns > STANDING_NS);
    }

    /// Whether there is a standing queue: then no bandwidth is available.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The age of the last train, ns.
    #[must_use]
    pub fn age_ns(&self, now_ns: u64) -> Option<u64> {
        (!self.seen.is_empty()).then(|| now_ns.saturating_sub(self.seen_ns))
    }

    /// The standard error of the estimate, B/s.
    #[must_use]
    pub fn error_Bps(&self) -> f64 {
        let values = self.sorted();
        let quartile = |part: usize| values.get(values.len() * part / 4).copied();
        let (low, high) = (quartile(1).unwrap_or(0.0), quartile(3).unwrap_or(0.0));
        // a normal distribution's middle half is 1.35 deviations wide
        (high - low) / 1.35 / (values.len().max(1) as f64).sqrt()
    }

    /// The next train to request. Trains with a wide range of rates measure the capacity of
    /// the bottleneck, trains just above the estimate the available bandwidth.
    pub fn next_train(&mut self, now_ns: u64) -> message::Train {
        let number = self.asked;
        self.asked += 1;
        let times = match self.seen.len() {
            1..=CHANGED => FEW,
            _ if number.is_multiple_of(4) && self.lossy == 0 => WIDE,
            _ => NARROW,
        };
        let estimate_Bps = self.trains_Bps(now_ns);
        self.is_narrow = times == NARROW && estimate_Bps.is_some();
        let (lowest_Bps, highest_Bps) = match estimate_Bps {
            None => FIRST_BPS,
            Some(estimate_Bps) => (estimate_Bps * times.0, estimate_Bps * times.1),
        };
        let lowest_Bps = lowest_Bps.max(FIRST_BPS.0) as u64;
        message::Train {
            packets: 256,
            size_B: SIZE_B,
            lowest_Bps,
            highest_Bps: (highest_Bps as u64).max(lowest_Bps),
        }
    }

    /// Time from a train to the next request: until the answerer's budget covers 128 packets,
    /// but not more often than the answerer accepts requests.
    #[must_use]
    pub fn next_train_after_ns(&self, now_ns: u64) -> u64 {
        let estimate_Bps = self.trains_Bps(now_ns).unwrap_or(0.0);
        let budget_Bps = (estimate_Bps / PROBING_SHARE as f64).max(FLOOR_BPS as f64) / 2.0;
        let needed_s = 128.0 * f64::from(SIZE_B + OVERHEAD_B) / budget_Bps;
        let after_ns = (needed_s.clamp(2.5, 10.0) * 1e9) as u64;
        (after_ns << self.lossy.min(3)).min(RARE_NS)
    }

    fn trains_Bps(&self, now_ns: u64) -> Option<f64> {
        if self.is_stale(now_ns) {
            return None;
        }
        match self.seen.len() {
            0 => None,
            1..=CHANGED => self.found.map(|found| found.available_Bps),
            _ => Some(middle(&self.sorted())),
        }
    }

    fn is_stale(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.seen_ns) > STALE_NS
    }

    fn sorted(&self) -> Vec<f64> {
        let mut values = self.above(0.0);
        let least_Bps = middle(&values);
        let above = self.above(least_Bps);
        if above.len() >= CHANGED {
            values = above;
        }
        values
    }

    /// The results of the trains with at least this mean rate, sorted. A slower train only
    /// shows that its rate is available.
    fn above(&self, least_Bps: f64) -> Vec<f64> {
        let fast = self
            .seen
            .iter()
            .filter(|seen| seen.train.mean_Bps() >= least_Bps);
        let mut values: Vec<_> = fast.map(|seen| seen.available_Bps).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn update(&mut self) {
        self.found = fit(self.seen.iter().map(|seen| &seen.train));
        if let Some(found) = self.found {
            for seen in &mut self.seen {
                seen.available_Bps = seen.train.available_Bps(found);
            }
        }
    }

    /// Whether the results of the last trains are all outside the range of the older ones.
    fn has_changed(&self) -> bool {
        let Some(older) = self.seen.len().checked_sub(CHANGED) else {
            return false;
        };
        let mut values: Vec<_> = self.seen.iter().map(|seen| seen.available_Bps).collect();
        let recent = values.split_off(older);
        if values.len() < 2 {
            return false;
        }
        values.sort_by(f64::total_cmp);
        if self
            .seen
            .range(older..)
            .all(|seen| seen.available_Bps > MOSTLY * seen.train.mean_Bps())
        {
            return true;
        }
        let (low, high) = (values[values.len() / 4], values[values.len() * 3 / 4]);
        let margin = (2.0 * (high - low)).max(0.1 * high);
        recent.iter().all(|value| *value > high + margin)
            || recent.iter().all(|value| *value < low - margin)
    }
}

impl Source for Estimate {
    fn estimate_Bps(&self, now_ns: u64) -> Option<f64> {
        match self.is_full {
            true => Some(0.0),
            false => self.trains_Bps(now_ns),
        }
    }
}

/// The mean of the middle half of sorted values.
fn middle(sorted: &[f64]) -> f64 {
    let cut = sorted.len() / 4;
    let half = &sorted[cut..sorted.len() - cut];
    half.iter().sum::<f64>() / half.len().max(1) as f64
}

/// A source with a known random error, for experiments.
#[derive(Clone, Debug)]
pub struct Wrong<S> {
    /// The correct source.
    pub source: S,
    /// The largest error, as a part of the estimate.
    pub error: f64,
    /// How long each error lasts, ns.
    pub interval_ns: u64,
    /// The seed of the random errors.
    pub seed: u64,
}

impl<S: Source> Source for Wrong<S> {
    fn estimate_Bps(&self, now_ns: u64) -> Option<f64> {
        let interval = now_ns / self.interval_ns.max(1);
        let drawn = random(self.seed.wrapping_add(random(interval)));
        let error = self.error * (drawn as f64 / u64::MAX as f64 * 2.0 - 1.0);
        Some(self.source.estimate_Bps(now_ns)? * (1.0 + error))
    }
}

/// One round of splitmix64.
fn random(state: u64) -> u64 {
    let a = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let a = (a ^ a >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ b >> 31
}

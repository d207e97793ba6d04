// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What the cloud has free, from the trains of the last time.
//!
//! All trains together tell what the bottleneck carries. With that each of them
//! tells what is free, and the estimate is the mean of the middle half of them.
//! Trains that were slower than that only say that their rate is free, so they
//! do not count. If four trains in a row lie far on the same side, or find no
//! end, the older ones are forgotten. Between trains, a queue that stands for an
//! interval says that nothing is free.

use std::collections::VecDeque;

use crate::conversation::{FLOOR_BPS, PROBING_SHARE, REFRESH_NS};
use crate::message::{self, OVERHEAD_B};
use crate::train::{fit, Found, Train};

/// Trains that are kept.
const TRAINS: usize = 24;
/// Trains that say that the path has changed.
const CHANGED: usize = 4;
/// After how long without a train there is no estimate: what three refreshes
/// take, so two lost trains do no harm.
const STALE_NS: u64 = 3 * REFRESH_NS;
/// A queue stands if no probe of an interval took less than this beyond the
/// base: more than one full packet takes at 10 Mb/s.
const STANDING_NS: u64 = 2_000_000;
/// Message length of a train's packets: 1,400 B with IPv6, which tunnels carry.
const SIZE_B: u16 = 1_352;
/// The first train: from what the slowest link carries to what the fastest does.
const FIRST_BPS: (f64, f64) = (50e3, 2e9);
/// Rates of the next trains, in parts of the estimate: of the first ones,
const FEW: (f64, f64) = (0.5, 8.0);
/// of every fourth one, for what the bottleneck carries,
const WIDE: (f64, f64) = (1.0, 8.0);
/// and of the others, for what is free: far enough above that the queue does
/// not rest.
const NARROW: (f64, f64) = (1.1, 1.6);
/// The longest time between trains, where each one loses packets: others' too. Less than
/// [`STALE_NS`], so that there is an estimate all the time.
const RARE_NS: u64 = 2 * REFRESH_NS;
/// A train that has found more than this part of its mean rate free has found
/// no end.
const MOSTLY: f64 = 0.95;

/// Who knows what is free.
pub trait Source {
    /// What is free on top of what is used, B/s, if it is known now.
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

/// The estimate of one cloud.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    seen: VecDeque<Seen>,
    /// When the last one came.
    seen_ns: u64,
    found: Option<Found>,
    /// Whether a queue stands.
    is_full: bool,
    asked: u64,
    /// Whether the last train that was asked for stays near what is free.
    is_narrow: bool,
    /// Such trains in a row that have lost packets.
    lossy: u32,
    is_frequent: bool,
}

impl Estimate {
    /// A train has arrived.
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

    /// One that does not care whether trains lose packets.
    #[must_use]
    pub fn with_frequent_trains() -> Self {
        Self {
            is_frequent: true,
            ..Self::default()
        }
    }

    /// A train is over, and packets of it were lost, or none.
    pub fn on_train_lost(&mut self, lost: bool) {
        self.lossy = match lost {
            true => self.lossy + u32::from(self.is_narrow && !self.is_frequent),
            false => 0,
        };
    }

    /// Whether trains are rare now, since they lose packets: what is free is less than a
    /// buffer there lets them find out.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.lossy > 0
    }

    /// An interval is over: the least queueing delay in it, if there was a probe.
    pub fn on_interval(&mut self, least_ns: Option<u64>) {
        self.is_full = least_ns.is_some_and(|least_ns| least_ns > STANDING_NS);
    }

    /// Whether a queue stands: then nothing is free.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// How old the last train is, ns.
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

    /// What to ask for next. Trains that cover much say what the bottleneck
    /// carries, narrow ones above the estimate what is free.
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

    /// How long after a train the next one is asked for: as long as the answerer
    /// saves for 128 packets, but not more often than it accepts requests.
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

    /// What the trains say that were faster than this on average. A slower one
    /// only says that its rate is free.
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

    /// Whether the last trains all lie beyond what the older ones would explain.
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

/// The mean of the middle half.
fn middle(sorted: &[f64]) -> f64 {
    let cut = sorted.len() / 4;
    let half = &sorted[cut..sorted.len() - cut];
    half.iter().sum::<f64>() / half.len().max(1) as f64
}

/// A source with an error that is known, for experiments.
#[derive(Clone, Debug)]
pub struct Wrong<S> {
    /// Who really knows.
    pub source: S,
    /// The most that it is wrong by, as a part of the estimate.
    pub error: f64,
    /// How long each error lasts, ns.
    pub interval_ns: u64,
    /// Which errors are drawn.
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

/// A round of splitmix64.
fn random(state: u64) -> u64 {
    let a = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let a = (a ^ a >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ b >> 31
}

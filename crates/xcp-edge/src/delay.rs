// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Queueing delay from single probes: a probe's delay minus the base delay.
//!
//! ```text
//!   d(t)  receive time - send time, by two clocks    ns
//!   b(t)  base: the line below all d of the window   ns
//!   q     queueing delay, d - b                      ns
//! ```
//!
//! The clocks differ by an offset and a drift, so the base is a line. It is the
//! segment of the lower convex hull of the probes at the middle of the window
//! (Moon, Skelly and Towsley 1999). Each slot of the window keeps its lowest
//! probe. A probe far below the base means a shorter route: the window is
//! cleared. A longer route with the same number of hops is accepted once the
//! window has no probe of the old route. A standing queue that lasts that long is
//! mistaken for a longer route.

use std::collections::VecDeque;

/// Length of one slot.
const SLOT_NS: u64 = 2_500_000_000;
/// Number of slots in the window: 10 min. The window is long because XCP itself keeps a
/// short standing queue while several edges share the bottleneck.
const SLOTS: usize = 240;
/// Number of slots with a probe before the base is known: it takes some seconds until
/// the drift is larger than the noise.
const KNOWN: usize = 4;
/// Largest drift between two clocks: each may be wrong by 100 ppm.
const MAX_DRIFT: f64 = 200e-6;
/// A probe this far below the base cannot be explained by noise and drift, ns.
const FALL_NS: f64 = 1e6;

/// Receive time and delay of a probe, relative to the first probe.
#[derive(Clone, Copy, Debug)]
struct Point {
    time_ns: f64,
    delay_ns: f64,
}

/// The base of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    drift: f64,
    /// The base at time 0.
    delay_ns: f64,
}

impl Line {
    fn above_ns(self, point: Point) -> f64 {
        point.delay_ns - self.delay_ns - self.drift * point.time_ns
    }
}

/// Measures the queueing delay on the path of the probes.
#[derive(Clone, Debug, Default)]
pub struct Delay {
    /// Send and receive time of the first probe.
    first_ns: Option<(u64, u64)>,
    slots: VecDeque<(u64, Point)>,
    base: Line,
    last: Option<Point>,
    lowest: Option<Point>,
}

impl Delay {
    /// Processes a received single probe: its send time by the answerer's clock and its
    /// receive time by the local clock.
    pub fn on_probe(&mut self, sent_ns: u64, received_ns: u64) {
        let (first_sent_ns, first_received_ns) =
            *self.first_ns.get_or_insert((sent_ns, received_ns));
        let since_ns = |first_ns, now_ns: u64| now_ns.wrapping_sub(first_ns).cast_signed() as f64;
        let time_ns = since_ns(first_received_ns, received_ns);
        let point = Point {
            time_ns,
            delay_ns: time_ns - since_ns(first_sent_ns, sent_ns),
        };
        if self.is_known() && self.base.above_ns(point) < -FALL_NS {
            self.slots.clear();
            self.lowest = None;
        }
        if self.keep(received_ns / SLOT_NS, point) {
            self.base = self.fit();
        }
        let base = self.base;
        self.last = Some(point);
        let lower = |other: &Point| base.above_ns(*other) <= base.above_ns(point);
        self.lowest = self.lowest.filter(lower).or(Some(point));
    }

    /// Send and receive time of the window's probe that is nearest to the base, by the two
    /// clocks. After a restart, pass it to [`Delay::on_probe`] first.
    #[must_use]
    pub fn base_probe(&self) -> Option<(u64, u64)> {
        let (first_sent_ns, first_received_ns) = self.first_ns.filter(|_| self.is_known())?;
        let above_ns = |(_, point): &&(u64, Point)| self.base.above_ns(*point);
        let by_height = |a: &_, b: &_| above_ns(a).total_cmp(&above_ns(b));
        let (_, point) = self.slots.iter().min_by(by_height)?;
        let after = |first_ns: u64, ns: f64| first_ns.wrapping_add_signed(ns as i64);
        Some((
            after(first_sent_ns, point.time_ns - point.delay_ns),
            after(first_received_ns, point.time_ns),
        ))
    }

    /// Whether there were enough probes to compute the base.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.slots.len() >= KNOWN
    }

    /// The queueing delay of the last probe, ns.
    #[must_use]
    pub fn last_ns(&self) -> Option<u64> {
        self.queue_ns(self.last?)
    }

    /// The lowest queueing delay since the last call, ns. None without a probe or while
    /// the base is unknown.
    pub fn take_least_ns(&mut self) -> Option<u64> {
        let lowest = self.lowest.take()?;
        self.queue_ns(lowest)
    }

    fn queue_ns(&self, point: Point) -> Option<u64> {
        let above_ns = self.base.above_ns(point).max(0.0);
        self.is_known().then_some(above_ns as u64)
    }

    /// Stores a probe if it is the lowest of its slot. Returns whether the window changed.
    fn keep(&mut self, number: u64, point: Point) -> bool {
        if self
            .slots
            .back()
            .is_some_and(|(last, _)| number + 1 < *last)
        {
            self.slots.clear(); // the local clock was set back
        }
        match self.slots.back_mut() {
            Some((last, kept)) if number <= *last => {
                if self.base.above_ns(point) >= self.base.above_ns(*kept) {
                    return false;
                }
                *kept = point;
            }
            _ => self.slots.push_back((number, point)),
        }
        let oldest = number.saturating_sub(SLOTS as u64);
        while self.slots.front().is_some_and(|(slot, _)| *slot < oldest) {
            self.slots.pop_front();
        }
        true
    }

    /// Discards all probes, since the path or a clock has changed.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The line through two slots' probes that is highest at the middle of the
    /// window and below all other probes. A slope too steep for clock drift is a route
    /// change: the previous drift is kept.
    fn fit(&self) -> Line {
        let points: Vec<Point> = self.slots.iter().map(|(_, point)| *point).collect();
        let count = points.len().max(1) as f64;
        let middle_ns = points.iter().map(|point| point.time_ns).sum::<f64>() / count;
        let hull = lower_hull(&points);
        let mut edges = hull.windows(2);
        let edge = edges.find(|e| e[0].time_ns <= middle_ns && middle_ns < e[1].time_ns);
        let steepness = edge.map(|e| slope(e[0], e[1])).filter(|_| self.is_known());
        let drift = steepness
            .filter(|drift| drift.abs() <= MAX_DRIFT)
            .unwrap_or(self.base.drift);
        let offsets = points.iter().map(|p| p.delay_ns - drift * p.time_ns);
        Line {
            drift,
            delay_ns: offsets.fold(f64::INFINITY, f64::min),
        }
    }
}

/// The lower convex hull. The given points and the result are in order of time.
fn lower_hull(points: &[Point]) -> Vec<Point> {
    let mut hull: Vec<Point> = Vec::new();
    for point in points {
        while let [.., before, last] = hull[..] {
            if slope(before, last) < slope(last, *point) {
                break;
            }
            hull.pop();
        }
        hull.push(*point);
    }
    hull
}

fn slope(a: Point, b: Point) -> f64 {
    (b.delay_ns - a.delay_ns) / (b.time_ns - a.time_ns)
}

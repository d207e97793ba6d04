// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! How long bytes wait in a queue, from what it has sent and what it holds.
//!
//! What leaves at a moment came when as many bytes had arrived. The bytes that
//! have arrived are those sent and those held; what will be dropped from
//! within the queue counts as not arrived. Between two looks bytes are taken
//! to come evenly. In queue disciplines that are not first in, first out, the
//! mean is right, and the percentile that of a queue as long as theirs.

use crate::result::DelayStats;

/// A queue at one moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    time_s: f64,
    sent_bytes: u64,
    held_bytes: u64,
}

/// Looks at a queue, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    looks: Vec<Look>,
}

impl Delays {
    pub fn add(&mut self, time_s: f64, sent_bytes: u64, held_bytes: u64) {
        self.looks.push(Look {
            time_s,
            sent_bytes,
            held_bytes,
        });
    }

    /// The delay of the bytes that left after a moment.
    pub fn stats(&self, after_s: f64) -> DelayStats {
        let mut seen = self.seen(after_s);
        let bytes: f64 = seen.iter().map(|(_, bytes)| bytes).sum();
        if bytes == 0.0 {
            return DelayStats::default();
        }
        let sum: f64 = seen.iter().map(|(delay, bytes)| delay * bytes).sum();
        seen.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut left = 0.95 * bytes;
        let p95 = seen.iter().find(|(_, bytes)| {
            left -= bytes;
            left <= 0.0
        });
        let ms = |delay_s: f64| (delay_s * 1e5).round() / 1e2;
        DelayStats {
            mean: ms(sum / bytes),
            p95: ms(p95.map_or(0.0, |(delay, _)| *delay)),
            max: ms(seen.last().map_or(0.0, |(delay, _)| *delay)),
        }
    }

    /// Delays in seconds, and how many bytes had them.
    fn seen(&self, after_s: f64) -> Vec<(f64, f64)> {
        let arrived = self.arrived();
        let mut seen = Vec::new();
        let mut came = 0;
        for (i, pair) in self.looks.windows(2).enumerate() {
            let sent = pair[1].sent_bytes;
            let left = sent.saturating_sub(pair[0].sent_bytes);
            if left == 0 {
                continue;
            }
            while came < i + 1 && arrived[came] < sent {
                came += 1;
            }
            if pair[1].time_s > after_s {
                let delay_s = pair[1].time_s - self.moment(&arrived, came, sent);
                seen.push((delay_s.max(0.0), left as f64));
            }
        }
        seen
    }

    /// Bytes that had arrived at each look, those to be dropped left out.
    fn arrived(&self) -> Vec<u64> {
        let mut least = u64::MAX;
        let mut arrived: Vec<u64> = self
            .looks
            .iter()
            .rev()
            .map(|look| {
                least = least.min(look.sent_bytes + look.held_bytes);
                least
            })
            .collect();
        arrived.reverse();
        arrived
    }

    /// When so many bytes had arrived, which was so at look `i` first.
    fn moment(&self, arrived: &[u64], i: usize, bytes: u64) -> f64 {
        let time_s = self.looks[i].time_s;
        let Some(before) = i.checked_sub(1) else {
            return time_s;
        };
        let missing = arrived[i].saturating_sub(bytes) as f64;
        let came = (arrived[i] - arrived[before]).max(1) as f64;
        time_s - (time_s - self.looks[before].time_s) * missing / came
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every 10 ms at a queue that sends 1 MB/s while `arrive` says how
    /// many bytes have come by a time.
    fn looks(end_ms: u64, arrive: impl Fn(u64) -> u64) -> Delays {
        let mut delays = Delays::default();
        let mut sent = 0;
        for ms in 0..=end_ms {
            sent = arrive(ms).min(sent + if ms == 0 { 0 } else { 1000 });
            if ms % 10 == 0 {
                delays.add(ms as f64 / 1e3, sent, arrive(ms) - sent);
            }
        }
        delays
    }

    #[test]
    fn an_empty_queue_has_no_delay() {
        let stats = looks(1000, |ms| ms * 500).stats(0.0);
        assert_eq!((stats.mean, stats.p95, stats.max), (0.0, 0.0, 0.0));
        assert_eq!(Delays::default().stats(0.0).max, 0.0);
    }

    #[test]
    fn a_standing_queue_has_one_delay() {
        // 50 kB at once, then as much as is sent: 50 ms
        let stats = looks(2000, |ms| 50_000 + ms * 1000).stats(0.2);
        assert_eq!((stats.mean, stats.p95, stats.max), (50.0, 50.0, 50.0));
    }

    #[test]
    fn a_queue_that_grows_and_drains_has_all_delays_between() {
        // twice the rate for 1 s, then nothing: the last byte waits 1 s, and
        // every delay up to that has as many bytes
        let stats = looks(2000, |ms| ms.min(1000) * 2000).stats(0.0);
        assert!((stats.mean - 500.0).abs() < 6.0, "{stats:?}");
        assert!((stats.p95 - 950.0).abs() < 6.0, "{stats:?}");
        assert!((stats.max - 1000.0).abs() < 1.0, "{stats:?}");
    }

    #[test]
    fn the_warm_up_does_not_count() {
        // a burst of 200 kB, which is gone after 0.3 s
        let burst = looks(2000, |ms| 200_000 + ms * 300);
        assert!(burst.stats(0.0).max > 150.0);
        assert_eq!(burst.stats(0.4).max, 0.0);
    }

    #[test]
    fn what_is_dropped_from_within_delays_nothing() {
        // 50 kB stand for 1 s, then all that is held is dropped
        let mut delays = looks(1000, |ms| 50_000 + ms * 1000);
        for look in 1..=100u64 {
            delays.add(1.0 + look as f64 / 100.0, 1_000_000 + look * 5000, 0);
        }
        assert_eq!(delays.stats(0.1).max, 50.0);
        // what leaves first may have come before
        assert_eq!(delays.stats(1.01).max, 0.0);
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The queueing delay, computed from the bytes that a queue has sent and holds.
//!
//! A byte that leaves when n bytes have been sent arrived when n bytes had
//! arrived. The bytes that have arrived are those sent and those held; bytes
//! that are later dropped from within the queue do not count as arrived.
//! Between two samples bytes are assumed to arrive evenly. For queue
//! disciplines that are not first in, first out, the mean is correct, and the
//! percentile is that of a FIFO of the same length.

use crate::result::DelayStats;

/// A sample of a queue.
#[derive(Clone, Copy, Debug)]
struct QueueSnapshot {
    time_s: f64,
    sent_bytes: u64,
    held_bytes: u64,
}

/// Samples of a queue, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    looks: Vec<QueueSnapshot>,
}

impl Delays {
    pub fn add(&mut self, time_s: f64, sent_bytes: u64, held_bytes: u64) {
        self.looks.push(QueueSnapshot {
            time_s,
            sent_bytes,
            held_bytes,
        });
    }

    /// The delay of the bytes that were dequeued after a time.
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

    /// Delays in seconds, each with the number of bytes that had it.
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

    /// Bytes that had arrived at each sample, without those that are dropped
    /// later.
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

    /// The time when `bytes` had arrived; `i` is the first sample at which they
    /// had.
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

    /// Samples a queue every 10 ms that sends 1 MB/s; `arrive` returns how many
    /// bytes have arrived by a time in ms.
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
        // 50 kB at once, then arrivals at the sending rate: 50 ms
        let stats = looks(2000, |ms| 50_000 + ms * 1000).stats(0.2);
        assert_eq!((stats.mean, stats.p95, stats.max), (50.0, 50.0, 50.0));
    }

    #[test]
    fn growing_and_draining_queue_has_uniform_delays() {
        // twice the rate for 1 s, then nothing: the last byte waits 1 s, and
        // all delays up to that are equally frequent
        let stats = looks(2000, |ms| ms.min(1000) * 2000).stats(0.0);
        assert!((stats.mean - 500.0).abs() < 6.0, "{stats:?}");
        assert!((stats.p95 - 950.0).abs() < 6.0, "{stats:?}");
        assert!((stats.max - 1000.0).abs() < 1.0, "{stats:?}");
    }

    #[test]
    fn warm_up_is_excluded() {
        // a burst of 200 kB, which has drained after 0.3 s
        let burst = looks(2000, |ms| 200_000 + ms * 300);
        assert!(burst.stats(0.0).max > 150.0);
        assert_eq!(burst.stats(0.4).max, 0.0);
    }

    #[test]
    fn dropped_bytes_are_not_counted() {
        // the queue holds 50 kB for 1 s, then all of it is dropped
        let mut delays = looks(1000, |ms| 50_000 + ms * 1000);
        for look in 1..=100u64 {
            delays.add(1.0 + look as f64 / 100.0, 1_000_000 + look * 5000, 0);
        }
        assert_eq!(delays.stats(0.1).max, 50.0);
        // the first bytes dequeued may have arrived before
        assert_eq!(delays.stats(1.01).max, 0.0);
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Probes that are lost, and who is to blame.

use xcp_edge::losses::Losses;

/// Probes in an interval.
const PROBES: u64 = 100;

/// A stream of single probes.
#[derive(Default)]
struct Stream {
    losses: Losses,
    sequence: u64,
    train: u16,
}

impl Stream {
    /// Some intervals in which every n-th probe is lost, none if n is 0. Whether
    /// the virtual router was to blame for some of them.
    fn intervals(&mut self, count: u64, grants: bool, n: u64) -> bool {
        let mut to_blame = false;
        for _ in 0..count {
            for _ in 0..PROBES {
                self.sequence += 1;
                if n == 0 || !self.sequence.is_multiple_of(n) {
                    self.losses.on_probe(self.sequence, self.train);
                }
            }
            self.losses.on_interval(grants);
            to_blame |= self.losses.to_blame();
        }
        to_blame
    }
}

/// One in 125: in some seconds.
#[test]
fn what_is_lost_by_granting_is_told() {
    let mut stream = Stream::default();
    assert!(!stream.intervals(10, false, 0));
    assert!(!stream.intervals(60, true, 0));
    assert!(stream.intervals(12, true, 125));
    stream.intervals(100, true, 125);
    assert!((stream.losses.share() - 0.008).abs() < 0.001);
    // it stands aside, and that helps
    assert!(!stream.intervals(10, false, 0));
    assert!(stream.intervals(12, true, 125));
}

/// The same with and without it: a link that corrupts.
#[test]
fn what_is_lost_anyway_is_not_its_own() {
    let mut stream = Stream::default();
    stream.intervals(10, false, 125);
    assert!(!stream.intervals(300, true, 125));
    // and the link becomes worse
    assert!(stream.intervals(100, true, 20));
    stream.intervals(10, false, 20);
    assert!(!stream.intervals(300, true, 20));
    // it was repaired, which is known some minutes later
    assert!(!stream.intervals(300, true, 0));
    assert!(stream.intervals(12, true, 20));
}

#[test]
fn a_few_are_chance() {
    let mut stream = Stream::default();
    stream.intervals(10, false, 0);
    assert!(!stream.intervals(300, true, 1000));
}

#[test]
fn what_a_train_loses_does_not_count() {
    let mut stream = Stream::default();
    for _ in 0..100 {
        assert!(!stream.intervals(1, true, 0));
        stream.sequence += 100;
        stream.train += 1;
    }
}

/// Half a second each: a path that changes, not a buffer that is full.
#[test]
fn a_path_that_is_away_loses_one() {
    let mut stream = Stream::default();
    stream.intervals(10, false, 0);
    for _ in 0..20 {
        assert!(!stream.intervals(12, true, 0));
        stream.sequence += 50;
    }
}

#[test]
fn order_and_streams_may_change() {
    let mut losses = Losses::default();
    losses.on_interval(true);
    for _ in 0..10 {
        for start in (0..100).step_by(4) {
            for sequence in [2, 1, 4, 3] {
                losses.on_probe(start + sequence, 0);
            }
        }
        losses.on_interval(true);
        assert!(!losses.to_blame());
        assert_eq!(losses.share(), 0.0);
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Single probes that were lost: a buffer too small for a queue to be seen in.
//!
//! ```text
//!   l  share that is lost while the virtual router grants
//!   m  share that is lost while it stands aside: corruption, and what others do
//!
//!   it is to blame if l > 4 m, and not for 3 probes or fewer of the last half minute
//! ```
//!
//! A packet that is lost shows by its sequence number. Some in a row count as one:
//! the path was away. What is lost in or after a train counts as none: a train is
//! sent to find what is too much.

/// Above this times m: of a few hundred probes the share is known to a half.
const BLAME: f64 = 4.0;
/// Fewer lost probes are chance.
const FEWEST: f64 = 4.0;
/// What is kept of l's counts after an interval: those of the last 32 s or so. Losses
/// come in bursts of some round trips, seconds apart, in which few probes are sent.
const KEPT: f64 = 31.0 / 32.0;
/// What is kept of m's after an interval in which l is less: corruption ends.
const KEPT_ASIDE: f64 = 63.0 / 64.0;
/// Further back is another stream: in one, no such message is accepted.
const WINDOW: u64 = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    probes: f64,
    lost: f64,
}

impl Count {
    fn share(self) -> f64 {
        self.lost / (self.probes + self.lost).max(1.0)
    }

    fn kept(self, part: f64) -> Self {
        Self {
            probes: self.probes * part,
            lost: self.lost * part,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            probes: self.probes + other.probes,
            lost: self.lost + other.lost,
        }
    }
}

/// What is known of lost probes.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Sequence number and train of the last single probe.
    last: Option<(u64, u16)>,
    interval: Count,
    /// While it grants.
    granting: Count,
    /// While it stands aside.
    aside: Count,
    grants: bool,
    to_blame: bool,
}

impl Losses {
    /// A single probe has come, with its sequence number and that of the last train.
    pub fn on_probe(&mut self, sequence: u64, train: u16) {
        self.interval.probes += 1.0;
        match self.last {
            Some((last, _)) if sequence <= last && last - sequence < WINDOW => {
                self.interval.lost = (self.interval.lost - 1.0).max(0.0); // it was late
                return;
            }
            Some((last, of)) if sequence > last.saturating_add(1) && of == train => {
                self.interval.lost += 1.0
            }
            _ => {}
        }
        self.last = Some((sequence, train));
    }

    /// A second is over, in which the virtual router granted or did not.
    pub fn on_interval(&mut self, grants: bool) {
        let interval = std::mem::take(&mut self.interval);
        self.to_blame = false;
        if grants != self.grants {
            self.grants = grants;
            self.granting = Count::default();
            self.aside = self.aside.kept(if grants { 1.0 } else { 0.5 });
        } else if grants {
            self.granting = self.granting.kept(KEPT).and(interval);
            let (l, m) = (self.granting.share(), self.aside.share());
            if l < m {
                self.aside.lost *= KEPT_ASIDE;
            }
            self.to_blame = self.granting.lost >= FEWEST && l > BLAME * m;
        } else {
            self.aside = self.aside.and(interval);
        }
    }

    /// Whether more is lost than would be without what the virtual router grants.
    #[must_use]
    pub fn to_blame(&self) -> bool {
        self.to_blame
    }

    /// The share that is lost while it grants, or while it stands aside, as it does now.
    #[must_use]
    pub fn share(&self) -> f64 {
        match self.grants {
            true => self.granting.share(),
            false => self.aside.share(),
        }
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Available bandwidth and bottleneck capacity from packet trains.
//!
//! ```text
//!   r  rate of a gap: packet size / gap                    B/s
//!   e  strain: growth of the queueing delay per time       ns per ns
//!   A  available bandwidth                                 B/s
//!   C  capacity of the bottleneck                          B/s
//!
//!   e = max(0, r - A) / C
//! ```
//!
//! A FIFO bottleneck receives r and the other traffic C - A, and sends C. Below A
//! the queue does not grow on average (TOPP, Melander and others 2000;
//! BART, Ekelin and others 2006). The noise of e comes from the number of bytes of
//! other traffic in a gap, so its variance is proportional to 1 / gap: each gap is
//! weighted with its length.

/// Fewest consecutive packets that a train needs.
pub const MIN_PACKETS: usize = 16;
/// Rates above this multiple of the highest receive rate are ignored: hops before the
/// bottleneck may have changed such gaps.
const MAX_EXCESS: f64 = 4.0;
/// Number of packets over which a receive rate is measured.
const WINDOW: usize = 8;
/// Number of steps in which a search increases A.
const GRID: i32 = 50;

/// A packet of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The packet's number in the train.
    pub number: u16,
    /// The send time by the answerer's clock, ns, corrected by reports.
    pub sent_ns: u64,
    /// The receive time by the local clock, ns.
    pub received_ns: u64,
}

/// A gap between two packets.
#[derive(Clone, Copy, Debug)]
struct Step {
    gap_s: f64,
    rate_Bps: f64,
    strain: f64,
}

/// A received train.
#[derive(Clone, Debug)]
pub struct Train {
    steps: Vec<Step>,
}

/// The properties of the path as measured by trains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// A, the available bandwidth, B/s.
    pub available_Bps: f64,
    /// C, the capacity of the bottleneck, B/s.
    pub capacity_Bps: f64,
}

/// A candidate solution, and how much of the sum of squared strains it explains.
#[derive(Clone, Copy, Debug)]
struct Fit {
    explained: f64,
    found: Found,
}

impl Train {
    /// Creates a train from its packets in any order; each has `size_B` on the wire.
    /// Packets after the first lost one are ignored, since a full buffer does not
    /// grow. None if too few packets remain.
    #[must_use]
    pub fn new(mut packets: Vec<Packet>, size_B: u16) -> Option<Self> {
        packets.sort_by_key(|packet| (packet.number, packet.received_ns));
        packets.dedup_by_key(|packet| packet.number);
        let in_a_row = (0_u16..).zip(&packets);
        let whole = in_a_row.take_while(|(i, packet)| packet.number == *i);
        let packets: Vec<_> = whole.map(|(_, packet)| *packet).collect();
        if packets.len() < MIN_PACKETS {
            return None;
        }
        let since_s =
            |later: u64, earlier: u64| later.wrapping_sub(earlier).cast_signed() as f64 / 1e9;
        let steps = packets.windows(2).map(|pair| {
            let gap_s = since_s(pair[1].sent_ns, pair[0].sent_ns);
            Step {
                gap_s,
                rate_Bps: f64::from(size_B) / gap_s,
                strain: since_s(pair[1].received_ns, pair[0].received_ns) / gap_s - 1.0,
            }
        });
        let received = packets.windows(WINDOW).map(|window| {
            let time_s = since_s(window[WINDOW - 1].received_ns, window[0].received_ns);
            f64::from(size_B) * (WINDOW - 1) as f64 / time_s
        });
        let most_Bps = MAX_EXCESS * received.filter(|rate| rate.is_finite()).fold(0.0, f64::max);
        let useful = |step: &Step| step.gap_s > 0.0 && step.rate_Bps <= most_Bps;
        let steps: Vec<_> = steps.filter(useful).collect();
        (steps.len() >= MIN_PACKETS / 2).then_some(Train { steps })
    }

    /// The available bandwidth by this train alone, given a capacity and a first estimate of
    /// the available bandwidth: of the gaps with a higher rate than that estimate, the bytes
    /// sent minus the bytes added to the queue, divided by the length of these gaps. The first
    /// quarter of the train is skipped: it fills the queue, which then stays busy.
    #[must_use]
    pub fn available_Bps(&self, found: Found) -> f64 {
        let steps = &self.steps[self.steps.len() / 4..];
        let (mut time_s, mut free_B) = (0.0, 0.0);
        for step in steps
            .iter()
            .filter(|step| step.rate_Bps >= found.available_Bps)
        {
            time_s += step.gap_s;
            free_B += (step.rate_Bps - found.capacity_Bps * step.strain) * step.gap_s;
        }
        if time_s == 0.0 {
            return self.highest_Bps();
        }
        (free_B / time_s).clamp(0.0, self.highest_Bps())
    }

    /// The mean rate of the train.
    #[must_use]
    pub fn mean_Bps(&self) -> f64 {
        let time_s: f64 = self.steps.iter().map(|step| step.gap_s).sum();
        let sent_B: f64 = self
            .steps
            .iter()
            .map(|step| step.rate_Bps * step.gap_s)
            .sum();
        sent_B / time_s
    }

    fn highest_Bps(&self) -> f64 {
        self.rates().fold(0.0, f64::max)
    }

    fn rates(&self) -> impl Iterator<Item = f64> + Clone + '_ {
        self.steps.iter().map(|step| step.rate_Bps)
    }
}

/// Finds the A and C that fit these trains best. If no strain fits, A is the highest rate
/// that was tried.
pub fn fit<'a>(trains: impl Iterator<Item = &'a Train> + Clone) -> Option<Found> {
    let rates = trains.clone().flat_map(Train::rates);
    let lowest_Bps = rates.clone().fold(f64::INFINITY, f64::min);
    let highest_Bps = rates.fold(0.0, f64::max);
    if highest_Bps == 0.0 {
        return None;
    }
    let none = Fit {
        explained: 0.0,
        found: Found {
            available_Bps: highest_Bps,
            capacity_Bps: highest_Bps,
        },
    };
    let factor = (highest_Bps / lowest_Bps).powf(1.0 / f64::from(GRID));
    let coarse = search(none, trains.clone(), lowest_Bps, factor);
    let from_Bps = coarse.found.available_Bps / factor;
    let fine = factor.powf(2.0 / f64::from(GRID));
    Some(search(coarse, trains, from_Bps, fine).found)
}

/// Tries increasing values of A, each larger by a factor.
fn search<'a>(
    mut best: Fit,
    trains: impl Iterator<Item = &'a Train> + Clone,
    from_Bps: f64,
    factor: f64,
) -> Fit {
    for i in 0..=GRID {
        let available_Bps = from_Bps * factor.powi(i);
        let (mut squares, mut product) = (0.0, 0.0);
        let steps = trains.clone().flat_map(|train| &train.steps);
        for step in steps {
            let excess_Bps = (step.rate_Bps - available_Bps).max(0.0);
            squares += step.gap_s * excess_Bps * excess_Bps;
            product += step.gap_s * excess_Bps * step.strain;
        }
        // part of the sum of squared strains, with the best 1 / C for this A
        let explained = product * product / squares;
        if product > 0.0 && explained > best.explained {
            let found = Found {
                available_Bps,
                capacity_Bps: (squares / product).max(available_Bps),
            };
            best = Fit { explained, found };
        }
    }
    best
}

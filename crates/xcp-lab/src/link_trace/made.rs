// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Synthetic traces of radio and satellite links, 60 s each, which are free of other
//! people's rights and can be committed. Each is generated from a seed with exact
//! arithmetic only, so it is the same on every machine.

use std::fmt::Write;

use crate::random::Random;

/// Duration of each rate.
const STEP_MS: u32 = 100;
const STEPS: u32 = 600;
const BITS_PER_PACKET: f64 = 12_000.0;

/// One of the files in `traces/`.
pub struct SyntheticTrace {
    pub name: &'static str,
    pub text: String,
}

/// Generates all traces.
pub fn all() -> Vec<SyntheticTrace> {
    let made = |name, text| SyntheticTrace { name, text };
    vec![
        made("leo.mahi", opportunities(&leo())),
        made("leo.delay-ms-per-100ms", delays()),
        made("mmwave.mahi", opportunities(&mmwave())),
        made("lte.mahi", opportunities(&lte())),
        made("tunnel.mahi", opportunities(&tunnel())),
        made("umts.mahi", opportunities(&umts())),
    ]
}

impl Random {
    /// A step of a random walk: multiplies or divides by up to 1 + `most`, and reflects at
    /// the bounds.
    fn walk(&mut self, value: f64, most: f64, bounds: [f64; 2]) -> f64 {
        let factor = 1.0 + most * self.part();
        let up = self.part() < 0.5;
        let next = if up { value * factor } else { value / factor };
        match next {
            n if n > bounds[1] => bounds[1] * bounds[1] / n,
            n if n < bounds[0] => bounds[0] * bounds[0] / n,
            n => n,
        }
    }
}

/// A low orbit: every 15 s a new satellite with another rate, after 100 ms at almost 0.
fn leo() -> Vec<f64> {
    let mut draw = Random(1);
    let mut rate = 0.0;
    (0..STEPS)
        .map(|step| match step % 150 {
            0 => {
                rate = draw.between(15.0, 40.0);
                1.0
            }
            _ => {
                rate = draw.walk(rate, 0.1, [12.0, 45.0]);
                rate
            }
        })
        .collect()
}

/// The one-way delay of `leo`: a step with each satellite, and a little jitter.
fn delays() -> String {
    let mut draw = Random(2);
    let mut base_ms = 0.0;
    (0..STEPS).fold(String::new(), |mut text, step| {
        if step % 150 == 0 {
            base_ms = draw.between(18.0, 32.0);
        }
        let _ = writeln!(text, "{:.1}", base_ms + draw.between(0.0, 2.0));
        text
    })
}

/// 5G in millimetre waves, scaled to 1/20 of its rate. Obstacles reduce it to LTE for one
/// to a few seconds.
fn mmwave() -> Vec<f64> {
    let mut draw = Random(3);
    let (mut high, mut low, mut blocked) = (35.0, 2.0, 0);
    (0..STEPS)
        .map(|_| {
            high = draw.walk(high, 0.3, [15.0, 50.0]);
            low = draw.walk(low, 0.2, [1.0, 4.0]);
            if blocked > 0 {
                blocked -= 1;
                return low;
            }
            if draw.part() < 0.02 {
                blocked = draw.between(10.0, 40.0) as u32;
            }
            high
        })
        .collect()
}

/// LTE in a car: the rate doubles or halves within some 100 ms.
fn lte() -> Vec<f64> {
    let mut draw = Random(4);
    let mut rate = 8.0;
    (0..STEPS)
        .map(|_| {
            rate = draw.walk(rate, 0.45, [0.7, 24.0]);
            rate
        })
        .collect()
}

/// LTE on a train: a tunnel of 10 s and one of 3 s, in which few packets pass.
fn tunnel() -> Vec<f64> {
    let mut draw = Random(5);
    let mut rate = 8.0;
    (0..STEPS)
        .map(|step| {
            rate = draw.walk(rate, 0.3, [3.0, 16.0]);
            match step {
                195..200 | 440..445 => rate / 6.0,
                200..300 | 445..475 => 0.03,
                _ => rate,
            }
        })
        .collect()
}

/// UMTS: a good rate for some seconds, then almost stopped, with short bursts.
fn umts() -> Vec<f64> {
    let mut draw = Random(6);
    let (mut rate, mut slow, mut burst) = (2.0, 0.06, 0);
    (0..STEPS)
        .map(|step| {
            rate = draw.walk(rate, 0.3, [0.8, 5.0]);
            slow = draw.walk(slow, 0.4, [0.02, 0.3]);
            let good = matches!(step, 0..120 | 260..330 | 500..);
            if !good && burst == 0 && draw.part() < 0.01 {
                burst = 4;
            }
            if good {
                return rate;
            }
            if burst > 0 {
                burst -= 1;
                return 0.7;
            }
            slow
        })
        .collect()
}

/// The times at which a link with these rates (Mb/s) can send a packet, in mahimahi's
/// format.
fn opportunities(rates: &[f64]) -> String {
    let mut text = String::new();
    let mut bits = 0.0;
    for (step, mbit) in rates.iter().enumerate() {
        for ms in 1..=STEP_MS {
            bits += mbit * 1e3;
            while bits >= BITS_PER_PACKET {
                bits -= BITS_PER_PACKET;
                let _ = writeln!(text, "{}", step as u32 * STEP_MS + ms);
            }
        }
    }
    // the last line sets the duration of the trace
    let _ = writeln!(text, "{}", STEPS * STEP_MS);
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn committed_traces_match_the_generator() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
        for made in all() {
            let path = folder.join(format!("{}.gz", made.name));
            let there = super::super::read(&path).unwrap_or_else(|e| panic!("{e}"));
            assert!(
                there == made.text,
                "{}: cargo run --release --locked -p xcp-lab --example make-traces",
                made.name
            );
        }
    }
}

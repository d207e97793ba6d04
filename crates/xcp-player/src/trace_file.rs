// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Trace files of a link: delivery opportunities in mahimahi's format, and
//! delays.

use crate::{Error, Result};

/// Each line of a mahimahi trace allows one packet of 1500 bytes.
const PACKET_BITS: f64 = 12_000.0;
/// The lowest rate of a link. Lower rates in a trace are raised to it.
pub const LEAST_MBIT: f64 = 0.008;

const MAX_S: f64 = 86_400.0;

/// A link's rate or delay over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// `[s, value]`: the rate or delay from that second on.
    pub steps: Vec<[f64; 2]>,
    /// The steps repeat after this time.
    pub period_s: f64,
}

/// Reads the rates (Mb/s) of a trace in mahimahi's format: one line per packet
/// that the link could have sent, with its time in ms; the times never
/// decrease. Each packet is spread evenly over the time since the previous one,
/// so that a slow link gets a low rate instead of zero. Each rate is the mean
/// over `step_s`.
pub fn rates(file: &str, text: &str, step_s: f64) -> Result<Steps> {
    let step_ms = step_s * 1e3;
    let mut bits: Vec<f64> = Vec::new();
    let mut add = |from_ms: f64, to_ms: f64, amount: f64| {
        let last = (to_ms / step_ms).ceil().max(1.0) as usize - 1;
        if bits.len() <= last {
            bits.resize(last + 1, 0.0);
        }
        if from_ms >= to_ms {
            bits[last] += amount;
            return;
        }
        for (step, sum) in bits
            .iter_mut()
            .enumerate()
            .skip((from_ms / step_ms) as usize)
        {
            let begin_ms = (step as f64 * step_ms).max(from_ms);
            let end_ms = ((step + 1) as f64 * step_ms).min(to_ms);
            *sum += amount * (end_ms - begin_ms).max(0.0) / (to_ms - from_ms);
        }
    };
    let (mut before_ms, mut at_ms, mut packets) = (0.0, 0.0, 0.0);
    for (number, value) in numbers(file, text) {
        let ms = value?;
        if ms < at_ms {
            return Err(wrong(
                file,
                number,
                "the time is before that of the previous line",
            ));
        }
        if ms > MAX_S * 1e3 {
            return Err(wrong(file, number, "the time is more than a day"));
        }
        if ms > at_ms {
            add(before_ms, at_ms, packets * PACKET_BITS);
            (before_ms, at_ms, packets) = (at_ms, ms, 0.0);
        }
        packets += 1.0;
    }
    if at_ms == 0.0 {
        return Err(wrong(file, 1, "the trace has no time after 0"));
    }
    add(before_ms, at_ms, packets * PACKET_BITS);
    // the last step may be shorter
    let period_s = at_ms / 1e3;
    let rate = |(step, bits): (usize, &f64)| {
        let from_s = step as f64 * step_s;
        let mbit = bits / (step_s.min(period_s - from_s) * 1e6);
        [round(from_s), round(mbit).max(LEAST_MBIT)]
    };
    Ok(Steps {
        steps: merged(bits.iter().enumerate().map(rate)),
        period_s,
    })
}

/// Reads delays (ms, one way), one per line; each applies for `step_s`.
pub fn delays(file: &str, text: &str, step_s: f64) -> Result<Steps> {
    let all = numbers(file, text)
        .map(|(_, value)| value)
        .collect::<Result<Vec<f64>>>()?;
    if all.is_empty() {
        return Err(wrong(file, 1, "the file has no delays"));
    }
    let step = |(step, ms): (usize, &f64)| [round(step as f64 * step_s), *ms];
    Ok(Steps {
        steps: merged(all.iter().enumerate().map(step)),
        period_s: all.len() as f64 * step_s,
    })
}

/// The numbers of a file, each with its line number; blank lines and comments
/// (`#`) are skipped.
fn numbers<'a>(file: &'a str, text: &'a str) -> impl Iterator<Item = (usize, Result<f64>)> + 'a {
    let lines = text.lines().enumerate();
    lines.filter_map(move |(i, line)| {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let number = line
            .parse()
            .ok()
            .filter(|n: &f64| n.is_finite() && *n >= 0.0);
        let short: String = line.chars().take(20).collect();
        Some((
            i + 1,
            number.ok_or_else(|| wrong(file, i + 1, &format!("{short:?} is not a time in ms"))),
        ))
    })
}

fn wrong(file: &str, line: usize, reason: &str) -> Error {
    Error::new(
        format!("{file}:{line}"),
        reason,
        "write one number of ms per line: when the link can send a packet of 1500 bytes \
         (mahimahi's format), or a delay",
    )
}

/// Rounds to 6 decimals: seconds to a microsecond, Mb/s to a bit per second.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn merged(steps: impl Iterator<Item = [f64; 2]>) -> Vec<[f64; 2]> {
    let mut all: Vec<[f64; 2]> = steps.collect();
    all.dedup_by_key(|[_, value]| *value);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_means_over_a_step() {
        // 10 packets in the first 100 ms, then 5, then none for 300 ms
        let mut text = String::from("# a comment\n\n");
        for ms in (10..=100).step_by(10).chain((120..=200).step_by(20)) {
            text += &format!("{ms}\n");
        }
        text += "500\n";
        let steps = rates("t", &text, 0.1).expect("a trace");
        assert_eq!(steps.period_s, 0.5);
        assert_eq!(steps.steps, [[0.0, 1.2], [0.1, 0.6], [0.2, 0.04]]);
    }

    #[test]
    fn each_packet_is_counted_once() {
        let text = "0\n0\n3\n3\n3\n250\n250\n251\n1234\n";
        let steps = rates("t", text, 0.1).expect("a trace");
        let ends = steps.steps.iter().skip(1).map(|[from, _]| *from);
        let lengths = ends.chain([steps.period_s]).zip(&steps.steps);
        let bits: f64 = lengths
            .map(|(to, [from, mbit])| (to - from) * mbit * 1e6)
            .sum();
        assert!((bits - 9.0 * PACKET_BITS).abs() < 10.0, "{bits}");
    }

    #[test]
    fn each_delay_lasts_one_step() {
        let steps = delays("d", "22\n22\n25.5\n", 0.01).expect("delays");
        assert_eq!(steps.steps, [[0.0, 22.0], [0.02, 25.5]]);
        assert_eq!(steps.period_s, 0.03);
    }

    #[test]
    fn errors_name_file_and_line() {
        for (text, at, reason) in [
            ("1\nx\n", "t:2", "\"x\" is not a time"),
            ("1\n-1\n", "t:2", "is not a time"),
            ("5\n\n4\n", "t:3", "before"),
            ("99999999999\n", "t:1", "a day"),
            ("0\n", "t:1", "no time"),
        ] {
            let error = rates("t", text, 0.1).expect_err(text);
            assert!(
                error.thing == at && error.reason.contains(reason),
                "{error:?}"
            );
        }
        assert!(delays("d", "", 0.1).is_err());
        assert!(delays("d", "nan", 0.1).is_err());
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Parses and prints link capacities: a number and a unit of bits per second.

use std::fmt;
use std::str::FromStr;

use xcp_datapath::router::CAPACITY_RANGE_BPS as RANGE_BYTES_PER_S;

use crate::value::BadValue;

const UNITS: [(&str, f64); 5] = [
    ("bit", 1.0),
    ("kbit", 1e3),
    ("mbit", 1e6),
    ("gbit", 1e9),
    ("tbit", 1e12),
];

/// The value of `--capacity`: a rate or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// The capacity is measured.
    Auto,
    Rate(Rate),
}

impl Capacity {
    /// Returns 0 for `auto`.
    pub fn bytes_per_s(self) -> u64 {
        match self {
            Self::Auto => 0,
            Self::Rate(rate) => rate.bytes_per_s,
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Rate(rate) => rate.fmt(f),
        }
    }
}

impl FromStr for Capacity {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text.trim() == "auto" {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Rate)
    }
}

/// A rate such as `10mbit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub bytes_per_s: u64,
}

/// Prints the rate in the largest unit that gives a whole number, so that parsing returns
/// the same rate.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = self.bytes_per_s * 8;
        let fits = |(_, factor): &&(&str, f64)| bps.is_multiple_of(*factor as u64);
        let (unit, factor) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
        write!(f, "{}{unit}", bps / *factor as u64)
    }
}

impl Rate {
    /// Parses a rate that may be 0, such as that of a link that has stopped.
    pub fn or_zero(text: &str) -> Result<u64, BadValue> {
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &text[digits.len()..];
        let number: f64 = digits.trim_end().parse().map_err(|_| not_a_number())?;
        let factor = factor(digits, unit)?;
        if number < 0.0 {
            return Err(BadValue::new("negative", EXAMPLE));
        }
        if number == 0.0 {
            return Ok(0);
        }
        in_range(number * factor / 8.0)
    }
}

impl FromStr for Rate {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match Self::or_zero(text)? {
            0 => Err(BadValue::new("a link needs a capacity above 0", EXAMPLE)),
            bytes_per_s => Ok(Self { bytes_per_s }),
        }
    }
}

const EXAMPLE: &str = "give the link's rate, e.g. 10mbit";

fn not_a_number() -> BadValue {
    BadValue::new("not a number with a unit", EXAMPLE)
}

fn factor(digits: &str, unit: &str) -> Result<f64, BadValue> {
    if unit.is_empty() {
        let digits = digits.trim_start_matches(['-', '+']);
        let digits = if digits.trim_start_matches(['0', '.']).is_empty() {
            "10"
        } else {
            digits
        };
        return Err(BadValue::new(
            "without a unit",
            format!("add one, e.g. {digits}mbit"),
        ));
    }
    let lower = unit.to_ascii_lowercase();
    UNITS
        .iter()
        .find(|(name, _)| *name == lower)
        .map(|(_, factor)| *factor)
        .ok_or_else(|| {
            BadValue::new(
                format!("unknown unit \"{unit}\""),
                "give bit, kbit, mbit, gbit or tbit (per second), e.g. 10mbit",
            )
        })
}

fn in_range(bytes_per_s: f64) -> Result<u64, BadValue> {
    let rounded = bytes_per_s.round(); // saturates below, so infinity is too large
    let remedy = "give a capacity from 8kbit to 1tbit";
    match rounded as u64 {
        n if n < *RANGE_BYTES_PER_S.start() => Err(BadValue::new("too small", remedy)),
        n if n > *RANGE_BYTES_PER_S.end() => Err(BadValue::new("too large", remedy)),
        bytes_per_s => Ok(bytes_per_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<u64, String> {
        text.parse::<Rate>()
            .map(|c| c.bytes_per_s)
            .map_err(|e| e.reason)
    }

    #[test]
    fn numbers_with_units_parse() {
        for (text, bytes_per_s) in [
            ("10mbit", 1_250_000),
            ("10Mbit", 1_250_000),
            ("10 MBIT", 1_250_000),
            (" 10mbit ", 1_250_000),
            ("+10mbit", 1_250_000),
            ("2.5gbit", 312_500_000),
            (".5gbit", 62_500_000),
            ("10.1mbit", 1_262_500),
            ("10000000bit", 1_250_000),
            ("8kbit", 1_000),
            ("1tbit", 125_000_000_000),
            ("1000gbit", 125_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(bytes_per_s), "{text}");
        }
    }

    #[test]
    fn printed_rates_parse_to_the_same_rate() {
        for (bytes_per_s, text) in [
            (1_250_000, "10mbit"),
            (312_500_000, "2500mbit"),
            (125_000_000_000, "1tbit"),
            (1_262_501, "10100008bit"),
        ] {
            assert_eq!(Rate { bytes_per_s }.to_string(), text);
            assert_eq!(parse(text), Ok(bytes_per_s));
        }
    }

    #[test]
    fn capacity_can_be_auto() {
        assert_eq!("auto".parse(), Ok(Capacity::Auto));
        let rate = Rate { bytes_per_s: 1000 };
        assert_eq!("8kbit".parse(), Ok(Capacity::Rate(rate)));
    }

    #[test]
    fn bad_rates_have_a_reason() {
        for (text, reason) in [
            ("", "not a number with a unit"),
            ("mbit", "not a number with a unit"),
            ("fast", "not a number with a unit"),
            ("infmbit", "not a number with a unit"),
            ("nan", "not a number with a unit"),
            ("1,5mbit", "not a number with a unit"),
            ("1 0mbit", "not a number with a unit"),
            ("--overhead", "not a number with a unit"),
            ("10", "without a unit"),
            ("-5", "without a unit"),
            ("0", "without a unit"),
            ("-5mbit", "negative"),
            ("0mbit", "a link needs a capacity above 0"),
            ("-0mbit", "a link needs a capacity above 0"),
            ("7kbit", "too small"),
            ("1bit", "too small"),
            ("1.1tbit", "too large"),
            ("1e300tbit", "too large"),
            ("10mb", "unknown unit \"mb\""),
            ("10mbps", "unknown unit \"mbps\""),
        ] {
            assert_eq!(parse(text), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn remedy_suggests_the_missing_unit() {
        let remedy = |text: &str| text.parse::<Rate>().expect_err(text).remedy;
        assert_eq!(remedy("10"), "add one, e.g. 10mbit");
        assert_eq!(remedy("-2.5"), "add one, e.g. 2.5mbit");
        assert_eq!(remedy("0"), "add one, e.g. 10mbit");
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Formats numbers with units for people.

const PREFIXES: [&str; 5] = ["", "k", "M", "G", "T"];

fn scaled(value: f64, unit: &str) -> String {
    let (number, prefix) = parts(value);
    format!("{number} {prefix}{unit}")
}

/// A number and the prefix of its unit.
fn parts(value: f64) -> (String, &'static str) {
    let mut scaled = value;
    let mut prefix = 0;
    // 999.95 would print as 1000.0
    while scaled.abs() >= 999.95 && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    let digits = usize::from(prefix > 0);
    (format!("{scaled:.digits$}"), PREFIXES[prefix])
}

/// A number without a unit, such as `10.0M`: the column's head has the unit.
pub fn short(value: f64) -> String {
    let (number, prefix) = parts(value);
    number + prefix
}

/// A change with its sign and without a unit, such as `+120.0k`.
pub fn signed_short(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", short(value))
}

/// A rate in bits per second, such as `10.0 Mb/s`.
pub fn rate(bps: f64) -> String {
    scaled(bps, "b/s")
}

/// A change of a rate, with its sign.
pub fn signed_rate(bps: f64) -> String {
    let sign = if bps > 0.0 { "+" } else { "" };
    format!("{sign}{}", rate(bps))
}

/// An amount of data, such as `15.0 kB`.
pub fn bytes(n: u64) -> String {
    scaled(n as f64, "B")
}

/// A time, such as `502.1 ms`.
pub fn milliseconds(ms: f64) -> String {
    format!("{ms:.1} ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_prefix() {
        assert_eq!(rate(0.0), "0 b/s");
        assert_eq!(rate(999.0), "999 b/s");
        assert_eq!(rate(1e3), "1.0 kb/s");
        assert_eq!(rate(1e7), "10.0 Mb/s");
        assert_eq!(rate(999_960.0), "1.0 Mb/s");
        assert_eq!(rate(2.5e9), "2.5 Gb/s");
        assert_eq!(rate(1e12), "1.0 Tb/s");
        assert_eq!(rate(1e16), "10000.0 Tb/s");
    }

    #[test]
    fn short_numbers_have_no_unit() {
        assert_eq!(short(0.0), "0");
        assert_eq!(short(1e7), "10.0M");
        assert_eq!(short(999_949.0), "999.9k");
        assert_eq!(signed_short(120_000.0), "+120.0k");
        assert_eq!(signed_short(-120_000.0), "-120.0k");
    }

    #[test]
    fn changes_have_a_sign() {
        assert_eq!(signed_rate(120_000.0), "+120.0 kb/s");
        assert_eq!(signed_rate(-120_000.0), "-120.0 kb/s");
        assert_eq!(signed_rate(0.0), "0 b/s");
    }

    #[test]
    fn bytes_and_times_have_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(15_000), "15.0 kB");
        assert_eq!(milliseconds(502.14), "502.1 ms");
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Parsers of values on the command line. A bad value has a reason and a remedy.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use xcp_datapath::router::{Options, MAX_RTT_RANGE, OVERHEAD_RANGE_B};
use xcp_datapath::socket::Wanted;
use xcp_datapath::wire::IP_PROTO_RANGE;
use xcp_datapath::{Prefix, SenderFeature, Wire};

/// Why a value is rejected, and which values are accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {remedy}")]
pub struct BadValue {
    pub reason: String,
    pub remedy: String,
}

impl BadValue {
    pub fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }
}

/// The largest minimum packet size, bytes.
const MPU_MOST_B: u32 = 4096;
const PACKETS_MOST: u32 = 1_000_000;
const CONNECTIONS_MOST: u32 = 1_000_000;
const RTT_LEAST_S: f64 = 1e-6;
const RTT_MOST_S: f64 = 60.0;
const UNITS_S: [(&str, f64); 3] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
/// The maximum of a duration: 10 years.
const DURATION_MOST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Bytes that a link adds to every packet.
pub fn overhead(text: &str) -> Result<i32, BadValue> {
    let (low, high) = (*OVERHEAD_RANGE_B.start(), *OVERHEAD_RANGE_B.end());
    let below = text
        .strip_prefix('-')
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let bytes = match below {
        Some(less) => whole(less, "", 0..=low.unsigned_abs().into()).map(|n| -(n as i32)),
        None => whole(text, "", 0..=high as u64).map(|n| n as i32),
    };
    bytes.map_err(|bad| {
        let reason = match (below, bad.reason.as_str()) {
            (Some(_), "too large") => "too small",
            (_, reason) => reason,
        };
        BadValue::new(reason, format!("give whole bytes from {low} to {high}"))
    })
}

/// Minimum bytes of a packet on the link.
pub fn mpu(text: &str) -> Result<u32, BadValue> {
    whole(text, "whole bytes", 0..=MPU_MOST_B.into()).map(|n| n as u32)
}

/// Percent of the link: from 1 to 99.
pub fn percent(text: &str) -> Result<u8, BadValue> {
    whole(text, "whole percent", 1..=99).map(|n| n as u8)
}

/// Queue limit in packets.
pub fn packets(text: &str) -> Result<u32, BadValue> {
    whole(text, "whole packets", 1..=PACKETS_MOST.into()).map(|n| n as u32)
}

/// A TCP port.
pub fn port(text: &str) -> Result<u16, BadValue> {
    whole(text, "a port", 1..=u16::MAX.into()).map(|n| n as u16)
}

/// A number of connections.
pub fn connections(text: &str) -> Result<u32, BadValue> {
    whole(text, "a whole number", 1..=CONNECTIONS_MOST.into()).map(|n| n as u32)
}

/// A number of items, at least 1.
pub fn count(text: &str) -> Result<u64, BadValue> {
    whole(text, "a whole number", 1..=u64::MAX)
}

/// A duration in seconds.
pub fn duration(text: &str) -> Result<Duration, BadValue> {
    let bad = |reason: &str| BadValue::new(reason, "give seconds, such as 10 or 0.5");
    let seconds: f64 = text.parse().map_err(|_| bad("not a number"))?;
    if seconds.is_nan() || seconds <= 0.0 {
        return Err(bad("not a positive number"));
    }
    match Duration::try_from_secs_f64(seconds) {
        Ok(Duration::ZERO) => Err(bad("shorter than a nanosecond")),
        Ok(duration) if duration <= DURATION_MOST => Ok(duration),
        _ => Err(bad("longer than 10 years")),
    }
}

/// A round-trip time, such as `500ms`.
pub fn rtt(text: &str) -> Result<Duration, BadValue> {
    let bad = |reason: &str| BadValue::new(reason, "give one such as 500ms or 1.5s");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let (_, unit_s) = UNITS_S
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| bad("a round-trip time has a unit: us, ms or s"))?;
    let number: f64 = digits.parse().map_err(|_| bad("not a number"))?;
    let rtt_s = number * unit_s;
    if !(RTT_LEAST_S..=RTT_MOST_S).contains(&rtt_s) {
        return Err(bad("not a round-trip time from 1 us to 60 s"));
    }
    Ok(Duration::from_secs_f64(rtt_s))
}

/// Writes a time that [`rtt`] parses, such as `2s`, `500ms` or `1500us`.
pub fn write_rtt(rtt: Duration) -> String {
    let us = rtt.as_micros();
    match (us % 1_000_000, us % 1000) {
        (0, _) => format!("{}s", us / 1_000_000),
        (_, 0) => format!("{}ms", us / 1000),
        _ => format!("{us}us"),
    }
}

/// The default of `--max-rtt`.
pub static MAX_RTT: LazyLock<String> = LazyLock::new(|| write_rtt(Options::default().max_rtt));

/// The limit of a router for round-trip times in headers.
pub fn max_rtt(text: &str) -> Result<Duration, BadValue> {
    let (low, high) = (*MAX_RTT_RANGE.start(), *MAX_RTT_RANGE.end());
    rtt(text).and_then(|rtt| match rtt {
        _ if rtt < low => Err(BadValue::new("too short", "give 1ms or more")),
        _ if rtt > high => Err(BadValue::new(
            "longer than headers can express",
            "give 15s or less",
        )),
        _ => Ok(rtt),
    })
}

/// The IP protocol of XCP's header: an unassigned one.
pub fn ip_proto(text: &str) -> Result<u8, BadValue> {
    let (low, high) = (*IP_PROTO_RANGE.start(), *IP_PROTO_RANGE.end());
    whole(text, "an IP protocol", low.into()..=high.into()).map(|n| n as u8)
}

/// A wire format by its name.
pub fn wire(text: &str) -> Result<Wire, BadValue> {
    text.parse().map_err(|_| {
        let names = Wire::ALL.map(Wire::name).join(", ");
        BadValue::new("no such wire format", format!("give one of {names}"))
    })
}

/// A version of the Internet protocol.
pub fn ip_version(text: &str) -> Result<u8, BadValue> {
    match text {
        "4" => Ok(4),
        "6" => Ok(6),
        _ => Err(BadValue::new("no such version", "give 4 or 6")),
    }
}

/// A sender feature by its name.
pub fn sender_feature(text: &str) -> Result<SenderFeature, BadValue> {
    named(text, "no such sender feature", SenderFeature::names)
}

/// Parses a name; the remedy lists all names.
fn named<T: FromStr>(text: &str, reason: &str, names: fn() -> String) -> Result<T, BadValue> {
    text.parse()
        .map_err(|_| BadValue::new(reason, format!("give some of {}", names())))
}

/// An address prefix.
pub fn prefix(text: &str) -> Result<Prefix, BadValue> {
    text.parse().map_err(|reason: String| {
        let remedy = "give an address or a prefix, such as 10.0.0.0/8 or 2001:db8::/32";
        BadValue::new(reason, remedy)
    })
}

/// The address of one router.
pub fn router(text: &str) -> Result<IpAddr, BadValue> {
    let bad = |reason: &str| BadValue::new(reason, "give one such as 192.0.2.1 or 2001:db8::1");
    let address: IpAddr = text.parse().map_err(|_| bad("not an address"))?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(bad("not the address of one router"));
    }
    Ok(address.to_canonical())
}

/// The seed of a lab run.
pub fn seed(text: &str) -> Result<u64, BadValue> {
    whole(text, "a whole number", 0..=u64::MAX)
}

/// The protocol number of sockets that use XCP, or `off`.
pub fn socket_protocol(text: &str) -> Result<Wanted, BadValue> {
    if text == "off" {
        return Ok(Wanted::Off);
    }
    let number = whole(text, "off or a protocol number", 1..=255)?;
    Wanted::number(number as u8).ok_or_else(|| {
        let reason = "assigned to another protocol";
        BadValue::new(reason, "give an unassigned number, such as 200")
    })
}

fn whole(text: &str, unit: &str, range: RangeInclusive<u64>) -> Result<u64, BadValue> {
    let bad = |reason: &str| {
        let (low, high) = (range.start(), range.end());
        BadValue::new(reason, format!("give {unit} from {low} to {high}"))
    };
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad("not a whole number"));
    }
    if text.starts_with('-') {
        return Err(bad("negative"));
    }
    match digits.parse() {
        Ok(n) if range.contains(&n) => Ok(n),
        Ok(n) if n < *range.start() => Err(bad("too small")),
        _ => Err(bad("too large")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_versions_are_4_and_6() {
        assert_eq!((ip_version("4"), ip_version("6")), (Ok(4), Ok(6)));
        for text in ["5", "", "06", "4.0"] {
            assert_eq!(ip_version(text).unwrap_err().remedy, "give 4 or 6");
        }
    }

    #[test]
    fn whole_numbers_in_range_are_accepted() {
        assert_eq!(overhead("0"), Ok(0));
        assert_eq!(overhead("+18"), Ok(18));
        assert_eq!(overhead("4096"), Ok(4096));
        assert_eq!(overhead("-64"), Ok(-64));
        assert_eq!(percent("99"), Ok(99));
        assert_eq!(percent("100").expect_err("all").reason, "too large");
        assert_eq!(seed("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn durations_are_positive_seconds() {
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        for (text, reason) in [
            ("", "not a number"),
            ("x", "not a number"),
            ("0", "not a positive number"),
            ("-1", "not a positive number"),
            ("NaN", "not a positive number"),
            ("1e-12", "shorter than a nanosecond"),
            ("inf", "longer than 10 years"),
            ("1e300", "longer than 10 years"),
        ] {
            assert_eq!(duration(text).expect_err(text).reason, reason);
        }
    }

    #[test]
    fn assigned_ip_protocols_are_rejected() {
        assert_eq!(ip_proto("200"), Ok(200));
        let bad = ip_proto("6").expect_err("TCP");
        assert_eq!(
            bad.to_string(),
            "too small: give an IP protocol from 148 to 254"
        );
    }

    #[test]
    fn socket_protocol_is_off_or_an_unassigned_number() {
        assert_eq!(socket_protocol("off"), Ok(Wanted::Off));
        assert_eq!(socket_protocol("201"), Ok(Wanted::Number(201)));
        for (text, reason) in [
            ("on", "not a whole number"),
            ("0", "too small"),
            ("256", "too large"),
            ("6", "assigned to another protocol"),
            ("132", "assigned to another protocol"),
        ] {
            assert_eq!(socket_protocol(text).expect_err(text).reason, reason);
        }
    }

    #[test]
    fn router_address_is_unicast() {
        let four: IpAddr = [192, 0, 2, 1].into();
        assert_eq!(router("192.0.2.1"), Ok(four));
        assert_eq!(router("::ffff:192.0.2.1"), Ok(four));
        for (text, reason) in [
            ("router", "not an address"),
            ("192.0.2.0/24", "not an address"),
            ("0.0.0.0", "not the address of one router"),
            ("ff02::1", "not the address of one router"),
        ] {
            assert_eq!(router(text).expect_err(text).reason, reason);
        }
    }

    #[test]
    fn overhead_errors_have_a_reason() {
        for (text, reason) in [
            ("", "not a whole number"),
            ("-", "not a whole number"),
            ("1.5", "not a whole number"),
            ("18b", "not a whole number"),
            ("--1", "not a whole number"),
            ("-x", "not a whole number"),
            ("-65", "too small"),
            ("4097", "too large"),
            ("99999999999999999999", "too large"),
        ] {
            let bad = overhead(text).expect_err(text);
            assert_eq!(bad.reason, reason, "{text}");
            assert_eq!(bad.remedy, "give whole bytes from -64 to 4096");
        }
    }
}

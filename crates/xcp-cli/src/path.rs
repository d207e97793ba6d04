// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The TCP buffers that a network path needs: `xcp doctor --path`.

use std::fs;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::capacity::Rate;
use crate::units;
use crate::value::{self, BadValue};

/// A network path, written as `10mbit,500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkPath {
    /// Rate of its slowest link.
    pub rate: Rate,
    /// Its round-trip time.
    pub rtt: Duration,
}

const EXAMPLE: &str = "give a rate and a round-trip time, e.g. 10mbit,500ms";

impl FromStr for NetworkPath {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let (rate, rtt) = text
            .split_once(',')
            .ok_or_else(|| BadValue::new("not a path", EXAMPLE))?;
        Ok(Self {
            rate: rate.parse()?,
            rtt: value::rtt(rtt.trim()).map_err(|bad| BadValue::new(bad.reason, EXAMPLE))?,
        })
    }
}

/// Buffer size in windows. TCP counts the memory of packets, and receivers do not merge
/// packets whose headers differ: with two windows of buffer the experiment
/// `path-buffers` uses 0.87 of its link, with three all of it.
const BUFFER_WINDOWS: u64 = 3;
/// The largest window without and with scaling (RFC 7323).
const UNSCALED_BYTES: u64 = 65_535;
const WINDOW_MOST_BYTES: u64 = UNSCALED_BYTES << 14;

/// A limit of this system, and the value that the path needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    pub name: &'static str,
    pub sysctl: &'static str,
    pub allows: u64,
    pub needs: u64,
    pub ok: bool,
    /// What happens if the limit is too low, with the remedy.
    pub cost: String,
}

/// The TCP settings of this system, from /proc/sys.
pub struct Settings {
    /// Minimum, default and maximum buffer, bytes.
    receive: [u64; 3],
    send: [u64; 3],
    scaling: bool,
    /// Receive buffers grow automatically.
    grows: bool,
}

impl Settings {
    /// Reads the settings of this network namespace; unreadable ones are 0.
    pub fn here() -> Self {
        let read = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
            let text = text.unwrap_or_default();
            let mut numbers = text.split_whitespace().map(|n| n.parse().unwrap_or(0));
            [(); 3].map(|()| numbers.next().unwrap_or(0))
        };
        Self {
            receive: read("tcp_rmem"),
            send: read("tcp_wmem"),
            scaling: read("tcp_window_scaling")[0] != 0,
            grows: read("tcp_moderate_rcvbuf")[0] != 0,
        }
    }
}

impl NetworkPath {
    /// The bandwidth-delay product, bytes.
    pub fn window_bytes(&self) -> u64 {
        let bytes = u128::from(self.rate.bytes_per_s) * self.rtt.as_nanos();
        u64::try_from(bytes.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
    }

    /// Compares each limit with the value that the path needs.
    pub fn needs(&self, here: &Settings) -> Vec<Need> {
        let window = self.window_bytes();
        let buffer = BUFFER_WINDOWS * window;
        let set = |sysctl, [least, first, _]: [u64; 3]| {
            format!("sysctl -w {sysctl}=\"{least} {first} {buffer}\"")
        };
        let (grows, rmem, wmem) = (
            "net.ipv4.tcp_moderate_rcvbuf",
            "net.ipv4.tcp_rmem",
            "net.ipv4.tcp_wmem",
        );
        let receive = if here.grows {
            let remedy = set(rmem, here.receive);
            self.need("receive buffers", rmem, [here.receive[2], buffer], remedy)
        } else {
            let remedy = format!("sysctl -w {grows}=1");
            self.need("receive buffers", grows, [here.receive[1], buffer], remedy)
        };
        let remedy = set(wmem, here.send);
        let send = self.need("send buffers", wmem, [here.send[2], buffer], remedy);
        let scaling = "net.ipv4.tcp_window_scaling";
        let (largest, remedy) = if here.scaling {
            (WINDOW_MOST_BYTES, "use several connections".to_owned())
        } else {
            (UNSCALED_BYTES, format!("sysctl -w {scaling}=1"))
        };
        let scaling = self.need("window scaling", scaling, [largest, window], remedy);
        vec![receive, send, scaling]
    }

    fn need(
        &self,
        name: &'static str,
        sysctl: &'static str,
        [allows, needs]: [u64; 2],
        remedy: String,
    ) -> Need {
        let part = allows as f64 / needs as f64;
        let bps = part * (self.rate.bytes_per_s * 8) as f64;
        Need {
            name,
            sysctl,
            allows,
            needs,
            ok: allows >= needs,
            cost: format!(
                "a connection reaches at most {}: {remedy}",
                units::rate(bps)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            receive: [4096, 131_072, 6_291_456],
            send: [4096, 16_384, 4_194_304],
            scaling: true,
            grows: true,
        }
    }

    fn path(text: &str) -> NetworkPath {
        text.parse().expect("a path")
    }

    fn missed(path: &str, here: &Settings) -> Vec<(&'static str, String)> {
        let needs = self::path(path).needs(here).into_iter();
        needs.filter(|n| !n.ok).map(|n| (n.name, n.cost)).collect()
    }

    #[test]
    fn path_is_a_rate_and_a_round_trip_time() {
        assert_eq!(path("10mbit,500ms").window_bytes(), 625_000);
        assert_eq!(path("1gbit, 0.5s").window_bytes(), 62_500_000);
        assert_eq!(path("100gbit,10us").window_bytes(), 125_000);
        for (text, reason) in [
            ("10mbit", "not a path"),
            ("10,500ms", "without a unit"),
            ("10mbit,500", "a round-trip time has a unit: us, ms or s"),
            ("10mbit,ms", "not a number"),
            ("10mbit,-1ms", "not a round-trip time from 1 us to 60 s"),
            ("10mbit,1e-9us", "not a round-trip time from 1 us to 60 s"),
            ("10mbit,0s", "not a round-trip time from 1 us to 60 s"),
            ("10mbit,61s", "not a round-trip time from 1 us to 60 s"),
            ("10mbit,nans", "a round-trip time has a unit: us, ms or s"),
            ("10mbit,infs", "a round-trip time has a unit: us, ms or s"),
        ] {
            let bad = text.parse::<NetworkPath>().expect_err(text);
            assert_eq!(bad.reason, reason, "{text}");
        }
    }

    /// The experiment `path-buffers` uses exactly the computed buffer.
    #[test]
    fn path_buffers_experiment_uses_the_computed_buffer() {
        let text = include_str!("../../../experiments/path-buffers.toml");
        let need = &path("20mbit,200ms").needs(&settings())[0];
        assert!(text.contains(&format!("\nbuffer_bytes = {}\n", need.needs)));
    }

    #[test]
    fn low_limits_are_reported_with_cost_and_remedy() {
        assert_eq!(missed("10mbit,500ms", &settings()), []);
        let costs = missed("67mbit,250ms", &settings());
        assert_eq!(
            costs,
            [(
                "send buffers",
                "a connection reaches at most 44.7 Mb/s: \
                 sysctl -w net.ipv4.tcp_wmem=\"4096 16384 6281250\""
                    .to_owned()
            )]
        );
        let names = |here: &Settings| {
            let missed = missed("10mbit,500ms", here).into_iter();
            missed.map(|(name, _)| name).collect::<Vec<_>>()
        };
        let unscaled = Settings {
            scaling: false,
            ..settings()
        };
        assert_eq!(names(&unscaled), ["window scaling"]);
        let fixed = Settings {
            grows: false,
            ..settings()
        };
        assert_eq!(names(&fixed), ["receive buffers"]);
        let fat = missed("100gbit,500ms", &settings());
        assert_eq!(fat.len(), 3, "no window is that large");
        assert_eq!(
            missed("1mbit,100ms", &unscaled),
            [],
            "a small window needs no scaling"
        );
    }
}

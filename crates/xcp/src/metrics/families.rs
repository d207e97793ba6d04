// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The metrics with their names, types, units and help. The names are stable.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use xcp_cli::failure::Failure;
use xcp_datapath::cloud::{self, State};
use xcp_datapath::host::{self, Counters};
use xcp_datapath::meter::{Meter, Reading};
use xcp_datapath::Fallback;
use xcp_gateway::status as gateway;

use crate::router::upstream;

/// The values to export, read at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub routers: Vec<Reading>,
    /// None if XCP is off.
    pub host: Option<Counters>,
    pub clouds: Vec<cloud::Status>,
    /// None if no gateway runs in this network namespace.
    pub gateway: Option<gateway::Status>,
}

impl Snapshot {
    pub fn read(meter: &mut Meter) -> Result<Self, Failure> {
        Ok(Self {
            routers: meter.read()?,
            host: match host::is_on() {
                true => Some(host::counters()?),
                false => None,
            },
            clouds: match cloud::any_exist() {
                true => cloud::list()?,
                false => Vec::new(),
            },
            gateway: gateway::here(),
        })
    }

    /// Formats the values as OpenMetrics text.
    pub fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // fails only if the writer fails, and a string never does
        let _ = encode(&mut text, &registry);
        text
    }
}

/// Names and values of labels.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A metric of routers, hosts, edges or gateways. Gauges may have a unit, counters have none.
struct Family<T: 'static> {
    name: &'static str,
    help: &'static str,
    of: Value<T>,
}

enum Value<T: 'static> {
    /// Unknown values (None) are not exported.
    Gauge(Option<&'static str>, fn(&T) -> Option<f64>),
    Counter(fn(&T) -> u64),
}

const BYTES: Option<&str> = Some("bytes");
const BYTES_PER_SECOND: Option<&str> = Some("bytes_per_second");
const SECONDS: Option<&str> = Some("seconds");

const ROUTER: &[Family<Reading>] = &[
    Family {
        name: "xcp_router_configured_capacity",
        help: "Configured capacity of the link; absent if it is only measured",
        of: Value::Gauge(BYTES_PER_SECOND, |r| r.configured_Bps.map(|n| n as f64)),
    },
    Family {
        name: "xcp_router_capacity",
        help: "Capacity that is handed out to XCP in the current control interval",
        of: Value::Gauge(BYTES_PER_SECOND, |r| r.capacity_Bps.map(|n| n as f64)),
    },
    Family {
        name: "xcp_router_measured_capacity",
        help: "Measured capacity of the link; absent if it is not measured",
        of: Value::Gauge(BYTES_PER_SECOND, |r| r.measured_Bps.map(|n| n as f64)),
    },
    Family {
        name: "xcp_router_input",
        help: "Rate at which traffic arrived for the link in the last control interval; only \
               XCP's traffic if XCP has its own queue",
        of: Value::Gauge(BYTES_PER_SECOND, |r| Some(r.input_Bps as f64)),
    },
    Family {
        name: "xcp_router_queue",
        help: "Backlog of the device's queues when last sampled, at most every 100 us",
        of: Value::Gauge(BYTES, |r| Some(r.queue_B as f64)),
    },
    Family {
        name: "xcp_router_persistent_queue",
        help: "Minimum backlog of the last estimation interval",
        of: Value::Gauge(BYTES, |r| Some(r.persistent_queue_B as f64)),
    },
    Family {
        name: "xcp_router_flows",
        help: "Number of XCP flows, estimated from their headers",
        of: Value::Gauge(None, |r| Some(r.flows)),
    },
    Family {
        name: "xcp_router_average_rtt",
        help: "Mean RTT of the traffic in the last control interval",
        of: Value::Gauge(SECONDS, |r| Some(r.average_rtt_s)),
    },
    Family {
        name: "xcp_router_qdisc_replaced",
        help: "1 if the queue discipline xcp was replaced by another one, else 0",
        of: Value::Gauge(None, |r| Some(f64::from(u8::from(r.qdisc_replaced)))),
    },
    Family {
        name: "xcp_router_control_intervals",
        help: "Control intervals that have ended",
        of: Value::Counter(|r| r.control_intervals),
    },
    Family {
        name: "xcp_router_xcp_packets",
        help: "Packets with a forward header",
        of: Value::Counter(|r| r.xcp_packets),
    },
    Family {
        name: "xcp_router_other_packets",
        help: "Packets without a forward header",
        of: Value::Counter(|r| r.other_packets),
    },
    Family {
        name: "xcp_router_malformed_headers",
        help: "Packets with a malformed XCP header, which are not changed",
        of: Value::Counter(|r| r.malformed),
    },
    Family {
        name: "xcp_router_dropped_packets",
        help: "Packets that the device's queues have dropped",
        of: Value::Counter(|r| r.drops),
    },
];

const HOST: &[Family<Counters>] = &[
    Family {
        name: "xcp_host_connections",
        help: "Connections that have used XCP",
        of: Value::Counter(|c| c.sockets),
    },
    Family {
        name: "xcp_host_forward_headers_sent",
        help: "Packets sent with a forward header",
        of: Value::Counter(|c| c.forward_sent),
    },
    Family {
        name: "xcp_host_forward_headers_received",
        help: "Packets received with a forward header",
        of: Value::Counter(|c| c.forward_received),
    },
    Family {
        name: "xcp_host_return_headers_sent",
        help: "Packets sent with feedback",
        of: Value::Counter(|c| c.return_sent),
    },
    Family {
        name: "xcp_host_return_headers_received",
        help: "Packets received with feedback",
        of: Value::Counter(|c| c.return_received),
    },
    Family {
        name: "xcp_host_headers_omitted",
        help: "Packets sent without an XCP header where one was due",
        of: Value::Counter(|c| c.header_omitted),
    },
    Family {
        name: "xcp_host_malformed_headers",
        help: "Malformed XCP headers received",
        of: Value::Counter(|c| c.malformed),
    },
    Family {
        name: "xcp_host_implausible_headers",
        help: "Headers received with a sequence number outside the window, which are ignored",
        of: Value::Counter(|c| c.implausible),
    },
];

const EDGE: &[Family<cloud::Status>] = &[
    Family {
        name: "xcp_edge_granting",
        help: "1 if the virtual router grants capacity, 0 if it is suspended",
        of: Value::Gauge(None, |c| {
            Some(f64::from(u8::from(c.state == State::Granting)))
        }),
    },
    Family {
        name: "xcp_edge_capacity",
        help: "Capacity that XCP traffic can use across the network without XCP routers",
        of: Value::Gauge(BYTES_PER_SECOND, |c| Some(c.link_bps as f64 / 8.0)),
    },
    Family {
        name: "xcp_edge_input",
        help: "XCP traffic that arrived from the network without XCP",
        of: Value::Gauge(BYTES_PER_SECOND, |c| Some(c.input_rate_bps as f64 / 8.0)),
    },
    Family {
        name: "xcp_edge_probe_age",
        help: "Time since the last probe arrived",
        of: Value::Gauge(SECONDS, |c| c.age_ms.map(|ms| ms / 1e3)),
    },
    Family {
        name: "xcp_edge_xcp_packets",
        help: "Packets to which the virtual router granted a delta",
        of: Value::Counter(|c| c.xcp_packets),
    },
];

const GATEWAY: &[Family<gateway::Status>] = &[
    Family {
        name: "xcp_gateway_connections",
        help: "Current number of connections of the gateway",
        of: Value::Gauge(None, |g| Some(g.connections.into())),
    },
    Family {
        name: "xcp_gateway_connections_max",
        help: "Maximum number of connections of the gateway",
        of: Value::Gauge(None, |g| Some(g.connections_max.into())),
    },
    Family {
        name: "xcp_gateway_accepted",
        help: "Connections that the gateway has accepted",
        of: Value::Counter(|g| g.accepted),
    },
    Family {
        name: "xcp_gateway_not_connected",
        help: "Accepted connections whose destination could not be reached",
        of: Value::Counter(|g| g.not_connected),
    },
    Family {
        name: "xcp_gateway_reset",
        help: "Accepted connections of which at least one side was reset",
        of: Value::Counter(|g| g.reset),
    },
    Family {
        name: "xcp_gateway_forwarded",
        help: "Connections that were forwarded and not split",
        of: Value::Counter(gateway::Status::forwarded),
    },
    Family {
        name: "xcp_gateway_rule_repairs",
        help: "Number of times the gateway's routing rule was missing and was added again",
        of: Value::Counter(|g| g.rule_repairs),
    },
    Family {
        name: "xcp_gateway_copied_bytes",
        help: "Bytes that the gateway has copied, both directions",
        of: Value::Counter(|g| g.bytes),
    },
];

const FALLBACKS: &str = "xcp_host_fallbacks";

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let labels = [[("version", env!("CARGO_PKG_VERSION"))]];
        let help = "Always 1; the label gives the version of xcp";
        let mut build =
            encoder.encode_descriptor("xcp_build_info", help, None, MetricType::Gauge)?;
        sample(&mut build, &labels[0], &ConstGauge::new(1))?;
        let on = ConstGauge::new(i64::from(self.host.is_some()));
        let help = "1 if XCP is on for this host's sockets, else 0";
        let enabled =
            encoder.encode_descriptor("xcp_host_enabled", help, None, MetricType::Gauge)?;
        on.encode(enabled)?;
        let host: Vec<(Labels, &Counters)> = self.host.iter().map(|c| (vec![], c)).collect();
        families(&mut encoder, HOST, &host)?;
        if let Some(counters) = &self.host {
            let help = "Connections that fell back to the default congestion control";
            let mut family =
                encoder.encode_descriptor(FALLBACKS, help, None, MetricType::Counter)?;
            for reason in Fallback::ALL {
                let count = ConstCounter::new(counters.fallbacks.of(reason));
                sample(&mut family, &[("reason", reason.name())], &count)?;
            }
        }
        let routers = self.routers.iter();
        let routers: Vec<(Labels, &Reading)> = routers
            .map(|r| (vec![("device", r.device.as_str())], r))
            .collect();
        families(&mut encoder, ROUTER, &routers)?;
        let upstream: Vec<String> = self.clouds.iter().map(upstream).collect();
        let clouds = self.clouds.iter().zip(&upstream);
        let clouds: Vec<(Labels, &cloud::Status)> = clouds
            .map(|(c, upstream)| {
                let labels = vec![("device", c.device.as_str()), ("upstream", upstream)];
                (labels, c)
            })
            .collect();
        families(&mut encoder, EDGE, &clouds)?;
        let gateway: Vec<(Labels, &gateway::Status)> =
            self.gateway.iter().map(|g| (vec![], g)).collect();
        families(&mut encoder, GATEWAY, &gateway)
    }
}

/// Encodes all metrics of one kind of things; nothing if there are none.
fn families<T>(
    encoder: &mut DescriptorEncoder,
    all: &[Family<T>],
    things: &[(Labels, &T)],
) -> Result<(), Error> {
    if things.is_empty() {
        return Ok(());
    }
    for Family { name, help, of } in all {
        let (kind, unit) = match of {
            Value::Gauge(unit, _) => (MetricType::Gauge, unit.map(|u| Unit::Other(u.into()))),
            Value::Counter(_) => (MetricType::Counter, None),
        };
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, thing) in things {
            match of {
                Value::Gauge(_, value) => {
                    if let Some(value) = value(thing) {
                        sample(&mut family, labels, &ConstGauge::new(value))?;
                    }
                }
                Value::Counter(value) => {
                    sample(&mut family, labels, &ConstCounter::new(value(thing)))?;
                }
            }
        }
    }
    Ok(())
}

fn sample(
    family: &mut MetricEncoder,
    labels: &[(&'static str, &str)],
    value: &impl EncodeMetric,
) -> Result<(), Error> {
    value.encode(family.encode_family(&labels)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> String {
        let cloud = cloud::Status {
            device: "eth1".into(),
            upstream: "192.0.2.1".parse().ok(),
            routers: 2,
            state: State::Granting,
            age_ms: Some(1_500.0),
            queue_delay_ms: 0.0,
            free_bps: 0,
            error_bps: 0,
            free_age_ms: None,
            link_bps: 50_000_000,
            input_rate_bps: 0,
            average_rtt_ms: 0.0,
            feedback_bps: 0,
            xcp_packets: 12,
        };
        let router = Reading {
            device: "eth0".into(),
            configured_Bps: Some(1_250_000),
            capacity_Bps: Some(1_250_000),
            measured_Bps: Some(1_000_000),
            ..Reading::default()
        };
        let snapshot = Snapshot {
            routers: vec![router],
            host: Some(Counters::default()),
            clouds: vec![cloud],
            gateway: Some(gateway::Status::default()),
        };
        snapshot.text()
    }

    #[test]
    fn samples_have_base_units_and_labels() {
        let text = all();
        for line in [
            "# TYPE xcp_router_measured_capacity_bytes_per_second gauge\n",
            "\nxcp_router_measured_capacity_bytes_per_second{device=\"eth0\"} 1000000.0\n",
            "\n# TYPE xcp_router_xcp_packets counter\nxcp_router_xcp_packets_total{device=\"eth0\"} 0\n",
            "\nxcp_host_connections_total 0\n",
            "\nxcp_host_fallbacks_total{reason=\"",
            "\nxcp_edge_probe_age_seconds{device=\"eth1\",upstream=\"192.0.2.1\"} 1.5\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    const HEAD: &str = "\
<!-- SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later -->
<!-- Generated by crates/xcp/src/metrics/families.rs -->
# Metrics

`xcp metrics` exports these in OpenMetrics; [monitoring](../howto/monitoring.md) shows how to collect them.
Rates are in bytes per second, times in seconds.

| metric | type | labels | meaning |
|---|---|---|---|
";

    /// The page for docs/, from the exported text.
    #[test]
    fn reference_page_is_current() {
        let text = all();
        let mut page = HEAD.to_owned();
        let lines: Vec<&str> = text.lines().collect();
        let value = |kind: &str, name: &str| {
            let start = format!("# {kind} {name} ");
            lines.iter().find_map(|line| line.strip_prefix(&start))
        };
        for line in &lines {
            let Some((name, kind)) = line
                .strip_prefix("# TYPE ")
                .and_then(|rest| rest.split_once(' '))
            else {
                continue;
            };
            let sample = match kind {
                "counter" => format!("{name}_total"),
                _ => name.to_owned(),
            };
            let help = value("HELP", name).unwrap_or_default();
            let labels = lines
                .iter()
                .find_map(|line| line.strip_prefix(&sample)?.strip_prefix('{'))
                .map(|rest| rest.split('}').next().unwrap_or_default())
                .unwrap_or_default();
            let labels: Vec<_> = labels
                .split(',')
                .filter_map(|label| label.split_once('='))
                .map(|(label, _)| format!("`{label}`"))
                .collect();
            page += &format!("| `{sample}` | {kind} | {} | {help} |\n", labels.join(", "));
        }
        xcp_testbed::assert_current("docs/reference/metrics.md", &page);
    }

    /// All names of metrics in a text.
    fn names(text: &str) -> BTreeSet<&str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c: char| !is_part(c));
        words.filter(|w| w.starts_with("xcp_")).collect()
    }

    #[test]
    fn rules_and_dashboard_use_only_metrics_that_exist() {
        let text = all();
        let there = names(&text);
        for (file, text) in [
            (
                "alerts.yml",
                include_str!("../../../../monitoring/alerts.yml"),
            ),
            (
                "grafana.json",
                include_str!("../../../../monitoring/grafana.json"),
            ),
        ] {
            let used = names(text);
            assert!(used.len() >= 7, "{file}: {used:?}");
            let missing: Vec<_> = used.difference(&there).collect();
            assert!(missing.is_empty(), "{file}: {missing:?}");
        }
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Computes the metrics from the samples. Means exclude the warm-up; drops and
//! retransmissions are of the whole run.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::delay::Delays;
use crate::experiment::{Check, Experiment, Flow, Link, Metric, Variant};
use crate::paths::{max_min_bps, rtt_s};
use crate::result::{
    CheckResult, FlowResult, KindResult, PeriodResult, QueueStats, Sample, Series, VariantResult,
};
use crate::topology::CONTROL;

/// A flow has converged when it is within this fraction of its fair share.
const CONVERGED: f64 = 0.10;
/// For convergence, goodput is averaged over spans of this many round trips...
const SPAN_RTTS: f64 = 5.0;
/// ... and at least this time.
const SPAN_MIN_S: f64 = 0.5;
/// A flow that starts this much later than the first one is a newcomer.
const NEWCOMER_S: f64 = 1.0;
/// Full frames of 1514 bytes carry 1400 to 1448 bytes of payload.
const PAYLOAD_SHARE: f64 = 1420.0 / 1514.0;

/// A histogram of the queue lengths after the warm-up.
#[derive(Clone, Debug, Default)]
pub struct QueueSamples {
    seen: Vec<u64>,
}

impl QueueSamples {
    pub fn add(&mut self, packets: u32) {
        let index = packets as usize;
        if self.seen.len() <= index {
            self.seen.resize(index + 1, 0);
        }
        self.seen[index] += 1;
    }

    fn stats(&self) -> QueueStats {
        let count: u64 = self.seen.iter().sum();
        if count == 0 {
            return QueueStats::default();
        }
        let sum: u64 = self.seen.iter().zip(0..).map(|(n, q)| n * q).sum();
        let mut left = (count * 99).div_ceil(100);
        let p99 = self.seen.iter().position(|n| {
            left = left.saturating_sub(*n);
            left == 0
        });
        QueueStats {
            mean: round(sum as f64 / count as f64, 3),
            p99: p99.unwrap_or(0) as f64,
            max: (self.seen.len() - 1) as f64,
        }
    }
}

/// The measurements of the bottleneck's queue.
#[derive(Clone, Debug, Default)]
pub struct QueueMeasurements {
    pub queue: QueueSamples,
    /// The queue that holds XCP packets: a separate one where there is one.
    pub xcp_queue: QueueSamples,
    pub delays: Delays,
    /// The longest time until the virtual routers of a killed daemon were
    /// suspended.
    pub suspension: Option<Duration>,
}

/// Computes all metrics of a variant, but not its checks: see [`checks`].
pub fn evaluate(
    experiment: &Experiment,
    variant: &Variant,
    starts: &[Duration],
    seen: &QueueMeasurements,
    series: &Series,
) -> VariantResult {
    let warm = series
        .samples
        .iter()
        .position(|s| s.time_s >= experiment.warmup_s)
        .unwrap_or(0);
    let after = &series.samples[warm..];
    let (first, last) = match (after.first(), after.last()) {
        (Some(first), Some(last)) => (first, last),
        _ => {
            return VariantResult {
                name: variant.name.clone(),
                ..VariantResult::default()
            }
        }
    };
    let time_s = (last.time_s - first.time_s).max(f64::MIN_POSITIVE);
    let carried = (last.carried_bytes - first.carried_bytes) as f64 * 8.0;
    let offered = offered_bits(experiment, first.time_s, last.time_s);
    let mut flows: Vec<FlowResult> = (0..experiment.flows.len())
        .map(|i| flow_result(experiment, starts, series, after, i, time_s))
        .collect();
    let fair = max_min_bps(experiment, first.time_s, last.time_s);
    for ((flow, result), fair) in experiment.flows.iter().zip(&mut flows).zip(fair) {
        let always = flow.start_s < experiment.warmup_s && flow.stop_s.is_none();
        if always && flow.udp_mbit.is_none() && fair > 0.0 {
            result.fair_share = Some(round(result.goodput_bps / (fair * PAYLOAD_SHARE), 4));
        }
    }
    let controlled: Vec<f64> = experiment
        .flows
        .iter()
        .zip(&flows)
        .filter(|(flow, _)| flow.udp_mbit.is_none())
        .map(|(_, result)| result.goodput_bps)
        .collect();
    VariantResult {
        name: variant.name.clone(),
        link_utilisation: round(carried / offered, 5),
        queue_packets: seen.queue.stats(),
        xcp_queue_packets: seen.xcp_queue.stats(),
        queue_delay_ms: seen.delays.stats(experiment.warmup_s),
        drops: last.drops,
        retransmissions: last
            .flows
            .iter()
            .map(|f| u64::from(f.retransmissions))
            .sum(),
        jain: round(jain(&controlled), 5),
        suspension_s: seen.suspension.map(|time| round(time.as_secs_f64(), 3)),
        periods: experiment
            .periods
            .iter()
            .filter_map(|p| period(experiment, starts, series, *p))
            .collect(),
        kinds: kinds(&experiment.flows, variant, &flows, &controlled),
        transfers: Vec::new(),
        pages: None,
        flows,
        checks: Vec::new(),
    }
}

/// Computes the metrics of a part of the run.
fn period(
    experiment: &Experiment,
    starts: &[Duration],
    series: &Series,
    [from_s, to_s]: [f64; 2],
) -> Option<PeriodResult> {
    let at = |time_s| series.samples.iter().rfind(|s| s.time_s <= time_s);
    let (first, last) = (at(from_s)?, at(to_s)?);
    let carried = (last.carried_bytes - first.carried_bytes) as f64 * 8.0;
    let offered = offered_bits(experiment, first.time_s, last.time_s);
    let runs = |i: &usize| {
        let flow = &experiment.flows[*i];
        let stop_s = flow.stop_s.unwrap_or(experiment.duration_s);
        flow.udp_mbit.is_none() && starts[*i].as_secs_f64() <= from_s && stop_s >= to_s
    };
    let received = |i: usize| last.flows[i].received_bytes - first.flows[i].received_bytes;
    let goodputs: Vec<f64> = (0..experiment.flows.len())
        .filter(runs)
        .map(|i| received(i) as f64)
        .collect();
    Some(PeriodResult {
        from_s,
        to_s,
        link_utilisation: round(ratio(carried, offered), 5),
        jain: round(jain(&goodputs), 5),
    })
}

/// Evaluates the experiment's checks of one variant, for a kernel release.
pub fn checks(experiment: &Experiment, result: &VariantResult, kernel: &str) -> Vec<CheckResult> {
    let checks = experiment.checks.iter();
    checks
        .filter(|c| c.is_of(&result.name) && c.is_on(kernel))
        .map(|c| check(c, result))
        .collect()
}

/// Bits that the bottleneck can carry between two times.
fn offered_bits(experiment: &Experiment, from_s: f64, to_s: f64) -> f64 {
    let link = experiment.bottleneck_link();
    link.map_or(0.0, |l: &Link| l.offered_bits(from_s, to_s))
}

/// The flows by kind, sorted by name. `controlled` are the goodputs of all TCP
/// flows.
fn kinds(
    flows: &[Flow],
    variant: &Variant,
    results: &[FlowResult],
    controlled: &[f64],
) -> Vec<KindResult> {
    let all: f64 = results.iter().map(|r| r.goodput_bps).sum();
    let mean = controlled.iter().sum::<f64>() / controlled.len().max(1) as f64;
    let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (flow, result) in flows.iter().zip(results) {
        let group = groups.entry(flow.kind(variant)).or_default();
        group.push(result.goodput_bps);
    }
    let group = |(kind, goodputs): (&str, Vec<f64>)| {
        let sum: f64 = goodputs.iter().sum();
        KindResult {
            kind: kind.to_owned(),
            flows: goodputs.len(),
            goodput_bps: sum,
            share: round(ratio(sum, all), 4),
            flow_share: round(ratio(sum / goodputs.len() as f64, mean), 4),
        }
    };
    groups.into_iter().map(group).collect()
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        part / whole
    } else {
        0.0
    }
}

fn flow_result(
    experiment: &Experiment,
    starts: &[Duration],
    series: &Series,
    after: &[Sample],
    i: usize,
    time_s: f64,
) -> FlowResult {
    let active: Vec<&Sample> = after
        .iter()
        .filter(|s| s.flows[i].cwnd_packets > 0)
        .collect();
    let mean = |value: fn(&Sample, usize) -> f64| {
        let sum = active.iter().fold(0.0, |sum, s| sum + value(s, i));
        sum / active.len().max(1) as f64
    };
    let received = |s: Option<&Sample>| s.map_or(0, |s| s.flows[i].received_bytes);
    let bytes = received(after.last()) - received(after.first());
    let convergence_s = convergence(experiment, starts, series, i);
    let flow = &experiment.flows[i];
    let found = starts.iter().min().map_or(0.0, Duration::as_secs_f64);
    let start_s = starts[i].as_secs_f64();
    let newcomer = flow.udp_mbit.is_none() && start_s > found + NEWCOMER_S;
    let rtt_s = Some(rtt_s(experiment, flow)).filter(|rtt_s| newcomer && *rtt_s > 0.0);
    let ran_s = flow.stop_s.unwrap_or(experiment.duration_s) - start_s;
    FlowResult {
        name: experiment.flows[i].name.clone(),
        control: None,
        goodput_bps: round(bytes as f64 * 8.0 / time_s, 0),
        cwnd_packets: round(mean(|s, i| f64::from(s.flows[i].cwnd_packets)), 2),
        cwnd_max_packets: active
            .iter()
            .map(|s| s.flows[i].cwnd_packets)
            .max()
            .unwrap_or(0),
        rtt_ms: round(mean(|s, i| f64::from(s.flows[i].rtt_us) / 1e3), 2),
        convergence_s,
        convergence_rtts: rtt_s.map(|rtt_s| round(convergence_s.unwrap_or(ran_s) / rtt_s, 1)),
        fair_share: None,
    }
}

/// Seconds from the flow's start until its goodput, averaged over spans, is
/// within 10 % of its fair share and stays there until other flows start or
/// stop.
fn convergence(
    experiment: &Experiment,
    starts: &[Duration],
    series: &Series,
    i: usize,
) -> Option<f64> {
    if experiment.flows[i].udp_mbit.is_some() {
        return None;
    }
    let start = starts[i].as_secs_f64();
    let until = experiment
        .flows
        .iter()
        .zip(starts)
        .flat_map(|(f, s)| [Some(s.as_secs_f64()), f.stop_s])
        .flatten()
        .filter(|t| *t > start + 1.0)
        .fold(experiment.duration_s, f64::min);
    let samples: Vec<&Sample> = series
        .samples
        .iter()
        .filter(|s| s.time_s >= start && s.time_s <= until)
        .collect();
    let step = samples.get(1)?.time_s - samples.first()?.time_s;
    let span_s = SPAN_MIN_S.max(SPAN_RTTS * rtt_s(experiment, &experiment.flows[i]));
    let span = (span_s / step).round().max(1.0) as usize;
    let mut converged = None;
    for pair in samples.windows(span + 1) {
        let share = |f: usize| {
            (pair[span].flows[f].received_bytes - pair[0].flows[f].received_bytes) as f64
        };
        let present = (0..experiment.flows.len()).filter(|f| {
            experiment.flows[*f].udp_mbit.is_none()
                && starts[*f].as_secs_f64() <= pair[0].time_s
                && experiment.flows[*f]
                    .stop_s
                    .is_none_or(|s| s >= pair[span].time_s)
        });
        let payload = payload_of(experiment, pair[0].time_s, pair[span].time_s);
        let fair = payload / present.count().max(1) as f64;
        let within = (share(i) - fair).abs() <= CONVERGED * fair;
        converged = match (within, converged) {
            (true, None) => Some(pair[0].time_s - start),
            (true, kept) => kept,
            (false, _) => None,
        };
    }
    converged.map(|s| round(s, 1))
}

/// Application bytes that the bottleneck can carry between two times.
fn payload_of(experiment: &Experiment, from_s: f64, to_s: f64) -> f64 {
    offered_bits(experiment, from_s, to_s) / 8.0 * PAYLOAD_SHARE
}

/// Jain's index: 1 if all are equal, 1 / n if one has everything.
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (values.len() as f64 * squares)
}

fn check(check: &Check, result: &VariantResult) -> CheckResult {
    let measured = match check.metric {
        Metric::LinkUtilisation => result.link_utilisation,
        Metric::Jain => result.jain,
        Metric::PeriodUtilisation => result.period_least(|p| p.link_utilisation).unwrap_or(0.0),
        Metric::PeriodJain => result.period_least(|p| p.jain).unwrap_or(0.0),
        Metric::QueueMean => result.queue_packets.mean,
        Metric::QueueP99 => result.queue_packets.p99,
        Metric::QueueMax => result.queue_packets.max,
        Metric::QueueDelayMean => result.queue_delay_ms.mean,
        Metric::QueueDelayP95 => result.queue_delay_ms.p95,
        Metric::QueueDelayMax => result.queue_delay_ms.max,
        Metric::XcpQueueMean => result.xcp_queue_packets.mean,
        Metric::XcpQueueP99 => result.xcp_queue_packets.p99,
        Metric::XcpQueueMax => result.xcp_queue_packets.max,
        Metric::FairShareMin => fair_shares(result).reduce(f64::min).unwrap_or(0.0),
        Metric::FairShareMax => fair_shares(result).fold(0.0, f64::max),
        Metric::ConvergenceRtts => {
            let all = result.flows.iter().filter_map(|f| f.convergence_rtts);
            all.fold(0.0, f64::max)
        }
        Metric::Share => of_kind(check, result, |k| k.share),
        Metric::FlowShare => of_kind(check, result, |k| k.flow_share),
        Metric::TransfersDone => result.transfers.iter().map(|t| t.done).sum::<usize>() as f64,
        Metric::TransferMeanS => {
            let done: usize = result.transfers.iter().map(|t| t.done).sum();
            let total_s: f64 = result.transfers.iter().map(|t| t.total_s).sum();
            round(ratio(total_s, done as f64), 3)
        }
        Metric::PageMeanS => result.pages.as_ref().map_or(f64::MAX, |p| p.mean_s),
        Metric::PageP95S => result.pages.as_ref().map_or(f64::MAX, |p| p.p95_s),
        Metric::CwndMax => largest(&result.flows),
        Metric::XcpFlows => {
            let flows = result.flows.iter();
            let xcp = flows.filter(|f| f.control.as_deref() == Some(CONTROL));
            xcp.count() as f64
        }
        Metric::Drops => result.drops as f64,
        Metric::Retransmissions => result.retransmissions as f64,
        Metric::SuspensionS => result.suspension_s.unwrap_or(f64::MAX),
    };
    let (sign, required, met) = match (check.min, check.max) {
        (Some(min), _) => (">=", min, measured >= min),
        (None, max) => {
            let max = max.unwrap_or(f64::INFINITY);
            ("<=", max, measured <= max)
        }
    };
    let kind = check.kind.as_ref();
    let kind = kind.map_or(String::new(), |k| format!(" of {k}"));
    CheckResult::new(
        format!("{}{kind} {sign} {required}", check.metric.name()),
        required,
        measured,
        met,
        check.known_gap.clone(),
    )
}

fn fair_shares(result: &VariantResult) -> impl Iterator<Item = f64> + '_ {
    result.flows.iter().filter_map(|f| f.fair_share)
}

/// The largest congestion window of any flow.
fn largest(flows: &[FlowResult]) -> f64 {
    let windows = flows.iter().map(|f| f.cwnd_max_packets);
    windows.max().unwrap_or(0).into()
}

/// A metric of the kind of flows that a check is about.
fn of_kind(check: &Check, result: &VariantResult, figure: fn(&KindResult) -> f64) -> f64 {
    let mut kinds = result.kinds.iter();
    let found = kinds.find(|k| check.kind.as_ref() == Some(&k.kind));
    found.map_or(0.0, figure)
}

/// Rounds a value to `digits` decimals.
pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{FlowSample, Verdict};

    /// 10 Mb/s for 5 s, then 2 Mb/s; one flow each of XCP, CUBIC and UDP.
    const MIXED: &str = r#"
name = "mixed"
source = "a test"
about = "three kinds"
duration_s = 10
warmup_s = 2
periods = [[1, 3], [8, 10]]
bottleneck = ["r", "d"]

[[link]]
between = ["r", "d"]
rates = [[0, 10], [5, 2]]
queue_packets = 100

[[flow]]
name = "1"
from = "r"
to = "d"

[[flow]]
name = "2"
from = "r"
to = "d"
control = "cubic"

[[flow]]
name = "3"
from = "r"
to = "d"
udp_mbit = 1

[[variant]]
name = "v"
control = "xcp"
queue = "xcp"

[[check]]
variant = "v"
metric = "share"
kind = "udp"
min = 0.25

[[check]]
variant = "v"
kernels = ["6.1", "5.18"]
metric = "jain"
min = 1

[[check]]
variant = "v"
kernels = ["6.12", "6.18"]
metric = "flow_share"
kind = "cubic"
max = 0.4

[[check]]
variant = "v"
metric = "jain"
min = 0.9
known_gap = "XCP takes more"

[[check]]
variant = "v"
metric = "drops"
max = 0
known_gap = "the queue is short"
"#;

    #[test]
    fn metrics_and_checks_follow_from_the_samples() {
        let experiment = Experiment::parse("x.toml", MIXED).expect("valid");
        // from 2 s on the flows get 300, 100 and 200 kB/s, and the link carries
        // 640 kB/s
        let sample = |tenth: u64| Sample {
            time_s: tenth as f64 / 10.0,
            carried_bytes: tenth * 64_000,
            flows: [30_000, 10_000, 20_000]
                .map(|bytes| FlowSample {
                    received_bytes: tenth.saturating_sub(20) * bytes,
                    ..FlowSample::default()
                })
                .to_vec(),
            ..Sample::default()
        };
        let series = Series {
            samples: (0..=100).map(sample).collect(),
            ..Series::default()
        };
        let starts = [Duration::ZERO; 3];
        let variant = &experiment.variants[0];
        let result = evaluate(
            &experiment,
            variant,
            &starts,
            &QueueMeasurements::default(),
            &series,
        );
        // 3 s of 10 Mb/s and 5 s of 2 Mb/s
        assert_eq!(result.link_utilisation, 640_000.0 * 8.0 * 8.0 / 40e6);
        let kinds: Vec<_> = result
            .kinds
            .iter()
            .map(|k| {
                (
                    k.kind.as_str(),
                    k.flows,
                    k.goodput_bps,
                    k.share,
                    k.flow_share,
                )
            })
            .collect();
        assert_eq!(
            kinds,
            [
                ("cubic", 1, 0.8e6, 0.1667, 0.5),
                ("udp", 1, 1.6e6, 0.3333, 1.0),
                ("xcp", 1, 2.4e6, 0.5, 1.5),
            ]
        );
        // of goodputs 3 to 1, without UDP
        assert_eq!(result.jain, 0.8);
        // nothing was received in the first half of the first period
        let periods = result.periods.iter();
        let periods: Vec<_> = periods.map(|p| (p.link_utilisation, p.jain)).collect();
        assert_eq!(periods, [(0.512, 0.8), (2.56, 0.8)]);
        assert!(result.checks.is_empty());
        let checks = checks(&experiment, &result, "6.18.5-cloud");
        let checks: Vec<_> = checks
            .iter()
            .map(|c| (c.name.as_str(), c.verdict, c.ok, c.known_gap.as_deref()))
            .collect();
        assert_eq!(
            checks,
            [
                ("share of udp >= 0.25", Verdict::Ok, true, None),
                ("flow_share of cubic <= 0.4", Verdict::Failed, false, None),
                (
                    "jain >= 0.9",
                    Verdict::KnownGap,
                    true,
                    Some("XCP takes more")
                ),
                (
                    "drops <= 0",
                    Verdict::GapClosed,
                    false,
                    Some("the queue is short")
                ),
            ]
        );
        assert_eq!(result.flows[2].convergence_s, None);
    }

    #[test]
    fn jain_is_one_if_equal_and_one_nth_if_one_flow_has_all() {
        assert_eq!(jain(&[3.0, 3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), 0.0);
    }

    #[test]
    fn queue_percentile_is_the_smallest_that_covers_99_of_100() {
        let mut queue = QueueSamples::default();
        for _ in 0..99 {
            queue.add(2);
        }
        queue.add(50);
        let stats = queue.stats();
        assert_eq!((stats.mean, stats.p99, stats.max), (2.48, 2.0, 50.0));
        queue.add(50);
        assert_eq!(queue.stats().p99, 50.0);
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The report of a run: one self-contained HTML page with the figures, the checks, and
//! charts over time.

mod chart;

use crate::result::{FlowResult, RunResult, Series, VariantResult, Verdict, FLOWS_IN_FULL};
use crate::{Error, Result};
pub use chart::{Chart, Line};

/// Averaging time of the throughput.
const SPAN_S: f64 = 1.0;
const STYLE: &str = include_str!("report/style.css");

/// The content of a report.
pub struct ReportInput<'a> {
    pub about: &'a str,
    pub source: &'a str,
    /// The bottleneck's rate.
    pub capacity_bps: f64,
    pub result: &'a RunResult,
    /// The samples of each variant, by its name.
    pub series: &'a [(String, Series)],
}

/// Generates the page.
///
/// # Errors
/// A chart cannot be drawn.
pub fn render(input: &ReportInput) -> Result<String> {
    let result = input.result;
    let scales = Scales::of(input);
    let once = have_same_flows(&result.variants);
    let mut charts = String::from("<h2>Over time</h2>\n");
    if once {
        charts += &legend(result.variants.first().map_or(&[][..], |v| &v.flows));
    }
    for (variant, series) in input.series {
        let own = result.variants.iter().find(|v| v.name == *variant);
        let own = own.filter(|_| !once).map(|v| legend(&v.flows));
        charts += &section(input, variant, &own.unwrap_or_default(), series, &scales)?;
    }
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{name}</title>\n<style>\n{STYLE}</style>\n\
         <h1>{name}</h1>\n{about}\
         <p class=\"weak\">{source}; {title}</p>\n\
         {table}{checks}{captures}{charts}</html>\n",
        name = escape(&result.experiment),
        about = about(input.about),
        source = escape(input.source),
        title = escape(&result.title()),
        table = table(result),
        checks = checks(result),
        captures = captures(result),
    ))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The sentence about the experiment, if there is one.
fn about(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    if text.is_empty() {
        return String::new();
    }
    format!("<p>{}.</p>\n", escape(text))
}

fn row(cell: &str, cells: &[String]) -> String {
    let cells: Vec<String> = cells
        .iter()
        .map(|text| format!("<{cell}>{text}</{cell}>"))
        .collect();
    format!("<tr>{}</tr>\n", cells.concat())
}

fn table(result: &RunResult) -> String {
    let mut rows = String::new();
    for (i, cells) in result.table().into_iter().enumerate() {
        let cells: Vec<String> = cells.iter().map(|text| escape(text)).collect();
        rows += &row(if i == 0 { "th" } else { "td" }, &cells);
    }
    format!("<div class=\"wide\"><table>\n{rows}</table></div>\n")
}

fn checks(result: &RunResult) -> String {
    let lines: String = result
        .variants
        .iter()
        .flat_map(|v| v.checks.iter().map(move |c| (v, c)))
        .map(|(v, c)| {
            let class = match c.verdict {
                Verdict::Ok => "ok",
                Verdict::Failed | Verdict::GapClosed => "failed",
                Verdict::KnownGap => "gap",
            };
            let note = c.note().map_or(String::new(), |n| format!("; {n}"));
            format!(
                "<li><b class=\"{class}\">{}</b> {}: {}, measured {}{}</li>\n",
                c.verdict.mark(),
                escape(&v.name),
                escape(&c.name),
                c.measured,
                escape(&note)
            )
        })
        .collect();
    if lines.is_empty() {
        return lines;
    }
    format!("<h2>Checks</h2>\n<ul class=\"checks\">\n{lines}</ul>\n")
}

fn captures(result: &RunResult) -> String {
    let lines: String = result
        .captures
        .iter()
        .map(|capture| {
            let file = escape(&capture.file);
            let missing = match capture.missing {
                0 => String::new(),
                some => format!(", <b class=\"failed\">{some} missing</b>"),
            };
            format!(
                "<li><a href=\"{file}\">{file}</a>: {} packets{missing}</li>\n",
                capture.packets
            )
        })
        .collect();
    if lines.is_empty() {
        return lines;
    }
    format!("<h2>Packets</h2>\n<ul>\n{lines}</ul>\n")
}

/// The legend: the colours of the flows.
fn legend(flows: &[FlowResult]) -> String {
    if flows.len() > FLOWS_IN_FULL {
        return format!("<p>{} flows, a line each.</p>\n", flows.len());
    }
    let names: String = flows
        .iter()
        .enumerate()
        .map(|(i, flow)| {
            let colour = chart::colour(i);
            let name = escape(&flow.name);
            format!("<span style=\"color:{colour}\">&#9632;</span> flow {name}&ensp;\n")
        })
        .collect();
    format!("<p>{names}</p>\n")
}

/// Whether all variants have the same flows, so that one legend is enough.
fn have_same_flows(variants: &[VariantResult]) -> bool {
    let names = |v: &VariantResult| v.flows.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
    variants
        .windows(2)
        .all(|pair| names(&pair[0]) == names(&pair[1]))
}

/// The scales of the charts, the same for all variants so that they can be compared.
struct Scales {
    seconds: f64,
    mbps: f64,
    queue: f64,
}

impl Scales {
    fn of(input: &ReportInput) -> Self {
        let samples = || input.series.iter().flat_map(|(_, s)| &s.samples);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let throughput = &mut input.series.iter().flat_map(|(_, s)| {
            (0..flow_count(s)).flat_map(|flow| throughput(s, flow).into_iter().map(|p| p.1))
        });
        Self {
            seconds: most(&mut samples().map(|s| s.time_s)),
            mbps: most(throughput),
            queue: most(&mut samples().map(|s| f64::from(s.queue_packets))),
        }
    }
}

fn flow_count(series: &Series) -> usize {
    series.samples.last().map_or(0, |s| s.flows.len())
}

/// The charts of one variant.
fn section(
    input: &ReportInput,
    variant: &str,
    legend: &str,
    series: &Series,
    scales: &Scales,
) -> Result<String> {
    let flows = flow_count(series);
    let over_time = |value: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
        let times = series.samples.iter().map(|s| s.time_s);
        times.enumerate().map(|(i, t)| (t, value(i))).collect()
    };
    let cwnd = |flow: usize| {
        over_time(&|i| {
            let flow = series.samples[i].flows.get(flow);
            flow.map_or(0.0, |f| f64::from(f.cwnd_packets))
        })
    };
    let of_flows = |points: &dyn Fn(usize) -> Vec<(f64, f64)>| -> Vec<Line> {
        let lines = (0..flows).map(|flow| Line {
            colour: flow,
            points: points(flow),
        });
        lines.collect()
    };
    let queue = Line {
        colour: 0,
        points: over_time(&|i| f64::from(series.samples[i].queue_packets)),
    };
    let charts = [
        Chart {
            title: "throughput, Mb/s (dashed: fair share)",
            seconds: scales.seconds,
            top: Some(scales.mbps),
            guide: (flows > 0 && !input.result.varies)
                .then(|| input.capacity_bps / 1e6 / flows as f64),
            lines: of_flows(&|flow| throughput(series, flow)),
        },
        Chart {
            title: "congestion window, packets",
            seconds: scales.seconds,
            top: None,
            guide: None,
            lines: of_flows(&cwnd),
        },
        Chart {
            title: "queue at the bottleneck, packets",
            seconds: scales.seconds,
            top: Some(scales.queue),
            guide: None,
            lines: vec![queue],
        },
    ];
    let mut figures = String::new();
    for chart in charts {
        let svg = chart
            .svg()
            .map_err(|e| Error::new("chart", e, "report this"))?;
        figures += &format!(
            "<figure><figcaption>{}</figcaption>{svg}</figure>\n",
            chart.title
        );
    }
    let name = escape(variant);
    Ok(format!(
        "<h3>{name}</h3>\n{legend}<div class=\"charts\">\n{figures}</div>\n"
    ))
}

/// The rate at which a flow's receiver read in the last second, Mb/s, for each sample.
fn throughput(series: &Series, flow: usize) -> Vec<(f64, f64)> {
    let samples = &series.samples;
    let bytes = |i: usize| samples[i].flows.get(flow).map_or(0, |f| f.received_bytes);
    let mut first = 0;
    let mut points = Vec::new();
    for (i, sample) in samples.iter().enumerate() {
        while first + 1 < i && sample.time_s - samples[first + 1].time_s >= SPAN_S {
            first += 1;
        }
        let span_s = sample.time_s - samples[first].time_s;
        if span_s > 0.0 {
            let got = bytes(i).saturating_sub(bytes(first));
            points.push((sample.time_s, got as f64 * 8.0 / span_s / 1e6));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{CheckResult, FlowSample, QueueStats, Sample};

    fn check(name: &str, measured: f64, met: bool, known_gap: Option<&str>) -> CheckResult {
        CheckResult::new(name.into(), 0.0, measured, met, known_gap.map(String::from))
    }

    fn run(names: &[&str], flow: &str) -> RunResult {
        let variant = |name: &&str| VariantResult {
            name: (*name).into(),
            link_utilisation: 0.98765,
            queue_packets: QueueStats {
                mean: 1.25,
                p99: 4.0,
                max: 9.0,
            },
            drops: 31,
            retransmissions: 12,
            jain: 0.99991,
            flows: vec![
                FlowResult {
                    name: flow.into(),
                    control: None,
                    goodput_bps: 2_345_678.0,
                    cwnd_packets: 100.0,
                    cwnd_max_packets: 120,
                    rtt_ms: 500.0,
                    convergence_s: None,
                    convergence_rtts: None,
                    fair_share: None,
                };
                4
            ],
            checks: vec![
                check("drops <= 0", 31.0, false, None),
                check("jain >= 0.9", 0.99991, true, None),
                check("queue_packets.mean <= 1", 1.25, false, Some("<b>why")),
                check("queue_packets.max <= 9", 9.0, true, Some("why")),
            ],
            ..VariantResult::default()
        };
        RunResult {
            experiment: "<b>x".into(),
            seed: 7,
            wire: None,
            ip: None,
            kernel: "6.18.5".into(),
            variants: names.iter().map(variant).collect(),
            ok: false,
            varies: false,
            captures: Vec::new(),
        }
    }

    /// Samples that vary much and compress badly.
    fn series(samples: usize) -> Series {
        let flow = |i: usize, f: usize| FlowSample {
            received_bytes: (i * 31_250 + i * i % (f + 2) * 9_000) as u64,
            cwnd_packets: ((i * (f + 7)) % 400) as u32,
            rtt_us: 500_000,
            retransmissions: 0,
        };
        Series {
            samples: (0..samples)
                .map(|i| Sample {
                    time_s: i as f64 / 10.0,
                    queue_packets: (i * 37 % 800) as u32,
                    flows: (0..4).map(|f| flow(i, f)).collect(),
                    ..Sample::default()
                })
                .collect(),
            ..Series::default()
        }
    }

    fn page(names: &[&str], flow: &str, samples: usize) -> String {
        let all: Vec<(String, Series)> = names
            .iter()
            .map(|name| ((*name).to_owned(), series(samples)))
            .collect();
        render(&ReportInput {
            about: "a & b",
            source: "a paper",
            capacity_bps: 10e6,
            result: &run(names, flow),
            series: &all,
        })
        .expect("renders")
    }

    #[test]
    fn page_contains_figures_and_checks() {
        let page = page(&["xcp", "cubic"], "1", 100);
        for part in [
            "<td>xcp</td><td>0.988</td><td>2.35 2.35 2.35 2.35</td><td>0.9999</td>",
            "<td>1.2 / 4 / 9</td><td>31</td><td>12</td>",
            "<b class=\"failed\">FAILED</b> cubic: drops &lt;= 0, measured 31</li>",
            "<b class=\"ok\">ok</b> cubic: jain &gt;= 0.9, measured 0.99991</li>",
            "<b class=\"gap\">gap</b> cubic: queue_packets.mean &lt;= 1, measured 1.25; \
             known gap: &lt;b&gt;why</li>",
            "<b class=\"failed\">FAILED</b> cubic: queue_packets.max &lt;= 9, measured 9; \
             the known gap has closed: remove known_gap from the check</li>",
            "seed 7, Linux 6.18.5",
            "<p>a &amp; b.</p>",
        ] {
            assert!(page.contains(part), "{part}\n{}", &page[..3000]);
        }
        assert_eq!(page.matches("<svg").count(), 6);
    }

    #[test]
    fn page_is_self_contained_and_small() {
        let page = page(&["a", "b", "c", "d", "e", "f"], "1", 1001);
        for part in ["http", "<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(part), "{part}");
        }
        assert!(page.len() < 1_000_000, "{}", page.len());
    }

    #[test]
    fn variants_with_the_same_flows_share_a_legend() {
        let legends = |result: &RunResult| {
            let series: Vec<_> = result
                .variants
                .iter()
                .map(|v| (v.name.clone(), series(20)))
                .collect();
            let input = ReportInput {
                about: "",
                source: "",
                capacity_bps: 10e6,
                result,
                series: &series,
            };
            render(&input)
                .expect("renders")
                .matches("</span> flow ")
                .count()
        };
        let mut result = run(&["a", "b"], "1");
        assert_eq!(legends(&result), 4);
        result.variants[1].flows.truncate(2);
        assert_eq!(legends(&result), 4 + 2);
    }

    #[test]
    fn names_are_escaped() {
        let page = page(&["<script>alert(1)</script>"], "\"><img>", 20);
        assert!(!page.contains("<script>") && !page.contains("<img>"));
        assert!(page.contains("<h3>&lt;script&gt;"));
        assert!(page.contains("<title>&lt;b&gt;x</title>"));
    }

    #[test]
    fn description_is_one_sentence_or_empty() {
        assert_eq!(about("a < b"), "<p>a &lt; b.</p>\n");
        assert_eq!(about("a."), "<p>a.</p>\n");
        assert_eq!(about(" "), "");
    }

    #[test]
    fn few_or_invalid_samples_can_be_drawn() {
        for samples in 0..3 {
            page(&["x"], "1", samples);
        }
        let mut odd = series(3);
        odd.samples[1].time_s = f64::NAN;
        odd.samples[2].flows.clear();
        render(&ReportInput {
            about: "",
            source: "",
            capacity_bps: f64::NAN,
            result: &run(&[], "1"),
            series: &[("x".into(), odd)],
        })
        .expect("renders");
    }

    #[test]
    fn every_line_is_drawn_and_queue_charts_share_a_scale() {
        let full = series(100);
        let mut empty = full.clone();
        for sample in &mut empty.samples {
            sample.queue_packets = 0;
        }
        let page = render(&ReportInput {
            about: "",
            source: "",
            capacity_bps: 10e6,
            result: &run(&["full", "empty"], "1"),
            series: &[("full".into(), full), ("empty".into(), empty)],
        })
        .expect("renders");
        let queues: Vec<&str> = page.split("queue at the bottleneck").skip(1).collect();
        assert_eq!(queues.len(), 2);
        for chart in queues {
            let chart = chart.split("</svg>").next().unwrap_or_default();
            assert!(chart.contains("\n600\n"), "{chart}");
            assert!(chart.contains(&chart::colour(0)), "{chart}");
        }
    }

    #[test]
    fn burst_affects_throughput_for_a_second() {
        let sample = |i: u32| Sample {
            time_s: f64::from(i) / 10.0,
            flows: vec![FlowSample {
                received_bytes: if i < 20 { 0 } else { 125_000 },
                ..FlowSample::default()
            }],
            ..Sample::default()
        };
        let burst = Series {
            samples: (0..40).map(sample).collect(),
            ..Series::default()
        };
        let seen = throughput(&burst, 0).iter().filter(|p| p.1 > 0.5).count();
        assert!((10..=11).contains(&seen), "{seen}");
    }

    #[test]
    fn throughput_is_averaged_over_a_second() {
        let points = throughput(
            &Series {
                samples: (0..40)
                    .map(|i| Sample {
                        time_s: f64::from(i) / 10.0,
                        flows: vec![FlowSample {
                            received_bytes: 12_500 * i as u64,
                            ..FlowSample::default()
                        }],
                        ..Sample::default()
                    })
                    .collect(),
                ..Series::default()
            },
            0,
        );
        assert_eq!(points.len(), 39);
        assert!(
            points.iter().all(|p| (p.1 - 1.0).abs() < 1e-9),
            "{points:?}"
        );
    }
}

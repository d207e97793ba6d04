// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Formats the table of a lab run and its checks.

use xcp_lab::result::{CheckResult, RunResult, VariantResult, Verdict};

use xcp_cli::out::Style;
use xcp_cli::table;

/// Formats one row per variant, then the checks.
pub fn render(result: &RunResult, style: &Style) -> String {
    let table = table::columns(&result.table(), 1);
    let (head, body) = table.split_once('\n').unwrap_or_default();
    let title = result.title();
    let checks = checks(result, style) + &captures(result);
    let head = style.bold(head);
    format!("{}\n\n{head}\n{body}{checks}", style.bold(&title))
}

fn checks(result: &RunResult, style: &Style) -> String {
    let all = || {
        let of = |v: &'_ VariantResult| v.checks.len();
        result.variants.iter().filter(move |v| of(v) > 0)
    };
    let rows: Vec<Vec<String>> = all()
        .flat_map(|v| v.checks.iter().map(|c| line(&v.name, c)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let marks = all().flat_map(|v| &v.checks).map(|c| mark(c, style));
    let lines = table::columns(&rows, usize::MAX);
    let lines: Vec<String> = marks
        .zip(lines.lines())
        .map(|(mark, line)| format!("{mark}  {line}\n"))
        .collect();
    format!("\n{}", lines.concat())
}

/// The word before a check, padded to the same width.
pub fn mark(check: &CheckResult, style: &Style) -> String {
    let mark = format!("{:<6}", check.verdict.mark());
    match check.verdict {
        Verdict::Ok => style.good(&mark),
        Verdict::Failed | Verdict::GapClosed => style.bad(&mark),
        Verdict::KnownGap => style.weak(&mark),
    }
}

fn captures(result: &RunResult) -> String {
    let mut text = String::new();
    for (i, capture) in result.captures.iter().enumerate() {
        let gap = if i == 0 { "\n" } else { "" };
        let missing = match capture.missing {
            0 => String::new(),
            some => format!(", {some} missing"),
        };
        let (file, packets) = (&capture.file, capture.packets);
        text += &format!("{gap}{file}: {packets} packets{missing}\n");
    }
    text
}

fn line(variant: &str, check: &CheckResult) -> Vec<String> {
    let mut cells = vec![variant.to_owned()];
    cells.extend(described(check));
    cells
}

/// The condition of a check, the measured value, and a note if there is one.
pub fn described(check: &CheckResult) -> Vec<String> {
    let measured = format!("measured {}", short(check.measured));
    let mut cells = vec![check.name.clone(), measured];
    cells.extend(check.note());
    cells
}

/// Formats a number with up to four decimals and without trailing zeros.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use xcp_lab::result::{
        CaptureFile, DelayStats, FlowResult, KindResult, PeriodResult, QueueStats, TransferResult,
    };

    fn check(met: bool, known_gap: Option<&str>) -> CheckResult {
        let name = "link_utilisation >= 0.98".into();
        CheckResult::new(name, 0.98, 0.9871, met, known_gap.map(String::from))
    }

    fn variant(name: &str, flows: usize, ok: bool) -> VariantResult {
        VariantResult {
            name: name.into(),
            link_utilisation: 0.9871,
            queue_packets: QueueStats {
                mean: 1.25,
                p99: 4.0,
                max: 9.0,
            },
            drops: 0,
            retransmissions: 12,
            jain: 0.99995,
            flows: (0..flows)
                .map(|n| FlowResult {
                    name: n.to_string(),
                    control: None,
                    goodput_bps: 2.4e6 + n as f64 * 1e4,
                    cwnd_packets: 100.0,
                    cwnd_max_packets: 120,
                    rtt_ms: 500.0,
                    convergence_s: None,
                    convergence_rtts: None,
                    fair_share: None,
                })
                .collect(),
            checks: vec![check(ok, None)],
            ..VariantResult::default()
        }
    }

    fn result(variants: Vec<VariantResult>) -> RunResult {
        RunResult {
            experiment: "zh-validation".into(),
            seed: 1,
            wire: None,
            ip: None,
            kernel: "6.18.5".into(),
            variants,
            ok: true,
            varies: false,
            captures: Vec::new(),
        }
    }

    #[test]
    fn summary_has_a_row_per_variant_and_its_checks() {
        let text = render(
            &result(vec![variant("xcp", 4, true), variant("cubic", 4, false)]),
            &Style(false),
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "zh-validation, seed 1, Linux 6.18.5");
        assert!(lines[2].contains("utilisation"));
        for cell in ["xcp", "0.987", "2.40 2.41 2.42 2.43", "1.2 / 4 / 9", "12"] {
            assert!(lines[3].contains(cell), "{}", lines[3]);
        }
        assert_eq!(lines[2].chars().count(), lines[3].chars().count());
        assert_eq!(
            lines[6],
            "ok      xcp    link_utilisation >= 0.98  measured 0.9871"
        );
        assert_eq!(
            lines[7],
            "FAILED  cubic  link_utilisation >= 0.98  measured 0.9871"
        );
    }

    #[test]
    fn known_gaps_are_shown_with_their_reason_and_closed_ones_fail() {
        let mut marked = variant("xcp", 4, true);
        marked.checks.push(check(false, None));
        marked.checks.push(check(false, Some("veth is slow")));
        marked.checks.push(check(true, Some("veth is slow")));
        let lines = |colour| {
            let text = render(&result(vec![marked.clone()]), &Style(colour));
            text.lines().skip(5).map(String::from).collect::<Vec<_>>()
        };
        let figure = "xcp  link_utilisation >= 0.98  measured 0.9871";
        let closed = "the known gap has closed: remove known_gap from the check";
        assert_eq!(
            lines(false),
            [
                format!("ok      {figure}"),
                format!("FAILED  {figure}"),
                format!("gap     {figure}  known gap: veth is slow"),
                format!("FAILED  {figure}  {closed}"),
            ]
        );
        let gap = &lines(true)[2];
        assert!(gap.starts_with("\x1b[33mgap   \x1b[0m  xcp"), "{gap:?}");
    }

    #[test]
    fn captures_are_listed() {
        let mut result = result(vec![variant("xcp", 4, true)]);
        let capture = |missing| CaptureFile {
            file: "xcp-r-d.pcap".into(),
            packets: 7,
            missing,
        };
        result.captures = vec![capture(0), capture(2)];
        let text = render(&result, &Style(false));
        let end = "\n\nxcp-r-d.pcap: 7 packets\nxcp-r-d.pcap: 7 packets, 2 missing\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn goodput_of_many_flows_is_a_range() {
        let table = result(vec![variant("xcp", 32, true)]).table();
        assert_eq!(table[1][2], "2.40 to 2.71 (32 flows)");
    }

    #[test]
    fn optional_columns_appear_when_a_run_has_them() {
        let mut mixed = result(vec![variant("xcp", 2, true)]);
        mixed.varies = true;
        mixed.variants[0].queue_delay_ms = DelayStats {
            mean: 12.4,
            p95: 88.6,
            max: 140.0,
        };
        let kind = |kind: &str, share| KindResult {
            kind: kind.into(),
            share,
            ..KindResult::default()
        };
        mixed.variants[0].kinds = vec![kind("cubic", 0.4812), kind("xcp", 0.5188)];
        let file = |from_bytes, total_s| TransferResult {
            from_bytes,
            done: 4,
            total_s,
            ..TransferResult::default()
        };
        mixed.variants[0].transfers = vec![file(10_000, 1.0), file(30_000, 2.0)];
        let period = |link_utilisation, jain| PeriodResult {
            link_utilisation,
            jain,
            ..PeriodResult::default()
        };
        mixed.variants[0].periods = vec![period(0.9, 1.0), period(0.95, 0.99)];
        let table = mixed.table();
        for (name, cell) in [
            ("share of goodput", "cubic 0.481, xcp 0.519"),
            ("queue mean / p95 / max (ms)", "12 / 89 / 140"),
            (
                "seconds per file, by its size",
                "0.25 from 10 KB, 0.50 from 30 KB",
            ),
            ("least of the periods: utilisation, Jain", "0.900, 0.9900"),
            ("drops", "0"),
        ] {
            let column = table[0].iter().position(|head| head == name);
            assert_eq!(table[1][column.expect(name)], cell);
        }
    }

    #[test]
    fn numbers_have_no_trailing_zeros() {
        assert_eq!(short(5.0), "5");
        assert_eq!(short(0.98), "0.98");
        assert_eq!(short(0.0), "0");
    }
}

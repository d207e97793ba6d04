// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The subcommands of `xcp lab`.

mod all;
mod cache;
mod doctor;
mod exec;
mod progress;
mod summary;
mod trace;

use std::iter;
use std::process::ExitCode;

use xcp_lab::{Check, CostReport, Entry, Options, Row, Subject, TaskOptions};

use progress::Progress;
use xcp_cli::cli::{LabAction, LabBench, LabCheck, LabRun};
use xcp_cli::failure::{print_error, Failure};
use xcp_cli::out::{Out, Style};
use xcp_cli::table;

pub fn act(action: LabAction, out: &Out) -> Result<ExitCode, Failure> {
    match action {
        LabAction::Doctor => doctor::act(out),
        LabAction::List => {
            let all = xcp_lab::list();
            out.print(&all, |style| describe(&all, style))?;
            Ok(ExitCode::SUCCESS)
        }
        LabAction::Run(asked) => run(asked, out),
        LabAction::All(asked) => all::act(asked, out),
        LabAction::Verify(asked) => all::verify(&asked, out),
        LabAction::Cache(asked) => cache::act(&asked, out),
        LabAction::Trace(asked) => trace::act(&asked, out),
        LabAction::Check(asked) => check(&asked, out),
        LabAction::Bench(asked) => bench(&asked, out),
        LabAction::Exec(asked) => exec::act(asked),
    }
}

fn run(asked: LabRun, out: &Out) -> Result<ExitCode, Failure> {
    let options = Options {
        experiment: asked.experiment,
        seed: asked.seed,
        variants: asked.variants,
        wire: asked.wire,
        ip: asked.ip,
        kernel: asked.kernel.name,
        native: asked.native,
        fresh: asked.fresh,
        points: asked.points,
        out: asked.out,
    };
    let progress = Progress::new();
    let outcome =
        xcp_lab::run(&options, &|news| progress.on_progress(news)).map_err(interruptible)?;
    drop(progress);
    out.print(&outcome.result, |style| {
        let table = summary::render(&outcome.result, style);
        format!("{table}\nReport: {}\n", outcome.report.display())
    })?;
    for capture in outcome.result.captures.iter().filter(|c| c.missing > 0) {
        let (file, missing) = (&capture.file, capture.missing);
        print_error(&format!(
            "xcp: {file}: {missing} packets are missing\n  help: capture at fewer points, or a \
             shorter or slower run"
        ));
    }
    Ok(judged(outcome.result.ok))
}

fn interruptible(e: xcp_lab::Error) -> Failure {
    let failure = Failure::from(e);
    if xcp_lab::interrupted() {
        failure.interrupted()
    } else {
        failure
    }
}

fn check(asked: &LabCheck, out: &Out) -> Result<ExitCode, Failure> {
    if asked.what == "programs" {
        without_effect(asked.cycles, "--cycles", "qdisc")?;
        return check_programs(asked, out);
    }
    without_effect(asked.processors, "--processors", "programs")?;
    let progress = Progress::new();
    let options = task_options(asked.kernel.name.clone(), asked.fresh);
    let cycles = asked.cycles.unwrap_or(1000);
    let checks = xcp_lab::check_qdisc(&options, cycles, &|news| progress.on_progress(news))
        .map_err(interruptible)?;
    drop(progress);
    out.print(&checks, |_| described(&checks))?;
    Ok(judged(checks.iter().all(|c| c.ok)))
}

/// Refuses an option of the other check.
fn without_effect(given: Option<u32>, option: &str, check: &str) -> Result<(), Failure> {
    let remedy = format!("leave it out: it belongs to xcp lab check {check}");
    match given {
        Some(_) => Err(Failure::new(option, "has no effect here", remedy).bad_usage()),
        None => Ok(()),
    }
}

fn task_options(kernel: Option<String>, fresh: bool) -> TaskOptions {
    TaskOptions { kernel, fresh }
}

fn described(checks: &[Check]) -> String {
    let line = |c: &Check| {
        let word = if c.ok { "ok" } else { "FAILED" };
        format!("{word:<8}{}: {}\n", c.name, c.seen)
    };
    checks.iter().map(line).collect()
}

fn judged(ok: bool) -> ExitCode {
    if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn check_programs(asked: &LabCheck, out: &Out) -> Result<ExitCode, Failure> {
    let progress = Progress::new();
    let options = task_options(asked.kernel.name.clone(), asked.fresh);
    let processors = asked.processors.unwrap_or(1);
    let on_progress = |news: xcp_lab::Progress| progress.on_progress(news);
    let report =
        xcp_lab::check_programs(&options, processors, &on_progress).map_err(interruptible)?;
    drop(progress);
    out.print(&report, |style| {
        let head = ["", "verified instructions", "at most"].map(String::from);
        let rows: Vec<Vec<String>> = iter::once(head.to_vec())
            .chain(report.programs.iter().map(|p| {
                let most = p.most.to_string();
                let excess = if p.ok { "" } else { "  FAILED" };
                vec![p.name.clone(), p.verified.to_string(), most + excess]
            }))
            .collect();
        let title = format!(
            "Linux {}, processors: {}; each program loaded for {}",
            report.kernel, report.processors, report.loaded_for
        );
        format!(
            "{}\n\n{}\n{}",
            style.bold(&title),
            table::columns(&rows, 1),
            described(&report.checks)
        )
    })?;
    Ok(judged(report.ok))
}

fn bench(asked: &LabBench, out: &Out) -> Result<ExitCode, Failure> {
    let chosen = |s: &Subject| asked.what.is_empty() || asked.what.iter().any(|w| w == s.name());
    let mut reports = Vec::new();
    for subject in Subject::ALL.into_iter().filter(chosen) {
        let progress = Progress::new();
        let options = task_options(asked.kernel.name.clone(), asked.fresh);
        let report = xcp_lab::bench(subject, &options, &|news| progress.on_progress(news));
        reports.push(report.map_err(interruptible)?);
    }
    out.print(&reports, |style| {
        let shown: Vec<String> = reports
            .iter()
            .map(|report| format_costs(report, style))
            .collect();
        shown.join("\n")
    })?;
    Ok(judged(reports.iter().all(|b| b.ok)))
}

fn format_costs(report: &CostReport, style: &Style) -> String {
    let head = [
        report.what.name().to_owned(),
        format!("instructions per {}", report.per),
        format!("to {}", report.baseline),
        "at most".to_owned(),
    ];
    let row = |row: &Row| {
        let c = &row.cost;
        let limit = row.limit.as_ref().map(|l| {
            let most = match l.of.as_str() {
                "ratio" => format!("{:.2} times", l.max),
                _ => l.max.to_string(),
            };
            most + if l.ok { "" } else { "  FAILED" }
        });
        vec![
            c.name.clone(),
            format!("{:.0}", c.instructions),
            format!("{:.2}", c.ratio),
            limit.unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = iter::once(head.to_vec())
        .chain(report.costs.iter().map(row))
        .collect();
    let text = table::columns(&rows, 1);
    let (head, body) = text.split_once('\n').unwrap_or_default();
    format!("{}\n{body}", style.bold(head))
}

fn describe(all: &[Entry], style: &Style) -> String {
    let entry = |e: &Entry| {
        let name = style.bold(&e.name);
        let mut rows = vec![("", e.about.clone()), ("", e.source.clone())];
        if e.known_gaps > 0 {
            rows.push(("", count(e.known_gaps, "known gap")));
        }
        format!("{name}\n{}", table::pairs(&rows))
    };
    let entries: String = all.iter().map(entry).collect();
    let gaps = all.iter().map(|e| e.known_gaps).sum();
    let experiments = count(all.len(), "experiment");
    format!("{entries}\n{experiments}, {}\n", count(gaps, "known gap"))
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_counts_known_gaps() {
        let entry = |name: &str, known_gaps| Entry {
            name: name.into(),
            source: "a test".into(),
            about: "a link".into(),
            known_gaps,
        };
        let all = [entry("a", 0), entry("b", 2), entry("c", 1)];
        assert_eq!(
            describe(&all, &Style(false)),
            "a\n    a link\n    a test\n\
             b\n    a link\n    a test\n    2 known gaps\n\
             c\n    a link\n    a test\n    1 known gap\n\
             \n3 experiments, 3 known gaps\n"
        );
        let json = serde_json::to_value(&all).expect("serialises");
        assert_eq!(json[1]["known_gaps"], 2);
        let last = describe(&all[..1], &Style(false));
        assert!(last.ends_with("\n1 experiment, 0 known gaps\n"), "{last}");
    }
}

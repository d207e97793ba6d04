// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab`: experiments in the virtual-time machine.

mod kept;

use std::process::ExitCode;

use xcp_lab::{Check, Cost, Entry, Options};

use crate::cli::{LabAction, LabBench, LabCheck, LabRun};
use crate::failure::Failure;
use crate::out::{Out, Style};
use crate::progress::Progress;
use crate::summary;
use crate::table;

pub fn act(action: LabAction, out: &Out) -> Result<ExitCode, Failure> {
    match action {
        LabAction::List => {
            let all = xcp_lab::list();
            out.print(&all, |style| describe(&all, style))?;
            Ok(ExitCode::SUCCESS)
        }
        LabAction::Run(asked) => run(asked, out),
        LabAction::Kept(asked) => kept::act(&asked, out),
        LabAction::Check(asked) => check(&asked, out),
        LabAction::Bench(asked) => bench(&asked, out),
    }
}

fn run(asked: LabRun, out: &Out) -> Result<ExitCode, Failure> {
    let options = Options {
        experiment: asked.experiment,
        seed: asked.seed,
        variants: asked.variants,
        wire: asked.wire,
        ip: asked.ip,
        kernel: asked.kernel,
        native: asked.native,
        fresh: asked.fresh,
        points: asked.points,
        out: asked.out,
    };
    let progress = Progress::new();
    let outcome = xcp_lab::run(&options, &|news| progress.hear(news)).map_err(interruptible)?;
    drop(progress);
    out.print(&outcome.result, |style| {
        let table = summary::render(&outcome.result, style);
        format!("{table}\nReport: {}\n", outcome.report.display())
    })?;
    for capture in outcome.result.captures.iter().filter(|c| c.missing > 0) {
        let (file, missing) = (&capture.file, capture.missing);
        eprintln!("xcp: {file}: {missing} packets are missing");
        eprintln!("  help: capture at fewer points, or a shorter or slower run");
    }
    Ok(if outcome.result.ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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
    let progress = Progress::new();
    let checks = xcp_lab::check_qdisc(asked.kernel.as_deref(), asked.cycles, &|news| {
        progress.hear(news)
    })
    .map_err(interruptible)?;
    drop(progress);
    out.print(&checks, |_| {
        let line = |c: &Check| {
            let word = if c.ok { "ok" } else { "FAILED" };
            format!("{word:<8}{}: {}\n", c.name, c.seen)
        };
        checks.iter().map(line).collect()
    })?;
    Ok(if checks.iter().all(|c| c.ok) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn bench(asked: &LabBench, out: &Out) -> Result<ExitCode, Failure> {
    let progress = Progress::new();
    let costs = xcp_lab::bench_qdisc(asked.kernel.as_deref(), &|news| progress.hear(news))
        .map_err(interruptible)?;
    drop(progress);
    out.print(&costs, |_| {
        let head = format!("{:<14}{:>13}{:>8}\n", "", "ns per packet", "ratio");
        let line = |c: &Cost| format!("{:<14}{:>13.0}{:>8.2}\n", c.qdisc, c.ns_per_packet, c.ratio);
        head + &costs.iter().map(line).collect::<String>()
    })?;
    Ok(ExitCode::SUCCESS)
}

fn describe(all: &[Entry], style: &Style) -> String {
    let entry = |e: &Entry| {
        let name = style.bold(&e.name);
        format!(
            "{name}\n{}",
            table::pairs(&[("", e.about.clone()), ("", e.source.clone())])
        )
    };
    all.iter().map(entry).collect()
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp doctor`: checks kernel support, and reports the consequences of missing features.

use std::process::ExitCode;

use serde::Serialize;
use xcp_datapath::features;

use xcp_cli::failure::Failure;
use xcp_cli::findings::{self, Finding};
use xcp_cli::out::{Out, Style};
use xcp_cli::path::{Need, NetworkPath, Settings};
use xcp_cli::{table, units};

use crate::lab;

#[derive(Serialize)]
struct Report {
    /// Version of xcp, for bug reports.
    version: &'static str,
    kernel: String,
    processors: Option<u32>,
    /// All required features are present.
    ok: bool,
    features: Vec<Finding>,
    path: Option<PathReport>,
}

/// Whether TCP can fill the path given with `--path`.
#[derive(Serialize)]
struct PathReport {
    rate_bps: u64,
    rtt_ms: f64,
    /// Its bandwidth-delay product.
    window_bytes: u64,
    ok: bool,
    needs: Vec<Need>,
}

impl PathReport {
    fn new(path: NetworkPath) -> Self {
        let needs = path.needs(&Settings::here());
        Self {
            rate_bps: path.rate.bytes_per_s * 8,
            rtt_ms: path.rtt.as_secs_f64() * 1e3,
            window_bytes: path.window_bytes(),
            ok: needs.iter().all(|n| n.ok),
            needs,
        }
    }
}

pub fn act(path: Option<NetworkPath>, out: &Out) -> Result<ExitCode, Failure> {
    let findings = findings();
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        kernel: features::kernel_release(),
        processors: features::processors(),
        ok: findings.iter().all(|f| f.present || !f.required),
        features: findings,
        path: path.map(PathReport::new),
    };
    let path_ok = report.path.as_ref().is_none_or(|path| path.ok);
    out.print(&report, |style| describe(&report, style))?;
    Ok(if report.ok && path_ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn findings() -> Vec<Finding> {
    let finding = |f: features::Feature| Finding {
        name: f.name.into(),
        present: f.present,
        required: f.required,
        detail: f.detail,
        cost: f.cost,
    };
    features::probe().into_iter().map(finding).collect()
}

fn describe(report: &Report, style: &Style) -> String {
    let mut text = findings::describe(&report.features, style);
    text.push('\n');
    text.push_str(&verdict(report, style));
    if let Some(path) = &report.path {
        text.push('\n');
        text.push_str(&describe_path(path, style));
    }
    text
}

fn describe_path(path: &PathReport, style: &Style) -> String {
    let title = format!(
        "A path of {} and {} needs windows of {}",
        units::rate(path.rate_bps as f64),
        units::milliseconds(path.rtt_ms),
        units::bytes(path.window_bytes)
    );
    let row = |n: &Need| {
        let detail = format!("{} allows {}, needs {}", n.sysctl, n.allows, n.needs);
        vec![n.name.to_owned(), detail]
    };
    let rows: Vec<Vec<String>> = path.needs.iter().map(row).collect();
    let mut text = format!("{}\n", style.bold(&title));
    for (need, line) in path.needs.iter().zip(table::columns(&rows, 2).lines()) {
        if need.ok {
            text.push_str(&format!("{}  {line}\n", style.good("ok     ")));
        } else {
            text.push_str(&format!("{}  {line}\n", style.bad("TOO LOW")));
            text.push_str(&format!("           {}\n", need.cost));
        }
    }
    text
}

fn verdict(report: &Report, style: &Style) -> String {
    let missing = |name: &str| report.features.iter().any(|f| f.name == name && !f.present);
    let datapath = if report.ok {
        style.good("XCP hosts and routers work on this system.")
    } else if missing("root") {
        style.bad("Run it with sudo: without root, hosts and routers do not work, and most features cannot be probed.")
    } else {
        style.bad("XCP hosts or routers do not work here: see the lines marked MISSING.")
    };
    let lab = match lab::program() {
        Some(_) => "To check support for experiments: xcp lab doctor",
        None => "Experiments cannot run: the program xcp-lab is not installed",
    };
    format!("{datapath}\n{lab}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(present: bool, required: bool) -> Finding {
        Finding {
            name: "tcx links".into(),
            present,
            required,
            detail: "6.6 and later".into(),
            cost: "no router here".into(),
        }
    }

    #[test]
    fn missing_features_are_reported_with_their_cost() {
        let report = Report {
            version: "1.0",
            kernel: "6.18.5".into(),
            processors: Some(2),
            ok: false,
            features: vec![
                finding(true, true),
                finding(false, false),
                finding(false, true),
            ],
            path: None,
        };
        let text = describe(&report, &Style(false));
        assert!(text.starts_with(
            "ok       tcx links  6.6 and later\n\
             without  tcx links  6.6 and later\n           no router here\n\
             MISSING  tcx links  6.6 and later\n           no router here\n\n"
        ));
        assert!(text.contains("routers do not work"));
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab doctor`: checks whether experiments can run here.

use std::process::ExitCode;

use serde::Serialize;
use xcp_cli::failure::Failure;
use xcp_cli::findings::{self, Finding};
use xcp_cli::out::Out;
use xcp_cli::programs;
use xcp_lab::Architecture;

#[derive(Serialize)]
struct Report {
    version: &'static str,
    /// All required features are present.
    ok: bool,
    features: Vec<Finding>,
}

pub fn act(out: &Out) -> Result<ExitCode, Failure> {
    let features = findings();
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        ok: features.iter().all(|f| f.present || !f.required),
        features,
    };
    out.print(&report, |style| {
        let verdict = if report.ok {
            style.good("Experiments can run here, without root.")
        } else {
            style.bad("Experiments cannot run here: see what is MISSING.")
        };
        let findings = findings::describe(&report.features, style);
        format!("{findings}\n{verdict}\n")
    })?;
    Ok(super::judged(report.ok))
}

fn findings() -> Vec<Finding> {
    let qdisc = |(name, present)| Finding {
        name: format!("queue discipline {name}"),
        present,
        required: false,
        detail: "tried in a namespace".into(),
        cost: "experiments that use it run only in the virtual machine, not with --native".into(),
    };
    let qdiscs = xcp_lab::native_qdiscs().into_iter().map(qdisc);
    [emulator()].into_iter().chain(qdiscs).collect()
}

fn emulator() -> Finding {
    let native = Architecture::native();
    let found = on_path(native.qemu);
    Finding {
        name: native.qemu.into(),
        present: found.is_some(),
        required: true,
        detail: found.unwrap_or_else(|| "not on the PATH".into()),
        cost: format!(
            "no virtual machine: apt-get install --no-install-recommends {}",
            native.package
        ),
    }
}

fn on_path(program: &str) -> Option<String> {
    programs::on_path(program).map(|path| path.display().to_string())
}

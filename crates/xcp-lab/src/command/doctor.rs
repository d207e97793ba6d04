// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab doctor`: checks whether experiments can run here.

use std::path::{Path, PathBuf};
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
            style.bad("Experiments cannot run here: see the lines marked MISSING.")
        };
        let findings = findings::describe(&report.features, style);
        format!("{findings}\n{verdict}\n")
    })?;
    Ok(super::judged(report.ok))
}

/// Programs that prepare a kernel from Debian's packages, and their packages.
const FETCHERS: [(&str, &str); 4] = [
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("depmod", "kmod"),
    ("xz", "xz-utils"),
];

fn findings() -> Vec<Finding> {
    let qdisc = |(name, present)| Finding {
        name: format!("queue discipline {name}"),
        present,
        required: false,
        detail: "tested in a network namespace".into(),
        cost: "experiments that use it run only in the virtual machine, not with --native".into(),
    };
    let qdiscs: Vec<Finding> = match xcp_lab::native_qdiscs() {
        Some(tried) => tried.into_iter().map(qdisc).collect(),
        None => vec![Finding {
            name: "queue disciplines for --native".into(),
            present: false,
            required: false,
            detail: "only root can test them".into(),
            cost: "run: sudo xcp lab doctor".into(),
        }],
    };
    let tools = ["ip", "tc"].map(|name| program(name, "iproute2", None));
    let without = "kernels cannot be fetched; give an image with --kernel, or run:";
    let fetchers = FETCHERS.map(|(name, package)| program(name, package, Some(without)));
    let keyring = Path::new(xcp_lab::KEYRING).is_file();
    let keyring = keyring.then(|| xcp_lab::KEYRING.to_owned());
    let package = "debian-archive-keyring";
    let keyring = finding("keys of Debian's archive", keyring, package, Some(without));
    std::iter::once(emulator())
        .chain(xcp_lab::guest_programs().map(guest))
        .chain(tools)
        .chain(fetchers)
        .chain([keyring])
        .chain(qdiscs)
        .collect()
}

fn emulator() -> Finding {
    let native = Architecture::native();
    let found = on_path(native.qemu);
    let package = format!("--no-install-recommends {}", native.package);
    finding(native.qemu, found, &package, None)
}

/// A program that is searched in the system's folders, also if the PATH has not all of them.
fn program(name: &str, package: &str, without: Option<&str>) -> Finding {
    let found = xcp_lab::system_program(name).map(|path| path.display().to_string());
    finding(name, found, package, without)
}

/// `without` says what is not possible without the program; None: it is required.
fn finding(name: &str, found: Option<String>, package: &str, without: Option<&str>) -> Finding {
    let cost = without.unwrap_or("the virtual machine needs it:");
    Finding {
        name: name.into(),
        present: found.is_some(),
        required: without.is_none(),
        detail: found.unwrap_or_else(|| "not found".into()),
        cost: format!("{cost} apt-get install {package}"),
    }
}

fn guest((name, found): (&str, xcp_lab::Result<PathBuf>)) -> Finding {
    Finding {
        name: name.into(),
        present: found.is_ok(),
        required: true,
        detail: match &found {
            Ok(path) => path.display().to_string(),
            Err(error) => error.reason.clone(),
        },
        cost: found.map_or_else(
            |error| format!("the virtual machine needs it: {}", error.remedy),
            |_| String::new(),
        ),
    }
}

fn on_path(program: &str) -> Option<String> {
    programs::on_path(program).map(|path| path.display().to_string())
}

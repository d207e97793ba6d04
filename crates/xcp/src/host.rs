// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp host`: this host speaks XCP, or does not.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use xcp_datapath::host::{self, Change, Options, Status};

use crate::cli::HostAction;
use crate::failure::Failure;
use crate::out::{Out, Style};
use crate::table;
use crate::units;

pub fn act(action: HostAction, out: &Out) -> Result<ExitCode, Failure> {
    match action {
        HostAction::On { cgroup, default } => {
            let options = Options {
                cgroup,
                make_default: default,
            };
            let change = host::on(&options)?;
            let value = json!({ "change": change, "cgroup": options.cgroup, "default": default });
            out.print(&value, |_| turned_on(change, &options))?;
        }
        HostAction::Off => {
            host::off()?;
            out.print(&json!({ "change": "removed" }), |_| "XCP is off".into())?;
        }
        HostAction::Show => {
            let status = host::status()?;
            out.print(&status, |style| describe(&status, style))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn turned_on(change: Change, options: &Options) -> String {
    let state = match change {
        Change::Added => "XCP is on",
        Change::Changed => "XCP is on, changed",
        Change::Unchanged => "XCP was on already, nothing changed",
    };
    let sockets = scope(options.cgroup.as_deref());
    let which = if options.make_default {
        format!("new sockets of {sockets} use it unless they choose another")
    } else {
        format!("sockets of {sockets} use it if they choose it (TCP_CONGESTION \"xcp\")")
    };
    format!("{state}: {which}")
}

fn scope(cgroup: Option<&Path>) -> String {
    match cgroup {
        Some(path) => format!("control group {}", path.display()),
        None => "all control groups".into(),
    }
}

fn describe(status: &Status, style: &Style) -> String {
    let c = &status.counters;
    let sum = |bytes_per_s: i64| units::signed_rate(bytes_per_s as f64 * 8.0);
    let group = status.cgroup.as_deref();
    let head = style.bold("XCP is on");
    let rows = [
        (
            "control group",
            group.map_or("only those of xcp run".into(), |p| p.display().to_string()),
        ),
        ("default", if status.default { "yes" } else { "no" }.into()),
        ("connections with XCP", c.sockets.to_string()),
        ("connections without", c.fallbacks.to_string()),
        ("forward options sent", c.forward_sent.to_string()),
        ("forward options received", c.forward_received.to_string()),
        ("return options sent", c.return_sent.to_string()),
        ("return options received", c.return_received.to_string()),
        ("return options crowded out", c.return_crowded.to_string()),
        ("malformed options", c.malformed.to_string()),
        ("feedback received", sum(c.received_bytes_per_s)),
        ("feedback returned", sum(c.returned_bytes_per_s)),
        ("feedback never returned", sum(c.unreturned_bytes_per_s)),
        ("feedback come back", sum(c.feedback_bytes_per_s)),
        ("feedback applied", sum(c.applied_bytes_per_s)),
    ];
    format!("{head}\n{}", table::pairs(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_aligned() {
        let status = Status {
            cgroup: Some("/sys/fs/cgroup".into()),
            default: true,
            counters: host::Counters {
                sockets: 4,
                applied_bytes_per_s: 1_250_000,
                ..Default::default()
            },
        };
        let text = describe(&status, &Style(false));
        assert!(text.starts_with("XCP is on\n  control group               /sys/fs/cgroup\n"));
        assert!(text.contains("\n  connections with XCP        4\n"));
        assert!(text.ends_with("\n  feedback applied            +10.0 Mb/s\n"));
    }
}

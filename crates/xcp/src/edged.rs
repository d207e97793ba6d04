// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp edged`: runs the daemon of XCP-i, generates its key and shows its state.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use xcp_datapath::cloud;
use xcp_datapath::interrupt;
use xcp_edged::daemon::{self, LoopControl, Options, TestOverrides};
use xcp_edged::status::{CloudStatus, Status};
use xcp_edged::{secret, status};

use crate::config::{self, Edge};
use crate::watch;
use xcp_cli::cli::{EdgedAction, EdgedRun};
use xcp_cli::failure::{print_error, Failure};
use xcp_cli::out::{Out, Style};
use xcp_cli::{table, units};

pub fn act(action: EdgedAction, out: &Out) -> Result<ExitCode, Failure> {
    match action {
        EdgedAction::Run(asked) => run(&asked)?,
        EdgedAction::Show { socket, watch } => return show(&socket, watch, out),
        EdgedAction::Key { file } => {
            secret::make(&file)?;
            out.print(&json!({ "file": file, "change": "added" }), |_| {
                let file = file.display();
                format!("{file}: key generated; all other edges need a copy of it")
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the daemon. Being ended by a signal is not a failure, since systemd sends one.
fn run(asked: &EdgedRun) -> Result<(), Failure> {
    cloud::require_root()?;
    let edge = match (&asked.config, &asked.key) {
        (Some(file), _) => config::edge(file)?,
        (None, key) => Edge {
            key: key.clone().unwrap_or_default(),
            upstream: asked.upstream.clone(),
        },
    };
    let options = Options {
        key: secret::read(&edge.key)?,
        key_file: edge.key,
        upstream: edge.upstream,
        socket: asked.socket.clone(),
        trial: TestOverrides::default(),
    };
    interrupt::watch();
    let ready = || print_error("xcp: ready; Ctrl-C ends it");
    let next = || match interrupt::requested() {
        false => LoopControl::On,
        true => LoopControl::End,
    };
    Ok(daemon::run(&options, ready, &next)?)
}

fn show(socket: &Path, again: bool, out: &Out) -> Result<ExitCode, Failure> {
    if again {
        return watch::watch(out, || Ok(status::ask(socket)?), &watch_head(), watch_lines);
    }
    let status = status::ask(socket)?;
    out.print(&status, |style| describe(&status, style))?;
    Ok(ExitCode::SUCCESS)
}

/// Formats a line of `--watch`.
fn watch_line(cells: [&str; 6]) -> String {
    let [upstream, state, free, error, queue, trains] = cells;
    format!("{upstream:<24} {state:<8} {free:>11} {error:>11} {queue:>10} {trains:>8}")
}

fn watch_head() -> String {
    watch_line(["upstream", "state", "free", "error", "delay", "trains"])
}

fn watch_lines(status: &Status) -> Vec<String> {
    let rate = |bps: Option<f64>| bps.map_or_else(|| "-".into(), units::rate);
    let cloud = |cloud: &CloudStatus| {
        let delay = cloud
            .queue_delay_ms
            .map_or_else(|| "-".into(), units::milliseconds);
        watch_line([
            &cloud.upstream.to_string(),
            &cloud.state,
            &rate(cloud.free_bps),
            &rate(cloud.error_bps),
            &delay,
            &cloud.trains.to_string(),
        ])
    };
    let clouds = status.clouds.iter().map(cloud);
    let unreachable = status.unreachable.iter();
    let unreachable = unreachable.map(|upstream| format!("{upstream:<24} no route"));
    let failure = status.failure.iter();
    let failure = failure.map(|failure| format!("not in the data path: {failure}"));
    let lines: Vec<String> = clouds.chain(unreachable).chain(failure).collect();
    match lines.is_empty() {
        true => vec!["no upstream edge".into()],
        false => lines,
    }
}

fn describe(status: &Status, style: &Style) -> String {
    let clouds = status.clouds.iter();
    let mut text: String = clouds.map(|cloud| describe_cloud(cloud, style)).collect();
    for upstream in &status.unreachable {
        text += &format!("{}\n  no route to it\n", style.bold(&upstream.to_string()));
    }
    if let Some(failure) = &status.failure {
        let failure = failure.replace('\n', "\n  ");
        text += &format!("{}\n  {failure}\n", style.bold("not in the data path"));
    }
    let askers: Vec<String> = status.askers.iter().map(ToString::to_string).collect();
    let names: Vec<String> = status
        .local_addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    let several = match names.len() {
        0 | 1 => "",
        _ => " (packets contain the first)",
    };
    let rows = [
        ("probes sent to", askers.join(", ")),
        ("local addresses", names.join(", ") + several),
        ("packets ignored", status.ignored.sum().to_string()),
        ("unexpected answers", status.unrequested.to_string()),
        ("messages not sent", status.unsent.to_string()),
    ];
    format!("{text}{}\n{}", style.bold("this edge"), table::pairs(&rows))
}

fn describe_cloud(cloud: &CloudStatus, style: &Style) -> String {
    let known = |text: Option<String>| text.unwrap_or_else(|| "not known yet".into());
    let rows = [
        ("local address", cloud.local.to_string()),
        ("state", cloud.state.clone()),
        (
            "routers between",
            known(cloud.routers.map(|n| n.to_string())),
        ),
        ("free", known(cloud.free_bps.map(units::rate))),
        ("standard error", known(cloud.error_bps.map(units::rate))),
        ("age", known(cloud.age_ms.map(units::milliseconds))),
        (
            "queueing delay",
            known(cloud.queue_delay_ms.map(units::milliseconds)),
        ),
        ("probe trains", cloud.trains.to_string()),
        ("probes", cloud.probes.to_string()),
        ("ignored", cloud.ignored.sum().to_string()),
    ];
    let head = style.bold(&cloud.upstream.to_string());
    format!("{head}\n{}", table::pairs(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use xcp_edged::status::IgnoredCounts;

    #[test]
    fn unknown_values_are_shown_as_unknown() {
        let cloud = CloudStatus {
            upstream: "192.0.2.1".parse().expect("an address"),
            local: "198.51.100.1".parse().expect("an address"),
            state: "asking".into(),
            routers: None,
            free_bps: Some(47_620_000.0),
            error_bps: None,
            age_ms: Some(2108.34),
            queue_delay_ms: None,
            trains: 1,
            probes: 2,
            ignored: IgnoredCounts {
                replayed: 1,
                stale: 2,
                ..IgnoredCounts::default()
            },
        };
        let status = Status {
            clouds: vec![cloud],
            unreachable: vec!["2001:db8::1".parse().expect("an address")],
            askers: Vec::new(),
            local_addresses: vec![
                "192.0.2.2".parse().expect("an address"),
                "192.0.2.3".parse().expect("an address"),
            ],
            ignored: IgnoredCounts::default(),
            unrequested: 3,
            unsent: 0,
            failure: Some("eth0: no such network device here".into()),
            key_file: "/etc/xcp/edged.key".into(),
            upstream: Vec::new(),
            netns: 0,
        };
        let text = describe(&status, &Style(false));
        for line in [
            "192.0.2.1\n  local address    198.51.100.1\n  state            asking\n",
            "\n  routers between  not known yet\n  free             47.6 Mb/s\n",
            "\n  standard error   not known yet\n  age              2108.3 ms\n",
            "\n  ignored          3\n2001:db8::1\n  no route to it\nnot in the data path\n  eth0: no such network device here\nthis edge\n  probes sent to\n",
            "\n  local addresses     192.0.2.2, 192.0.2.3 (packets contain the first)\n",
            "\n  unexpected answers  3\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp-edged`: XCP-i's daemon, its key, and what it knows.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use xcp_edged::daemon::{self, Options};
use xcp_edged::status::{CloudStatus, Status};
use xcp_edged::{desk, secret, Error, Result};

/// Measure what networks without XCP between this router and others carry
///
/// The daemon of XCP-i. So far it only measures: no router uses its estimates.
#[derive(Parser)]
#[command(name = "xcp-edged", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Ask upstream edges, and answer downstream ones, until Ctrl-C
    Run(Run),
    /// Show what the daemon knows
    Show {
        /// The daemon's --socket
        #[arg(long, value_name = "PATH", default_value = desk::PATH)]
        socket: PathBuf,
        /// Print JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Make a key in a new file, which all edges need
    Key {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Args)]
struct Run {
    /// File with the key that all edges share; only its owner may read it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Ask the edge with this address; may be given several times. Others are
    /// answered with and without it
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    upstream: Vec<IpAddr>,
    /// Where `xcp-edged show` asks
    #[arg(long, value_name = "PATH", default_value = desk::PATH)]
    socket: PathBuf,
}

fn address(text: &str) -> std::result::Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| "not an address".to_owned())?;
    if address.is_unspecified() || address.is_multicast() {
        return Err("not the address of one router".to_owned());
    }
    Ok(address.to_canonical())
}

fn main() -> ExitCode {
    match act(Cli::parse().action) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let text = format!("xcp-edged: {e}\n  help: {}", e.remedy);
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}

fn act(action: Action) -> Result<()> {
    match action {
        Action::Run(asked) => run(&asked),
        Action::Key { file } => {
            secret::make(&file)?;
            print(&format!(
                "{}: a new key; the other edges need the same\n",
                file.display()
            ));
            Ok(())
        }
        Action::Show { socket, json } => {
            let status = desk::ask(&socket)?;
            let text = if json {
                serde_json::to_string_pretty(&status).unwrap_or_default() + "\n"
            } else {
                describe(&status)
            };
            print(&text);
            Ok(())
        }
    }
}

fn run(asked: &Run) -> Result<()> {
    let options = Options {
        key: secret::read(&asked.key)?,
        upstream: asked.upstream.clone(),
        socket: asked.socket.clone(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).map_err(|e| Error {
            thing: "signals".into(),
            reason: e.to_string(),
            remedy: "report this".into(),
        })?;
    }
    let ready = || {
        let _ = writeln!(std::io::stderr(), "xcp-edged: ready; Ctrl-C ends it");
    };
    daemon::run(&options, ready, &|| stop.load(Ordering::Relaxed))
}

/// A reader that has gone is no failure.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn describe(status: &Status) -> String {
    let mut text: String = status.clouds.iter().map(describe_cloud).collect();
    for upstream in &status.unreachable {
        text += &format!("{upstream}\n  no route to it\n");
    }
    let askers: Vec<String> = status.askers.iter().map(ToString::to_string).collect();
    let rows = [
        ("probes go to", askers.join(", ")),
        ("ignored of askers", status.ignored.sum().to_string()),
        ("answers not asked for", status.unasked.to_string()),
        ("messages not sent", status.unsent.to_string()),
    ];
    text + "this edge\n" + &pairs(&rows)
}

fn describe_cloud(cloud: &CloudStatus) -> String {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "not known yet".into());
    let rate = |bps: Option<f64>| or_unknown(bps.map(|bps| format!("{:.2} Mb/s", bps / 1e6)));
    let time = |ms: Option<f64>| or_unknown(ms.map(|ms| format!("{ms:.1} ms")));
    let rows = [
        ("asked from", cloud.local.to_string()),
        ("state", cloud.state.clone()),
        (
            "routers between",
            or_unknown(cloud.routers.map(|n| n.to_string())),
        ),
        ("free", rate(cloud.free_bps)),
        ("standard error", rate(cloud.error_bps)),
        ("age", time(cloud.age_ms)),
        ("queueing delay", time(cloud.queue_ms)),
        ("trains", cloud.trains.to_string()),
        ("probes", cloud.probes.to_string()),
        ("ignored", cloud.ignored.sum().to_string()),
    ];
    format!("{}\n{}", cloud.upstream, pairs(&rows))
}

fn pairs(rows: &[(&str, String)]) -> String {
    let rows = rows.iter();
    rows.map(|(key, value)| format!("  {key:<21}  {value}").trim_end().to_owned() + "\n")
        .collect()
}

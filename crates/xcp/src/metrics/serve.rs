// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The HTTP endpoint for Prometheus.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use xcp_cli::failure::{print_error, Failure};
use xcp_datapath::interrupt;
use xcp_datapath::meter::Meter;

use super::families::Snapshot;
use super::http::{Request, Response, Server};
use super::journal::Journal;

/// The longest time until an interrupt is noticed.
const PATIENCE_MS: u16 = 200;
/// Time between two checks for changes to log.
const LOOK: Duration = Duration::from_secs(5);
const PATH: &str = "/metrics";
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers requests until a signal arrives. Being ended by a signal is not a
/// failure, since systemd sends one.
pub fn serve(address: SocketAddr, meter: &mut Meter) -> Result<ExitCode, Failure> {
    interrupt::watch();
    let failed = |e: std::io::Error| {
        Failure::new(
            format!("--listen {address}"),
            e.to_string(),
            "if another program uses it, give another address or port",
        )
    };
    let mut server = Server::open(address).map_err(failed)?;
    let address = server.address().map_err(failed)?;
    print_error(&format!("xcp: http://{address}{PATH}; Ctrl-C ends it"));
    let (begun, mut journal, mut looked) = (Instant::now(), Journal::default(), None);
    while !interrupt::requested() {
        let now = begun.elapsed();
        if looked.is_none_or(|then| now.saturating_sub(then) >= LOOK) {
            looked = Some(now);
            // read errors are ignored: the next check may succeed
            for line in Snapshot::read(meter)
                .map(|snapshot| journal.changes_to_log(now, &snapshot))
                .unwrap_or_default()
            {
                print_error(&format!("xcp: {line}"));
            }
        }
        server.serve(PATIENCE_MS, |request| respond(request, meter));
    }
    Ok(ExitCode::SUCCESS)
}

fn respond(request: &Request, meter: &mut Meter) -> Response {
    let is_asked = matches!(request.method, "GET" | "HEAD");
    let (status, body) = match request.path {
        PATH if is_asked => match Snapshot::read(meter) {
            Ok(snapshot) => ("200 OK", snapshot.text()),
            Err(e) => ("500 Internal Server Error", format!("{e}\n")),
        },
        _ => ("404 Not Found", format!("not found, see {PATH}\n")),
    };
    let content_type = match status {
        "200 OK" => FORMAT,
        _ => "text/plain; charset=utf-8",
    };
    Response {
        status,
        content_type,
        body,
    }
}

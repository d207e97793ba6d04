// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The HTTP endpoint for Prometheus.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tiny_http::{Header, Method, Request, Response, Server};
use xcp_cli::failure::{print_error, Failure};
use xcp_datapath::interrupt;
use xcp_datapath::meter::Meter;

use super::families::Snapshot;
use super::journal::Journal;

/// The longest time until an interrupt is noticed.
const PATIENCE: Duration = Duration::from_millis(200);
/// Time between two checks for changes to log.
const LOOK: Duration = Duration::from_secs(5);
const PATH: &str = "/metrics";
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers requests one by one until a signal arrives. Being ended by a signal is not a
/// failure, since systemd sends one.
pub fn serve(address: SocketAddr, meter: &mut Meter) -> Result<ExitCode, Failure> {
    interrupt::watch();
    let server = Server::http(address).map_err(|e| {
        Failure::new(
            format!("--listen {address}"),
            e.to_string(),
            "if another program uses it, give another address or port",
        )
    })?;
    print_error(&format!(
        "xcp: http://{}{PATH}; Ctrl-C ends it",
        server.server_addr()
    ));
    let (begun, mut journal, mut looked) = (Instant::now(), Journal::default(), None);
    while !interrupt::requested() {
        let now = begun.elapsed();
        if looked.is_none_or(|then| now.saturating_sub(then) >= LOOK) {
            looked = Some(now);
            // read errors are ignored: the next check may succeed
            for line in Snapshot::read(meter)
                .map(|snapshot| journal.look(now, &snapshot))
                .unwrap_or_default()
            {
                print_error(&format!("xcp: {line}"));
            }
        }
        let next = server.recv_timeout(PATIENCE);
        // errors of clients are ignored
        if let Ok(Some(request)) = next {
            answer(request, meter);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(request: Request, meter: &mut Meter) {
    let path = request.url().split('?').next().unwrap_or_default();
    let is_asked = matches!(request.method(), Method::Get | Method::Head);
    let (status, text) = match path {
        PATH if is_asked => match Snapshot::read(meter) {
            Ok(snapshot) => (200, snapshot.text()),
            Err(e) => (500, format!("{e}\n")),
        },
        _ => (404, format!("not found, see {PATH}\n")),
    };
    let format = match status {
        200 => FORMAT,
        _ => "text/plain; charset=utf-8",
    };
    let mut response = Response::from_string(text).with_status_code(status);
    if let Ok(header) = Header::from_bytes("Content-Type", format) {
        response.add_header(header);
    }
    let _ = request.respond(response); // the client may have gone
}

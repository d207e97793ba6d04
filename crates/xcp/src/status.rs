// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp status`: shows the state of XCP on this machine on one screen.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use xcp_datapath::{cloud, host, require_access, router};
use xcp_edged::status as edge;
use xcp_gateway::status as gateway;

use crate::router::overview;
use xcp_cli::failure::{print_error, Failure};
use xcp_cli::out::{Out, Style};

/// Number of routers that the text lists.
const ROUTERS_MAX: usize = 5;

/// The state of all parts. A part that cannot be read is missing, and its error is
/// printed to standard error.
#[derive(Serialize)]
struct Status {
    host: Option<host::Status>,
    routers: Vec<router::Status>,
    clouds: Vec<cloud::Status>,
    /// The status of the edge daemon, if it runs.
    edge: Option<edge::Status>,
    /// The status of the gateway, if it runs.
    gateway: Option<gateway::Status>,
}

pub fn act(out: &Out) -> Result<ExitCode, Failure> {
    require_access("xcp status")?;
    let status = Status {
        host: host::is_on()
            .then(|| ok_or_print(host::status().map_err(Failure::from)))
            .flatten(),
        routers: ok_or_print(router::list().map_err(Failure::from)).unwrap_or_default(),
        clouds: ok_or_print(cloud::list().map_err(Failure::from)).unwrap_or_default(),
        // fails if no daemon runs
        edge: edge::ask(Path::new(edge::SOCKET)).ok(),
        gateway: gateway::ask(Path::new(gateway::SOCKET)).ok(),
    };
    out.print(&status, |style| describe(&status, style))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a part of the status, or prints why it cannot be read.
fn ok_or_print<T>(part: Result<T, Failure>) -> Option<T> {
    part.map_err(|failure| print_error(&format!("xcp: {failure}")))
        .ok()
}

fn describe(status: &Status, style: &Style) -> String {
    let mut text = format!("{}  {}\n", style.bold("host"), host_line(status));
    text += &format!("{}  {}\n", style.bold("routers"), status.routers.len());
    let listed = &status.routers[..status.routers.len().min(ROUTERS_MAX)];
    if !listed.is_empty() {
        text += &indent(&overview(listed, style));
    }
    if status.routers.len() > listed.len() {
        let more = status.routers.len() - listed.len();
        text += &format!("  and {more} more: xcp router show\n");
    }
    let daemon = match &status.edge {
        Some(edge) => format!("xcp edged is running, {} upstream", edge.clouds.len()),
        None => "xcp edged is not running".into(),
    };
    let clouds = status.clouds.len();
    text += &format!(
        "{}  {daemon}; {clouds} virtual routers\n",
        style.bold("edges")
    );
    let gateway = match &status.gateway {
        Some(gateway) => format!(
            "xcp gateway is running, {} connections",
            gateway.connections
        ),
        None => "xcp gateway is not running".into(),
    };
    text + &format!("{}  {gateway}\n", style.bold("gateway"))
}

fn host_line(status: &Status) -> String {
    let Some(host) = &status.host else {
        return "off".into();
    };
    let group = host
        .cgroup
        .as_deref()
        .map_or("xcp run".into(), |p| p.display().to_string());
    let how = match host.default {
        true => "default for new sockets",
        false => "for sockets that choose it",
    };
    let counters = &host.counters;
    format!(
        "on ({group}), {how}; connections: {} with XCP, {} fell back",
        counters.sockets,
        counters.fallbacks.total()
    )
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::tests::status as router;

    #[test]
    fn status_of_many_routers_takes_about_ten_lines() {
        let mut status = Status {
            host: None,
            routers: vec![router(); 200],
            clouds: Vec::new(),
            edge: None,
            gateway: None,
        };
        let text = describe(&status, &Style(false));
        assert!(
            text.starts_with("host  off\nrouters  200\n  device "),
            "{text}"
        );
        assert!(text.contains("\n  and 195 more: xcp router show\n"));
        assert!(text.ends_with("\ngateway  xcp gateway is not running\n"));
        assert!(text.lines().count() <= 11, "{text}");
        status.routers.clear();
        assert_eq!(describe(&status, &Style(false)).lines().count(), 4);
    }
}

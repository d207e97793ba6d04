// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp status`: shows the state of XCP on this machine on one screen.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use xcp_daemon::status_socket::process_of;
use xcp_datapath::{cloud, host, netns_inode, require_access, router};
use xcp_edged::status as edge;
use xcp_gateway::status as gateway;

use crate::router::overview;
use xcp_cli::failure::{print_error, Failure};
use xcp_cli::out::{Out, Style};

/// Number of routers that the text lists.
const ROUTERS_MAX: usize = 5;

/// The state of all parts.
#[derive(Default, Serialize)]
struct Status {
    /// The parts that could not be read. They are missing from the others, and their errors
    /// are printed to standard error.
    unreadable: Vec<Part>,
    host: Option<host::Status>,
    routers: Vec<router::Status>,
    clouds: Vec<cloud::Status>,
    /// The status of the edge daemon, if it runs in this network namespace.
    edge: Option<edge::Status>,
    /// The status of the gateway, if it runs in this network namespace.
    gateway: Option<gateway::Status>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Host,
    Routers,
    Clouds,
    Edge,
    Gateway,
}

pub fn act(out: &Out) -> Result<ExitCode, Failure> {
    require_access("xcp status")?;
    let mut status = Status::default();
    if host::is_on() {
        status.host = status.known(Part::Host, host::status().map(Some));
    }
    status.routers = status.known(Part::Routers, router::list());
    status.clouds = status.known(Part::Clouds, cloud::list());
    let edge = daemon(edge::SOCKET, edge::ask, |edge| edge.netns);
    status.edge = status.known(Part::Edge, edge);
    let gateway = daemon(gateway::SOCKET, gateway::ask, |gateway| gateway.netns);
    status.gateway = status.known(Part::Gateway, gateway);
    out.print(&status, |style| describe(&status, style))?;
    Ok(match status.unreadable.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The status of a daemon, if it runs in this network namespace.
fn daemon<T>(
    socket: &str,
    ask: impl Fn(&Path) -> xcp_datapath::Result<T>,
    netns: impl Fn(&T) -> u64,
) -> xcp_datapath::Result<Option<T>> {
    let path = Path::new(socket);
    if process_of(path).is_none() {
        return Ok(None);
    }
    let status = ask(path)?;
    Ok((netns(&status) == netns_inode()?).then_some(status))
}

impl Status {
    /// Returns a part, or prints why it cannot be read.
    fn known<T: Default>(&mut self, part: Part, read: xcp_datapath::Result<T>) -> T {
        read.unwrap_or_else(|error| {
            print_error(&format!("xcp: {}", Failure::from(error).with_help()));
            self.unreadable.push(part);
            T::default()
        })
    }

    /// The text of a part, or that it could not be read.
    fn text(&self, part: Part, text: String) -> String {
        match self.unreadable.contains(&part) {
            true => "cannot be read, see the error".into(),
            false => text,
        }
    }
}

fn describe(status: &Status, style: &Style) -> String {
    let mut text = format!("{}  {}\n", style.bold("host"), host_line(status));
    let routers = status.text(Part::Routers, status.routers.len().to_string());
    text += &format!("{}  {routers}\n", style.bold("routers"));
    let listed = &status.routers[..status.routers.len().min(ROUTERS_MAX)];
    if !listed.is_empty() {
        text += &indent(&overview(listed, style));
    }
    if status.routers.len() > listed.len() {
        let more = status.routers.len() - listed.len();
        text += &format!("  and {more} more: xcp router show\n");
    }
    let daemon = match &status.edge {
        Some(edge) => {
            let mut text = format!(
                "xcp edged is running, upstream edges: {}",
                edge.clouds.len()
            );
            if !edge.unreachable.is_empty() {
                text += &format!(", without a route: {}", edge.unreachable.len());
            }
            if edge.failure.is_some() {
                text += ", not in the data path (see xcp edged show)";
            }
            text
        }
        None => status.text(Part::Edge, "xcp edged is not running".into()),
    };
    let clouds = status.text(Part::Clouds, status.clouds.len().to_string());
    text += &format!(
        "{}  {daemon}; virtual routers: {clouds}\n",
        style.bold("edges")
    );
    let gateway = match &status.gateway {
        Some(gateway) => format!(
            "xcp gateway is running, {} connections",
            gateway.connections
        ),
        None => status.text(Part::Gateway, "xcp gateway is not running".into()),
    };
    text + &format!("{}  {gateway}\n", style.bold("gateway"))
}

fn host_line(status: &Status) -> String {
    let Some(host) = &status.host else {
        return status.text(Part::Host, "off".into());
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
        "on ({group}), {how}; connections so far: {} with XCP, {} fell back",
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
            routers: vec![router(); 200],
            ..Status::default()
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

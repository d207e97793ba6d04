// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp host`: switches XCP on and off on this host.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use xcp_abi::XCP_2005_SHIFT;
use xcp_datapath::connections::{self, Connection};
use xcp_datapath::host::{
    self, Change, NetnsScope, Options, PeerPolicies, Status, Sums2005, TurnedOn,
};
use xcp_datapath::socket::Outcome;
use xcp_datapath::{Fallback, Fallbacks, PeerPolicy, SenderFeature};

use crate::{device, gateway};
use xcp_cli::cli::{HostAction, HostOn};
use xcp_cli::failure::Failure;
use xcp_cli::out::{Out, Style};
use xcp_cli::table;
use xcp_cli::units;

pub fn act(action: HostAction, out: &Out) -> Result<ExitCode, Failure> {
    match action {
        HostAction::On(asked) => on(&asked, out)?,
        HostAction::Off => {
            host::off()?;
            gateway::warn_without_host();
            out.print(&json!({ "change": "removed" }), |_| "XCP is off".into())?;
        }
        HostAction::Show { connections: true } => {
            let all = connections::list()?;
            out.print(&all, |_| describe_connections(&all))?;
        }
        HostAction::Show { .. } => {
            let status = host::status()?;
            out.print(&status, |style| describe(&status, style))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn on(asked: &HostOn, out: &Out) -> Result<(), Failure> {
    let peer_policies = PeerPolicies::new(
        asked.wire,
        &asked.devices,
        &asked.peers,
        asked.header.ip_proto,
    )?;
    if asked.wire.is_header() {
        refuse_gateway(asked)?;
    }
    let options = Options {
        cgroup: asked.cgroup.clone(),
        this_netns: asked.netns,
        make_default: asked.default,
        peer_policies,
        socket_protocol: asked.socket_protocol.unwrap_or_default(),
        without: asked.without.clone(),
        ..Default::default()
    };
    let done = host::on(&options)?;
    let value = json!({
        "change": done.change,
        "cgroup": options.cgroup,
        "netns": if asked.netns { NetnsScope::This } else { NetnsScope::All },
        "default": asked.default,
        "without": asked.without,
        "wire": asked.wire,
        "peers": asked.peers,
        "devices": asked.devices,
        "socket_protocol": done.sockets.number,
        "socket_protocol_note": done.sockets.note,
    });
    out.print(&value, |_| turned_on(&done, &options))
}

/// Fails if headers would be on the WAN device of a running gateway.
fn refuse_gateway(asked: &HostOn) -> Result<(), Failure> {
    match xcp_gateway::status::here() {
        Some(gateway) if device::contains(&asked.devices, &gateway.wan) => Err(Failure::new(
            gateway.wan,
            format!(
                "is the WAN device of a gateway, which cannot use wire format {}",
                asked.wire
            ),
            "use the wire format option, or end the gateway: xcp gateway off",
        )),
        _ => Ok(()),
    }
}

fn turned_on(done: &TurnedOn, options: &Options) -> String {
    let state = match done.change {
        Change::Added => "XCP is on",
        Change::Changed => "XCP is on, changed",
        Change::Unchanged => "XCP was already on, nothing changed",
    };
    let sockets = scope(options.cgroup.as_deref());
    let which = if options.make_default {
        format!("new sockets of {sockets} use it unless they choose another")
    } else {
        format!("sockets of {sockets} use it if they choose it (TCP_CONGESTION \"xcp\")")
    };
    let how: String = options
        .peer_policies
        .policies
        .iter()
        .map(|s| format!("\n{}", describe_peer_policy(s)))
        .collect();
    let without = match names(&options.without) {
        none if none.is_empty() => String::new(),
        some => format!("\nwithout {}", some.join(", ")),
    };
    format!(
        "{state}: {which}{how}{without}\n{}",
        by_number(&done.sockets)
    )
}

fn describe_peer_policy(policy: &PeerPolicy) -> String {
    match (policy.wire, policy.peers) {
        (Some(wire), Some(peers)) => format!("{wire} with {peers}"),
        (Some(wire), None) => format!("{wire} with all peers"),
        (None, Some(peers)) => format!("no XCP with {peers}"),
        (None, None) => "no XCP with others".to_owned(),
    }
}

fn names(features: &[SenderFeature]) -> Vec<String> {
    features.iter().map(SenderFeature::to_string).collect()
}

/// Describes whether sockets of type IPPROTO_XCP can be opened.
fn by_number(sockets: &Outcome) -> String {
    match sockets {
        Outcome {
            number: Some(number),
            ..
        } => format!("socket(AF_INET or AF_INET6, SOCK_STREAM, {number}) opens one with XCP\n"),
        Outcome {
            note: Some(reason), ..
        } => format!("note: sockets of type IPPROTO_XCP are not available: {reason}\n"),
        _ => String::new(),
    }
}

fn describe_netns_scope(netns: NetnsScope) -> &'static str {
    match netns {
        NetnsScope::All => "all",
        NetnsScope::This => "only this one",
        NetnsScope::Another => "only another one",
    }
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
    let listed = |all: Vec<String>, none: &str| {
        if all.is_empty() {
            none.to_owned()
        } else {
            all.join(", ")
        }
    };
    let wires = listed(
        status.wires.iter().map(describe_peer_policy).collect(),
        "option with all peers",
    );
    let devices = listed(status.devices.clone(), "none");
    let without = listed(names(&status.without), "nothing");
    let rows = [
        (
            "control group",
            group.map_or("only those of xcp run".into(), |p| p.display().to_string()),
        ),
        (
            "network namespaces",
            describe_netns_scope(status.netns).into(),
        ),
        ("default", if status.default { "yes" } else { "no" }.into()),
        ("switched off", without),
        ("wire formats", wires),
        ("devices", devices),
        (
            "socket protocol",
            status
                .socket_protocol
                .map_or("none".into(), |n| n.to_string()),
        ),
        ("connections with XCP", c.sockets.to_string()),
        ("connections that fell back", fallbacks(&c.fallbacks)),
        ("forward headers sent", c.forward_sent.to_string()),
        ("forward headers received", c.forward_received.to_string()),
        ("return headers sent", c.return_sent.to_string()),
        ("return headers received", c.return_received.to_string()),
        ("ACKs full of SACK blocks", c.return_no_room.to_string()),
        ("SACK blocks removed", c.sacks_trimmed.to_string()),
        ("headers omitted", c.header_omitted.to_string()),
        ("malformed headers", c.malformed.to_string()),
        ("implausible headers", c.implausible.to_string()),
        ("deltas received", sum(c.received_bytes_per_s)),
        ("deltas returned", sum(c.returned_bytes_per_s)),
        ("deltas not returned", sum(c.unreturned_bytes_per_s)),
        ("feedback received", sum(c.feedback_bytes_per_s)),
        ("feedback applied", sum(c.applied_bytes_per_s)),
    ];
    let mut text = format!("{head}\n{}", table::pairs(&rows));
    if c.option_2005 != Sums2005::default() {
        text += &table::pairs(&in_packets(&c.option_2005));
    }
    text
}

/// The number of connections that fell back, with the reasons.
fn fallbacks(fallbacks: &Fallbacks) -> String {
    let reasons = Fallback::ALL.into_iter().filter_map(|reason| {
        let n = fallbacks.of(reason);
        (n > 0).then(|| format!("{n} {reason}"))
    });
    match fallbacks.total() {
        0 => "0".into(),
        total => format!("{total}: {}", reasons.collect::<Vec<_>>().join(", ")),
    }
}

fn describe_connections(all: &[Connection]) -> String {
    let hops = |n: Option<u8>| n.map_or_else(|| "-".into(), |n| n.to_string());
    let head = [
        "local",
        "peer",
        "control",
        "format",
        "XCP hops",
        "other hops",
        "fell back",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(all.iter().map(|c| {
        vec![
            c.local.to_string(),
            c.peer.to_string(),
            c.control.clone(),
            c.wire.map_or("-", |wire| wire.name()).into(),
            hops(c.xcp_hops),
            hops(c.other_hops),
            c.fallback.map_or_else(|| "-".into(), |f| f.to_string()),
        ]
    }));
    match all {
        [] => "No connection of this network namespace uses XCP or fell back".into(),
        _ => table::columns(&rows, usize::MAX),
    }
}

/// The feedback sums of the format `option-2005`, in packets.
fn in_packets(sums: &Sums2005) -> [(&'static str, String); 5] {
    let packets = |n: i64| {
        format!(
            "{:+.3} packets",
            n as f64 / f64::from(1u32 << XCP_2005_SHIFT)
        )
    };
    [
        ("deltas received", packets(sums.received)),
        ("deltas returned", packets(sums.returned)),
        ("deltas not returned", packets(sums.unreturned)),
        ("feedback received", packets(sums.feedback)),
        ("feedback applied", packets(sums.applied)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_aligned() {
        let status = Status {
            cgroup: Some("/sys/fs/cgroup".into()),
            netns: NetnsScope::This,
            default: true,
            without: vec![SenderFeature::Losses],
            wires: vec![],
            devices: vec![],
            socket_protocol: None,
            counters: host::Counters {
                sockets: 4,
                applied_bytes_per_s: 1_250_000,
                ..Default::default()
            },
        };
        let text = describe(&status, &Style(false));
        assert!(text.starts_with("XCP is on\n  control group               /sys/fs/cgroup\n"));
        assert!(text.contains("\n  switched off                losses\n"));
        assert!(text.contains("\n  connections with XCP        4\n"));
        assert!(text.contains("\n  connections that fell back  0\n"));
        assert!(text.ends_with("\n  feedback applied            +10.0 Mb/s\n"));
    }
}

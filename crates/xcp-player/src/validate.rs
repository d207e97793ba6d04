// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Checks the values in an experiment's file that TOML parsing does not check.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use xcp_datapath::router::OVERHEAD_RANGE_B;

use crate::experiment::{
    Capacity, Check, Chosen, Event, Experiment, Flow, Gateway, Link, Metric, Pages, Socket,
    Transfers, Variant, FLOWS_MAX, UDP,
};
use crate::{Error, Result};

const RATES_MBIT: RangeInclusive<f64> = 0.008..=100_000.0;
/// The kernel can drop one packet in at most 65535.
const LOSSES_PERCENT: RangeInclusive<f64> = 0.002..=50.0;
/// The range that a router accepts.
const MAX_RTTS_S: RangeInclusive<f64> = 0.001..=15.0;
/// From the kernel's smallest buffer to what its counter can hold.
const BUFFERS_B: RangeInclusive<u64> = 4608..=1_000_000_000;
const MTUS: RangeInclusive<u32> = 576..=65_535;
/// The payloads that fit into a packet of 1500 bytes, also over IPv6.
const PAYLOADS: RangeInclusive<usize> = 1..=1452;

/// Users and objects are limited so that pages have at most 1000 connections at once.
const USERS_MAX: usize = 100;
const OBJECTS_MAX: usize = 10;
/// The largest number of transfers, because each has its own port.
const TRANSFERS_MAX: usize = 10_000;

/// Fails if the experiment cannot be played.
pub fn validate(experiment: &Experiment, file: &str) -> Result<()> {
    fault(experiment).map_or(Ok(()), |reason| {
        Err(Error::new(
            file,
            reason,
            "see the files in experiments/ for examples",
        ))
    })
}

/// Returns the first error, if there is one.
fn fault(experiment: &Experiment) -> Option<String> {
    let nodes = experiment.nodes();
    if !(experiment.warmup_s >= 0.0
        && experiment.duration_s > experiment.warmup_s
        && experiment.duration_s <= 3600.0)
    {
        return Some("duration_s must be more than warmup_s, and at most 3600".into());
    }
    if let Some(reason) = ip_fault(experiment.ip) {
        return Some(reason);
    }
    let largest = experiment.buffer_bytes;
    let first = experiment.receive_start_bytes.unwrap_or(largest);
    if !(BUFFERS_B.contains(&largest) && (*BUFFERS_B.start()..=largest).contains(&first)) {
        return Some(
            "buffers must be 4608 bytes to 1 GB, receive_start_bytes at most buffer_bytes".into(),
        );
    }
    if experiment.links.len() > 250 {
        return Some("at most 250 links".into());
    }
    if let Some(node) = nodes
        .iter()
        .find(|n| n.is_empty() || n.len() > 7 || !n.chars().all(|c| c.is_ascii_alphanumeric()))
    {
        return Some(format!(
            "node {node:?}: a name must have 1 to 7 letters and digits"
        ));
    }
    for link in &experiment.links {
        let [a, b] = &link.between;
        if let Some(reason) = link.fault() {
            return Some(format!("link {a}-{b}: {reason}"));
        }
    }
    if experiment
        .bottleneck_link()
        .is_none_or(|l| l.queue_packets.is_none())
    {
        return Some("bottleneck: no link with queue_packets between these nodes".into());
    }
    let traffic = !experiment.flows.is_empty()
        || experiment.transfers.is_some()
        || experiment.pages.is_some();
    if !traffic || experiment.variants.is_empty() {
        return Some("needs at least one flow, or transfers or pages, and one variant".into());
    }
    if let Some(reason) = experiment
        .pages
        .as_ref()
        .and_then(|p| pages_fault(&nodes, p))
    {
        return Some(format!("pages: {reason}"));
    }
    if let Some(reason) = experiment
        .transfers
        .as_ref()
        .and_then(|t| transfers_fault(&nodes, t))
    {
        return Some(format!("transfers: {reason}"));
    }
    if experiment.flows.len() > FLOWS_MAX {
        return Some(format!("at most {FLOWS_MAX} flows"));
    }
    let in_run = |[from_s, to_s]: &[f64; 2]| {
        *from_s >= 0.0 && from_s < to_s && *to_s <= experiment.duration_s
    };
    if !experiment.periods.iter().all(in_run) {
        return Some("each period must begin before it ends, within the run".into());
    }
    for flow in &experiment.flows {
        if let Some(reason) = flow_fault(experiment, &nodes, flow) {
            return Some(format!("flow {}: {reason}", flow.name));
        }
    }
    for gateway in &experiment.gateways {
        let Gateway { node, lan, wan } = gateway;
        let is_link = |a: &String, b: &String| {
            let mut links = experiment.links.iter();
            a != b && links.any(|l| l.between.contains(a) && l.between.contains(b))
        };
        if !is_link(node, lan) || !is_link(node, wan) || lan == wan {
            return Some(format!(
                "gateway {node}: lan and wan must be two of its neighbours"
            ));
        }
    }
    for cloud in &experiment.clouds {
        let [a, b] = &cloud.between;
        if !nodes.contains(a) || !nodes.contains(b) || a == b {
            return Some(format!("cloud {a}-{b}: between must be two nodes"));
        }
    }
    for event in &experiment.events {
        if let Some(reason) = event_fault(experiment, event) {
            return Some(format!("event at {} s: {reason}", event.at_s));
        }
    }
    for variant in &experiment.variants {
        if let Some(reason) = variant_fault(experiment, variant) {
            return Some(format!("variant {}: {reason}", variant.name));
        }
    }
    let mut checks = experiment.checks.iter();
    checks
        .find_map(|c| check_fault(experiment, c))
        .map(|reason| format!("check: {reason}"))
}

fn ip_fault(version: u8) -> Option<String> {
    let known = version == 4 || version == 6;
    (!known).then(|| format!("ip must be 4 or 6, not {version}"))
}

fn transfers_fault(nodes: &BTreeSet<String>, transfers: &Transfers) -> Option<String> {
    let Transfers { from, to, .. } = transfers;
    if !nodes.contains(from) || !nodes.contains(to) || from == to {
        return Some("from and to must be two nodes".into());
    }
    if !(1..=TRANSFERS_MAX).contains(&transfers.count) {
        return Some(format!("count must be 1 to {TRANSFERS_MAX}"));
    }
    if !(0.01..=10.0).contains(&transfers.load) {
        return Some("load must be 0.01 to 10".into());
    }
    sizes_fault(transfers.bytes)
}

fn pages_fault(nodes: &BTreeSet<String>, pages: &Pages) -> Option<String> {
    let Pages { client, server, .. } = pages;
    if !nodes.contains(client) || !nodes.contains(server) || client == server {
        return Some("client and server must be two nodes".into());
    }
    if !(1..=USERS_MAX).contains(&pages.users) || !(1..=OBJECTS_MAX).contains(&pages.objects) {
        return Some(format!(
            "at most {USERS_MAX} users, and {OBJECTS_MAX} objects per page"
        ));
    }
    sizes_fault(pages.bytes)
}

fn sizes_fault([least, most]: [u64; 2]) -> Option<String> {
    (least == 0 || least >= most).then(|| "bytes must be the smallest and the largest size".into())
}

fn flow_fault(experiment: &Experiment, nodes: &BTreeSet<String>, flow: &Flow) -> Option<String> {
    if !nodes.contains(&flow.from) || !nodes.contains(&flow.to) || flow.from == flow.to {
        return Some("from and to must be two nodes".into());
    }
    if flow.count == Some(0) {
        return Some("count must be at least 1".into());
    }
    let stop = flow.stop_s.unwrap_or(experiment.duration_s);
    if !(flow.start_s >= 0.0 && flow.start_s < stop && stop <= experiment.duration_s) {
        return Some("must start before it stops".into());
    }
    let pauses = flow.pauses.as_flattened();
    if !pauses.is_sorted_by(|a, b| a < b)
        || pauses.iter().any(|t| !(flow.start_s..stop).contains(t))
    {
        return Some("pauses must be in order, between its start and its stop".into());
    }
    if flow.udp_mbit.is_some_and(|r| !RATES_MBIT.contains(&r)) {
        return Some("udp_mbit must be 0.008 to 100000".into());
    }
    let buffers = [flow.send_buffer_bytes, flow.receive_buffer_bytes];
    let buffers: Vec<u32> = buffers.into_iter().flatten().collect();
    if flow.udp_mbit.is_some()
        && (flow.control.is_some()
            || flow.wire.is_some()
            || flow.burst.is_some()
            || !pauses.is_empty()
            || !buffers.is_empty())
    {
        return Some("UDP has no control, wire, pauses, bursts or buffers".into());
    }
    if let Some(burst) = flow.burst {
        if burst.bytes == 0 || !(0.0..=experiment.duration_s).contains(&burst.pause_s) {
            return Some("a burst needs bytes, and a pause no longer than the run".into());
        }
    }
    let most = experiment.buffer_bytes;
    let settable = *BUFFERS_B.start()..=most;
    if !buffers.iter().all(|b| settable.contains(&u64::from(*b))) {
        return Some(format!("its buffers must be 4608 to {most} bytes"));
    }
    if let Some(raised) = flow.send_buffer_raised_s {
        if flow.send_buffer_bytes.is_none() || !(flow.start_s..stop).contains(&raised) {
            return Some(
                "send_buffer_raised_s needs send_buffer_bytes, and a time while the flow runs"
                    .into(),
            );
        }
    }
    if !PAYLOADS.contains(&flow.payload_bytes) {
        return Some("payload_bytes must be 1 to 1452".into());
    }
    None
}

fn event_fault(experiment: &Experiment, event: &Event) -> Option<String> {
    if !(0.0..experiment.duration_s).contains(&event.at_s) {
        return Some("must be within the run".into());
    }
    let mut links = experiment.links.iter();
    let link = links.find(|l| event.between.as_ref() == Some(&l.between));
    if let Some(node) = event.kill_edge.as_ref().or(event.start_edge.as_ref()) {
        let mut clouds = experiment.clouds.iter();
        return (!clouds.any(|c| c.between.contains(node)))
            .then(|| "kill_edge and start_edge must name a node at the edge of a cloud".into());
    }
    match (link, event.delay_ms, event.mtu_bytes, &event.route) {
        (Some(link), Some(delay), None, None) => {
            if !link.needs_netem() {
                return Some("only the delay of a path can change".into());
            }
            (!Link::DELAYS_MS.contains(&delay)).then(|| "delay_ms must be 0 to 60000".into())
        }
        (Some(_), None, Some(bytes), None) => {
            (!MTUS.contains(&bytes)).then(|| "mtu_bytes must be 576 to 65535".into())
        }
        (None, None, None, Some([from, to, by])) if event.between.is_none() => {
            let joins = |a: &String, b: &String| {
                let mut links = experiment.links.iter();
                links.any(|l| l.between.contains(a) && l.between.contains(b))
            };
            let known = experiment.nodes().contains(to) && from != by && joins(from, by);
            (!known).then(|| "route must be [from, to, by], where by is a neighbour of from".into())
        }
        (None, Some(_), None, None) | (None, None, Some(_), None) => {
            Some("between must be the same as that of a link".into())
        }
        _ => Some(
            "give delay_ms or mtu_bytes with between, or route, kill_edge or start_edge".into(),
        ),
    }
}

fn variant_fault(experiment: &Experiment, variant: &Variant) -> Option<String> {
    if variant.gateway.is_some() && experiment.gateways.is_empty() {
        return Some("gateway needs a [[gateway]]".into());
    }
    let all = experiment.flows.len();
    match &variant.flows {
        Some(Chosen::First(n)) if *n == 0 || *n > all => {
            return Some(format!("flows must be 1 to {all}, the number of flows"));
        }
        Some(Chosen::Named(names)) => {
            let known = |name: &&String| experiment.flows.iter().any(|f| f.name == **name);
            if let Some(name) = names.iter().find(|n| !known(n)) {
                return Some(format!("no flow {name:?}"));
            }
            if names.is_empty() {
                return Some("at least one flow".into());
            }
        }
        _ => {}
    }
    if let Some(reason) = variant.ip.and_then(ip_fault) {
        return Some(reason);
    }
    if variant.socket == Socket::Protocol {
        let own = |f: &Flow| f.udp_mbit.is_none() && f.kind(variant) != "xcp";
        if variant.control != "xcp" || experiment.flows.iter().any(own) {
            return Some("the protocol number is XCP's: control must be \"xcp\"".into());
        }
    }
    if let Some(modem) = &variant.modem {
        let (late_ms, factor) = (0.0..=60_000.0, 0.01..=100.0);
        if !late_ms.contains(&modem.late_ms) || !factor.contains(&modem.factor) || !variant.measure
        {
            return Some(
                "modem: late_ms must be 0 to 60000, factor 0.01 to 100, and measure true".into(),
            );
        }
    }
    if let Some(Capacity::Mbit(rate)) = variant.capacity_mbit {
        if !RATES_MBIT.contains(&rate) {
            return Some("capacity_mbit must be 0.008 to 100000, or \"auto\"".into());
        }
    } else if variant.capacity_mbit.is_some() && !variant.measure {
        return Some("a capacity of \"auto\" needs measure = true".into());
    }
    if !OVERHEAD_RANGE_B.contains(&variant.overhead_bytes) {
        let (least, most) = (OVERHEAD_RANGE_B.start(), OVERHEAD_RANGE_B.end());
        return Some(format!("overhead_bytes must be {least} to {most}"));
    }
    if let Some(point) = variant
        .lose
        .keys()
        .find(|p| experiment.direction(p).is_none())
    {
        return Some(format!("lose: no link {point} between neighbouring nodes"));
    }
    if !variant.lose.values().all(|p| LOSSES_PERCENT.contains(p)) {
        return Some("lose must be 0.002 to 50 (percent)".into());
    }
    if variant.xcp_share.is_some_and(|p| !(1..=99).contains(&p)) {
        return Some("xcp_share must be 1 to 99 (percent)".into());
    }
    if !MAX_RTTS_S.contains(&variant.max_rtt_s) {
        return Some("max_rtt_s must be 0.001 to 15".into());
    }
    None
}

fn check_fault(experiment: &Experiment, check: &Check) -> Option<String> {
    let variants = experiment.variants.iter().filter(|v| check.is_of(&v.name));
    let variants: Vec<&Variant> = variants.collect();
    if variants.is_empty() {
        return Some(format!(
            "no variant {:?}",
            check.variant.as_deref().unwrap_or_default()
        ));
    }
    if check.min.is_some() == check.max.is_some() {
        return Some("give either min or max".into());
    }
    // one line, as the table of a run has one line per check
    let says_why = |why: &String| !why.trim().is_empty() && !why.contains(char::is_control);
    if !check.known_gap.as_ref().is_none_or(says_why) {
        return Some("known_gap must give the reason, in one line".into());
    }
    let of_periods = matches!(check.metric, Metric::PeriodUtilisation | Metric::PeriodJain);
    if of_periods && experiment.periods.is_empty() {
        return Some(format!("{} needs periods", check.metric.name()));
    }
    match (&check.kind, check.metric.of_kind()) {
        (Some(kind), true) => variants
            .into_iter()
            .find_map(|variant| kind_fault(experiment, variant, kind)),
        (None, true) => Some(format!(
            "{} needs a kind of flows: kind = \"xcp\", \"cubic\" or \"{UDP}\"",
            check.metric.name()
        )),
        (Some(_), false) => Some(format!(
            "{} is about all flows: remove kind",
            check.metric.name()
        )),
        (None, false) => None,
    }
}

fn kind_fault(experiment: &Experiment, variant: &Variant, kind: &str) -> Option<String> {
    let flows = experiment.of_variant(variant).flows;
    let kinds: BTreeSet<&str> = flows.iter().map(|f| f.kind(variant)).collect();
    (!kinds.contains(kind)).then(|| {
        let known: Vec<&str> = kinds.into_iter().collect();
        format!("no flow of kind {kind:?}: there are {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    const FILE: &str = r#"
name = "x"
source = "a test"
about = "two kinds of flows"
duration_s = 10
warmup_s = 4
bottleneck = ["r", "d"]

[[link]]
between = ["s", "r"]

[[link]]
between = ["r", "d"]
rate_mbit = 10
queue_packets = 100

[[flow]]
name = "1"
from = "s"
to = "d"

[[flow]]
name = "2"
from = "s"
to = "d"
control = "cubic"

[[flow]]
name = "3"
from = "d"
to = "s"
udp_mbit = 4

[[variant]]
name = "v"
control = "xcp"
queue = "xcp"

[[check]]
variant = "v"
metric = "share"
kind = "cubic"
min = 0.45
"#;

    /// The error in the file with `line` replaced by `instead`; empty if it is
    /// valid.
    fn said(line: &str, instead: &str) -> String {
        assert!(FILE.contains(line), "{line}");
        match Experiment::parse("x.toml", &FILE.replacen(line, instead, 1)) {
            Ok(_) => String::new(),
            Err(e) => e.reason,
        }
    }

    #[test]
    fn valid_fields_are_accepted() {
        let variant = |more: &str| said("queue = \"xcp\"", &format!("queue = \"xcp\"\n{more}"));
        for more in [
            "",
            "capacity_mbit = 9.5",
            "capacity_mbit = \"auto\"",
            "measure = false",
            "anticipate = false",
            "law_level = true",
            "overhead_bytes = -14\nmpu_bytes = 64",
            "xcp_share = 50\nmax_rtt_s = 2",
            "quick = true\nkernels = [\"6.12\"]\nip = 6",
            "without = [\"losses\"]",
            "modem = { late_ms = 200, factor = 0.5 }",
            "ecn = true",
            "sack = false",
            "lose = { s-r = 0.01, d-r = 50 }",
            "flows = 2",
            "flows = [\"2\", \"3\"]",
        ] {
            assert_eq!(variant(more), "", "{more}");
        }
        let flow = |more: &str| said("control = \"cubic\"", more);
        for more in [
            "control = \"cubic\"\nburst = { bytes = 1, pause_s = 0 }",
            "control = \"cubic\"\nsend_buffer_bytes = 4608\nsend_buffer_raised_s = 1",
            "control = \"cubic\"\nreceive_buffer_bytes = 16000000",
        ] {
            assert_eq!(flow(more), "", "{more}");
        }
        let event = |more: &str| {
            said(
                "[[variant]]",
                &format!("[[event]]\nat_s = 5\n{more}\n[[variant]]"),
            )
        };
        for more in [
            "between = [\"r\", \"d\"]\nmtu_bytes = 1000",
            "route = [\"s\", \"d\", \"r\"]",
        ] {
            assert_eq!(event(more), "", "{more}");
        }
        let check = "[[check]]\nvariant = \"v\"\n";
        assert_eq!(said(check, "[[check]]\n"), "", "a check of all variants");
        let marked = "min = 0.45\nknown_gap = \"CUBIC backs off\"";
        assert_eq!(said("min = 0.45", marked), "");
        let link = |more: &str| said("rate_mbit = 10", more);
        for more in [
            "rates = [[0, 10], [5, 2.5]]\nrepeat_s = 10",
            "rate_mbit = 10\nhalf_duplex = true\nframing_bytes = 24",
            "rate_mbit = 10\nrouter = false",
        ] {
            assert_eq!(link(more), "", "{more}");
        }
    }

    #[test]
    fn invalid_experiments_are_rejected() {
        for (line, instead, reason) in [
            (
                "rate_mbit = 10",
                "rates = [[1, 5]]",
                "link r-d: the steps of rates must begin at 0",
            ),
            (
                "between = [\"s\", \"r\"]",
                "between = [\"s\", \"r\"]\nhalf_duplex = true",
                "link s-r: rates, half_duplex",
            ),
            (
                "rate_mbit = 10",
                "rate_mbit = 10\ndelay_ms = 1",
                "link r-d: a link with a queue has no delay",
            ),
            (
                "[[variant]]",
                "[[gateway]]\nnode = \"r\"\nlan = \"s\"\nwan = \"s\"\n[[variant]]",
                "gateway r: lan and wan must be two of its neighbours",
            ),
            (
                "[[variant]]",
                "[[gateway]]\nnode = \"s\"\nlan = \"r\"\nwan = \"d\"\n[[variant]]",
                "gateway s: lan and wan must be two of its neighbours",
            ),
            (
                "queue = \"xcp\"",
                "gateway = \"xcp\"",
                "variant v: gateway needs a [[gateway]]",
            ),
            (
                "queue = \"xcp\"",
                "modem = {}\nmeasure = false\ncapacity_mbit = 10",
                "variant v: modem",
            ),
            (
                "queue = \"xcp\"",
                "lose = { s-d = 1 }",
                "variant v: lose: no link s-d",
            ),
            (
                "queue = \"xcp\"",
                "lose = { s-r = 51 }",
                "variant v: lose must be 0.002 to 50",
            ),
            ("udp_mbit = 4", "udp_mbit = 0", "flow 3: udp_mbit"),
            (
                "[[variant]]",
                "[transfers]\nfrom = \"s\"\nto = \"d\"\ncount = 9\nload = 1\nbytes = [9, 9]\n[[variant]]",
                "transfers: bytes must be the smallest and the largest size",
            ),
            (
                "udp_mbit = 4",
                "count = 0\nudp_mbit = 4",
                "flow 3: count must",
            ),
            (
                "udp_mbit = 4",
                "udp_mbit = 4\ncount = 999",
                "at most 1000 flows",
            ),
            (
                "warmup_s = 4",
                "warmup_s = 4\nperiods = [[5, 6], [9, 11]]",
                "each period must begin before it ends",
            ),
            (
                "metric = \"share\"\nkind = \"cubic\"",
                "metric = \"period_jain\"",
                "check: periods.jain needs periods",
            ),
            (
                "udp_mbit = 4",
                "udp_mbit = 4\nwire = \"header\"",
                "flow 3: UDP has no control",
            ),
            (
                "control = \"cubic\"",
                "burst = { bytes = 0, pause_s = 1 }",
                "flow 2: a burst needs bytes",
            ),
            (
                "control = \"cubic\"",
                "receive_buffer_bytes = 1000",
                "flow 2: its buffers must be 4608 to 16000000 bytes",
            ),
            (
                "control = \"cubic\"",
                "send_buffer_raised_s = 5",
                "flow 2: send_buffer_raised_s needs send_buffer_bytes",
            ),
            (
                "warmup_s = 4",
                "warmup_s = 4\nbuffer_bytes = 65536\nreceive_start_bytes = 65537",
                "buffers must be 4608 bytes to 1 GB, receive_start_bytes at most buffer_bytes",
            ),
            (
                "[[variant]]",
                "[[event]]\nat_s = 5\nbetween = [\"r\", \"d\"]\ndelay_ms = 1\n[[variant]]",
                "event at 5 s: only the delay of a path",
            ),
            (
                "[[variant]]",
                "[[event]]\nat_s = 5\nroute = [\"s\", \"d\", \"d\"]\n[[variant]]",
                "event at 5 s: route must be [from, to, by], where",
            ),
            (
                "[[variant]]",
                "[[event]]\nat_s = 10\nmtu_bytes = 1000\n[[variant]]",
                "event at 10 s: must be within the run",
            ),
            (
                "[[variant]]",
                "[[event]]\nat_s = 5\nmtu_bytes = 1000\n[[variant]]",
                "event at 5 s: between must be the same as that of a link",
            ),
            (
                "udp_mbit = 4",
                "udp_mbit = 4\npayload_bytes = 1453",
                "flow 3: payload_bytes",
            ),
            (
                "queue = \"xcp\"",
                "flows = 4",
                "variant v: flows must be 1 to 3",
            ),
            (
                "queue = \"xcp\"",
                "flows = []",
                "variant v: at least one flow",
            ),
            (
                "queue = \"xcp\"",
                "flows = [\"4\"]",
                "variant v: no flow \"4\"",
            ),
            (
                "queue = \"xcp\"",
                "flows = \"all\"",
                "a number of flows, or a list of their names",
            ),
            (
                "queue = \"xcp\"",
                "capacity_mbit = 0",
                "variant v: capacity_mbit",
            ),
            (
                "queue = \"xcp\"",
                "capacity_mbit = \"much\"",
                "Mb/s, or \"auto\"",
            ),
            (
                "queue = \"xcp\"",
                "capacity_mbit = \"auto\"\nmeasure = false",
                "variant v: a capacity of \"auto\" needs",
            ),
            (
                "queue = \"xcp\"",
                "ip = 5",
                "variant v: ip must be 4 or 6, not 5",
            ),
            (
                "queue = \"xcp\"",
                "without = [\"care\"]",
                "unknown variant `care`, expected one of `losses`, `idle`, `app-limit`",
            ),
            (
                "queue = \"xcp\"",
                "overhead_bytes = -65",
                "variant v: overhead_bytes must be -64 to 4096",
            ),
            (
                "queue = \"xcp\"",
                "socket = \"protocol\"",
                "variant v: the protocol number is XCP's",
            ),
            (
                "[[check]]\nvariant = \"v\"",
                "[[check]]\nvariant = \"w\"",
                "check: no variant \"w\"",
            ),
            ("kind = \"cubic\"", "", "check: share needs a kind"),
            (
                "kind = \"cubic\"",
                "kind = \"bbr\"",
                "check: no flow of kind \"bbr\": there are cubic, udp, xcp",
            ),
            ("\"share\"", "\"jain\"", "check: jain is about all flows"),
            (
                "min = 0.45",
                "min = 0.45\nknown_gap = \"\"",
                "check: known_gap must give the reason",
            ),
            (
                "min = 0.45",
                "min = 0.45\nknown_gap = \" \"",
                "check: known_gap must give the reason",
            ),
            (
                "min = 0.45",
                "min = 0.45\nknown_gap = \"a\\nb\"",
                "check: known_gap must give the reason, in one line",
            ),
            (
                "min = 0.45",
                "min = 0.45\nknown_gap = true",
                "invalid type: boolean",
            ),
        ] {
            let said = said(line, instead);
            assert!(said.contains(reason), "{instead}: {said}");
        }
    }
}

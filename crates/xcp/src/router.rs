// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp router`: manages the XCP routers of this network namespace.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;
use xcp_datapath::router::{
    self, Cells, Change, Framing, LawTerms, Limits, Options, Queueing, Status,
};
use xcp_datapath::{cloud, LawTerm, Warning};

use crate::device::is_same_device;
use crate::{feed, trace, watch};
use xcp_cli::capacity::Capacity;
use xcp_cli::cli::{RouterAction, RouterAdd};
use xcp_cli::failure::{print_error, Failure};
use xcp_cli::out::{Out, Style};
use xcp_cli::{table, units};

pub fn act(action: RouterAction, out: &Out) -> Result<ExitCode, Failure> {
    match action {
        RouterAction::Add(asked) => add(&asked, out)?,
        RouterAction::Set(asked) => feed::set(&asked, out)?,
        RouterAction::Feed(asked) => return feed::feed(&asked, out),
        RouterAction::Del { device } => {
            router::del(&device)?;
            let value = json!({ "device": device, "change": "removed" });
            out.print(&value, |_| format!("{device}: no longer an XCP router"))?;
        }
        RouterAction::Show { device, watch } => return show(device.as_deref(), watch, out),
        RouterAction::Trace(asked) => return trace::act(&asked, out),
    }
    Ok(ExitCode::SUCCESS)
}

fn show(device: Option<&str>, again: bool, out: &Out) -> Result<ExitCode, Failure> {
    match device {
        Some(name) if again => {
            return watch::watch(
                out,
                || Ok(One::read(name)?),
                &watch_head(),
                |one| watch_lines(one.router.iter(), &one.clouds),
            );
        }
        None if again => {
            return watch::watch(
                out,
                || Ok(All::read()?),
                &watch_head(),
                |all| watch_lines(all.routers.iter(), &all.clouds),
            );
        }
        Some(name) => {
            let one = One::read(name)?;
            out.print(&one, |style| describe_one(&one, style))?;
        }
        None => {
            let all = All::read()?;
            out.print(&all, |style| describe_all(&all, style))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The router of a device, and its virtual routers.
#[derive(Serialize)]
struct One {
    #[serde(flatten)]
    router: Option<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clouds: Vec<cloud::Status>,
}

impl One {
    fn read(device: &str) -> xcp_datapath::Result<Self> {
        let mut clouds = cloud::list()?;
        clouds.retain(|cloud| is_same_device(&cloud.device, device));
        let router = match router::options(device)? {
            None if !clouds.is_empty() => None,
            _ => Some(router::show(device)?),
        };
        Ok(Self { router, clouds })
    }
}

fn describe_one(one: &One, style: &Style) -> String {
    let router = one.router.iter().map(|status| describe(status, style));
    let clouds = one.clouds.iter().map(|cloud| describe_cloud(cloud, style));
    router.chain(clouds).collect::<Vec<_>>().join("\n")
}

/// All routers and virtual routers of this network namespace.
#[derive(Serialize)]
struct All {
    routers: Vec<Status>,
    clouds: Vec<cloud::Status>,
}

impl All {
    fn read() -> xcp_datapath::Result<Self> {
        Ok(Self {
            routers: router::list()?,
            clouds: cloud::list()?,
        })
    }
}

/// Converts the command line options; fails if they contradict each other.
fn options(asked: &RouterAdd) -> Result<Options, Failure> {
    if asked.capacity == Capacity::Auto && asked.no_measure {
        return Err(Failure::new(
            "--no-measure",
            "contradicts --capacity auto, which measures the capacity",
            "give the capacity, or leave out --no-measure",
        )
        .bad_usage());
    }
    let framing = &asked.framing;
    Ok(Options {
        capacity_bytes_per_s: asked.capacity.bytes_per_s(),
        measure: !asked.no_measure,
        without: match asked.no_anticipate {
            true => LawTerms::all(),
            false => LawTerms::default(),
        },
        max_rtt: asked.max_rtt,
        xcp_share_percent: asked.xcp_share,
        framing: Framing {
            overhead_bytes: framing.overhead,
            mpu_bytes: framing.mpu,
            cells: match (framing.atm, framing.ptm) {
                (true, _) => Cells::Atm,
                (_, true) => Cells::Ptm,
                _ => Cells::None,
            },
        },
        queueing: queueing(asked)?,
        ip_proto: asked.header.ip_proto,
        ..Default::default()
    })
}

fn queueing(asked: &RouterAdd) -> Result<Queueing, Failure> {
    let rate = match (asked.shape, asked.capacity) {
        (None, _) if asked.no_qdisc => return Ok(Queueing::Keep),
        (None, _) => return Ok(Queueing::Auto(Limits::default())),
        (Some(Some(rate)), _) | (Some(None), Capacity::Rate(rate)) => rate,
        (Some(None), Capacity::Auto) => {
            return Err(Failure::new(
                "--shape",
                "needs a rate with --capacity auto",
                "give one, e.g. --shape 10mbit",
            )
            .bad_usage())
        }
    };
    Ok(Queueing::Shape {
        rate_bytes_per_s: rate.bytes_per_s,
        limit_packets: asked.limit.unwrap_or(0),
    })
}

/// The JSON output of `add`.
#[derive(Serialize)]
struct Added<'a> {
    device: &'a str,
    change: Change,
    capacity_bps: Option<u64>,
    measure: bool,
    xcp_share_percent: Option<u8>,
    #[serde(flatten)]
    framing: Framing,
    ip_proto: u8,
    warnings: Vec<Warning>,
}

fn add(asked: &RouterAdd, out: &Out) -> Result<(), Failure> {
    let device = asked.device.as_str();
    let options = options(asked)?;
    let change = router::add(device, options)?;
    let capacity_bps = match options.capacity_bytes_per_s {
        0 => None,
        bytes_per_s => Some(bytes_per_s * 8),
    };
    let value = Added {
        device,
        change,
        capacity_bps,
        measure: options.measure,
        xcp_share_percent: options.xcp_share_percent,
        framing: options.framing,
        ip_proto: options.ip_proto,
        warnings: router::show(device)?.warnings,
    };
    if !out.is_json() {
        for warning in &value.warnings {
            let Warning { reason, remedy, .. } = warning;
            print_error(&format!(
                "xcp: warning: {device}: {reason}\n  help: {remedy}"
            ));
        }
    }
    out.print(&value, |_| {
        let done = match change {
            Change::Added => "is an XCP router now",
            Change::Changed => "changed",
            Change::Unchanged => "was already an XCP router, nothing changed",
        };
        format!("{device}: {done}, {}", capacity(capacity_bps))
    })
}

/// Formats the configured capacity; `auto` if it is measured.
fn capacity(bps: Option<u64>) -> String {
    bps.map_or_else(|| "auto".into(), |bps| units::rate(bps as f64))
}

/// Formats the configured capacity, and the speed of the device if that has changed.
fn limit(status: &Status) -> String {
    let set = capacity(status.capacity_bps);
    match status.new_speed_bps {
        Some(bps) => format!(
            "{set}; the device's speed is now {}: add the router again",
            units::rate(bps as f64)
        ),
        None => set,
    }
}

fn framing(framing: &Framing) -> String {
    let mut text = format!("{} B per packet", framing.overhead_bytes);
    if framing.mpu_bytes > 0 {
        text += &format!(", at least {} B", framing.mpu_bytes);
    }
    match framing.cells {
        Cells::None => {}
        Cells::Atm => text += ", ATM cells",
        Cells::Ptm => text += ", PTM",
    }
    text
}

/// Prints a line for each router and each virtual router.
fn describe_all(all: &All, style: &Style) -> String {
    let mut tables = Vec::new();
    if !all.routers.is_empty() {
        tables.push(overview(&all.routers, style));
    }
    if !all.clouds.is_empty() {
        tables.push(clouds(&all.clouds, style));
    }
    let warnings: Vec<String> = all.routers.iter().flat_map(warnings).collect();
    if !warnings.is_empty() {
        tables.push(warnings.join("\n"));
    }
    if tables.is_empty() {
        return "No XCP router here. Add one: xcp router add DEV --capacity 10mbit".into();
    }
    tables.join("\n")
}

/// A table with a bold head.
fn headed(head: &[&str], rows: impl Iterator<Item = Vec<String>>, style: &Style) -> String {
    let head = head.iter().map(|name| (*name).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let text = table::columns(&rows, 1);
    match text.split_once('\n') {
        Some((head, rest)) => format!("{}\n{rest}", style.bold(head)),
        None => text,
    }
}

/// A table of routers.
pub fn overview(routers: &[Status], style: &Style) -> String {
    let head = [
        "device",
        "capacity",
        "in use",
        "XCP's share",
        "queue",
        "drops",
    ];
    let row = |status: &Status| {
        let in_use = status.capacity_in_use_bps;
        let share = match (&status.sharing, status.xcp_share_percent) {
            (Some(now), _) => Some(format!("{:.0} %", now.xcp_share * 100.0)),
            (None, set) => set.map(|percent| format!("{percent} %")),
        };
        let none = || "-".to_owned();
        vec![
            status.device.clone(),
            capacity(status.capacity_bps),
            in_use.map_or_else(none, |bps| units::rate(bps as f64)),
            share.unwrap_or_else(none),
            units::bytes(status.queue_bytes),
            status.drops.to_string(),
        ]
    };
    headed(&head, routers.iter().map(row), style)
}

/// A table of virtual routers.
fn clouds(clouds: &[cloud::Status], style: &Style) -> String {
    let head = ["virtual router", "state", "capacity", "input", "routers"];
    let row = |cloud: &cloud::Status| {
        vec![
            format!("{} -> {}", upstream(cloud), cloud.device),
            state(cloud).to_owned(),
            units::rate(cloud.link_bps as f64),
            units::rate(cloud.input_rate_bps as f64),
            cloud.routers.to_string(),
        ]
    };
    headed(&head, clouds.iter().map(row), style)
}

/// Formats a line of `--watch`, 80 columns wide.
fn watch_line(cells: [&str; 8]) -> String {
    let [device, capacity, input, queue, delay, flows, share, drops] = cells;
    format!(
        "{device:<14} {capacity:>10} {input:>10} {queue:>9} {delay:>9} {flows:>6} {share:>6} \
         {drops:>8}"
    )
}

fn watch_head() -> String {
    watch_line([
        "device", "capacity", "input", "queue", "delay", "flows", "share", "drops",
    ])
}

fn watch_lines<'a>(
    routers: impl Iterator<Item = &'a Status>,
    clouds: &[cloud::Status],
) -> Vec<String> {
    let router = |status: &Status| {
        let in_use = status.capacity_in_use_bps.or(status.capacity_bps);
        let share = status.sharing.as_ref().map(|now| now.xcp_share * 100.0);
        let delay_ms = in_use.map(|bps| status.queue_bytes as f64 * 8e3 / bps as f64);
        watch_line([
            &status.device,
            &in_use.map_or_else(|| "-".into(), |bps| units::rate(bps as f64)),
            &units::rate(status.input_rate_bps as f64),
            &units::bytes(status.queue_bytes),
            &delay_ms.map_or_else(|| "-".into(), units::milliseconds),
            &format!("{:.1}", status.xcp_flows),
            &share.map_or_else(|| "-".into(), |percent| format!("{percent:.0}%")),
            &status.drops.to_string(),
        ])
    };
    let cloud = |cloud: &cloud::Status| {
        watch_line([
            &format!("{}->{}", upstream(cloud), cloud.device),
            &units::rate(cloud.link_bps as f64),
            &units::rate(cloud.input_rate_bps as f64),
            "-",
            &units::milliseconds(cloud.queue_delay_ms),
            "-",
            "-",
            "-",
        ])
    };
    let lines: Vec<String> = routers
        .map(router)
        .chain(clouds.iter().map(cloud))
        .collect();
    match lines.is_empty() {
        true => vec!["no XCP router here".into()],
        false => lines,
    }
}

fn warnings(status: &Status) -> impl Iterator<Item = String> + '_ {
    let warning = |w: &Warning| format!("warning: {}: {}; {}", status.device, w.reason, w.remedy);
    status.warnings.iter().map(warning)
}

/// Describes a virtual router and its cloud.
fn describe_cloud(cloud: &cloud::Status, style: &Style) -> String {
    let head = style.bold(&format!("cloud {} -> {}", upstream(cloud), cloud.device));
    let rate = |bps: u64| units::rate(bps as f64);
    let free = |bps| {
        if cloud.free_bps > 0 {
            rate(bps)
        } else {
            "none, or not known".into()
        }
    };
    let age = |ms: Option<f64>| ms.map_or_else(|| "none yet".into(), units::milliseconds);
    let rows = [
        ("state", state(cloud).to_owned()),
        ("routers in it", cloud.routers.to_string()),
        ("last probe", age(cloud.age_ms)),
        ("queueing delay", units::milliseconds(cloud.queue_delay_ms)),
        ("free bandwidth", free(cloud.free_bps)),
        ("standard error", free(cloud.error_bps)),
        ("probe train", age(cloud.free_age_ms)),
        ("capacity for XCP", rate(cloud.link_bps)),
        ("input rate", rate(cloud.input_rate_bps)),
        ("average RTT", units::milliseconds(cloud.average_rtt_ms)),
        ("feedback", units::signed_rate(cloud.feedback_bps as f64)),
        ("XCP packets", cloud.xcp_packets.to_string()),
    ];
    format!("{head}\n{}", table::pairs(&rows))
}

/// The address of the upstream edge.
pub fn upstream(cloud: &cloud::Status) -> String {
    cloud.upstream.map_or("?".into(), |ip| ip.to_string())
}

fn state(cloud: &cloud::Status) -> &'static str {
    match cloud.state {
        cloud::State::Granting => "granting",
        cloud::State::Unknown => "suspended: no recent probe",
        cloud::State::Suspended => "suspended: other traffic fills its queue",
    }
}

fn law(status: &Status) -> String {
    let names: Vec<&str> = status.without.iter().map(|term| term.name()).collect();
    match names.len() {
        0 => "with all extensions".into(),
        all if all == LawTerm::ALL.len() => "as published".into(),
        _ => format!("without {}", names.join(", ")),
    }
}

fn qdisc(status: &Status) -> String {
    let present = status.qdisc.as_deref().unwrap_or("none");
    match status.qdisc_replaced {
        true => format!("{present}, which replaced xcp: XCP and other traffic share a queue"),
        false => present.to_owned(),
    }
}

fn before(status: &Status) -> String {
    match status.programs_before.join(", ") {
        none if none.is_empty() => "none".to_owned(),
        some => format!("{some}: may drop packets before the router"),
    }
}

fn measured(status: &Status) -> String {
    match status.link_bps {
        _ if !status.measure => "not measured".into(),
        None => "no measurement yet".into(),
        Some(bps) => units::rate(bps as f64),
    }
}

fn share(status: &Status) -> String {
    let how = status.xcp_share_percent.map_or_else(
        || "in proportion to the flows".into(),
        |percent| format!("{percent} %"),
    );
    let Some(now) = status.sharing else {
        return how;
    };
    format!(
        "{how}; now {:.0} % ({:.1} other flows with {})",
        now.xcp_share * 100.0,
        now.other_flows,
        units::rate(now.other_rate_bps as f64)
    )
}

fn describe(status: &Status, style: &Style) -> String {
    let head = style.bold(&status.device);
    let mut rows = vec![
        ("capacity", limit(status)),
        (
            "capacity in use",
            status
                .capacity_in_use_bps
                .map_or_else(|| "none yet".into(), |bps| units::rate(bps as f64)),
        ),
        ("link carries", measured(status)),
        (
            "capacity hint",
            status
                .hint_bps
                .map_or_else(|| "-".into(), |bps| units::rate(bps as f64)),
        ),
        ("XCP's share", share(status)),
        ("overhead", framing(&status.framing)),
        ("queue discipline", qdisc(status)),
        ("programs before it", before(status)),
        (
            "shaped to",
            status
                .shape_bps
                .map_or_else(|| "-".into(), |bps| units::rate(bps as f64)),
        ),
        ("law", law(status)),
        ("header protocol", status.ip_proto.to_string()),
        (
            "edge address",
            status.edge.map_or_else(|| "none".into(), |a| a.to_string()),
        ),
        ("input rate", units::rate(status.input_rate_bps as f64)),
        ("queue", units::bytes(status.queue_bytes)),
        (
            "persistent queue",
            units::bytes(status.persistent_queue_bytes),
        ),
        ("XCP's flows", format!("{:.1}", status.xcp_flows)),
        ("average RTT", units::milliseconds(status.average_rtt_ms)),
        ("RTT limit", units::milliseconds(status.max_rtt_ms)),
        ("feedback", units::signed_rate(status.feedback_bps as f64)),
        (
            "feedback handed out",
            units::signed_rate(status.counters.granted_bytes_per_s as f64 * 8.0),
        ),
        ("control intervals", status.control_intervals.to_string()),
    ];
    rows.extend(status.counters.rows());
    rows.push(("drops", status.drops.to_string()));
    let warnings: String = warnings(status).map(|text| format!("  {text}\n")).collect();
    format!("{head}\n{}{warnings}", table::pairs(&rows))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn status() -> Status {
        Status {
            device: "eth0".into(),
            capacity_bps: Some(10_000_000),
            hint_bps: None,
            speed_bps: Some(1_000_000_000),
            new_speed_bps: None,
            measure: true,
            capacity_in_use_bps: Some(8_200_000),
            link_bps: Some(8_100_000),
            xcp_share_percent: Some(60),
            sharing: None,
            framing: Framing {
                overhead_bytes: 18,
                mpu_bytes: 64,
                cells: Cells::Atm,
            },
            qdisc: Some("tbf".into()),
            qdisc_replaced: false,
            programs_before: Vec::new(),
            shape_bps: Some(10_000_000),
            ip_proto: 253,
            edge: None,
            input_rate_bps: 9_840_000,
            queue_bytes: 4_500,
            persistent_queue_bytes: 0,
            xcp_flows: 3.98,
            without: Vec::new(),
            average_rtt_ms: 502.14,
            max_rtt_ms: 1000.0,
            feedback_bps: -120_000,
            control_intervals: 42,
            counters: router::Counters::default(),
            drops: 3,
            warnings: Vec::new(),
        }
    }

    fn cloud() -> cloud::Status {
        cloud::Status {
            device: "eth1".into(),
            upstream: "192.0.2.1".parse().ok(),
            routers: 2,
            state: cloud::State::Unknown,
            age_ms: Some(12_000.0),
            queue_delay_ms: 3.51,
            free_bps: 47_620_000,
            error_bps: 6_140_000,
            free_age_ms: Some(2_104.4),
            link_bps: 50_000_000,
            input_rate_bps: 49_000_000,
            average_rtt_ms: 76.0,
            feedback_bps: 0,
            xcp_packets: 12,
        }
    }

    #[test]
    fn status_has_units() {
        let text = describe(&status(), &Style(false));
        for line in [
            "eth0\n  capacity             10.0 Mb/s\n  capacity in use      8.2 Mb/s\n",
            "\n  XCP's share          60 %\n",
            "\n  queue discipline     tbf\n  programs before it   none\n  shaped to            10.0 Mb/s\n",
            "\n  overhead             18 B per packet, at least 64 B, ATM cells\n",
            "\n  input rate           9.8 Mb/s\n  queue                4.5 kB\n",
            "\n  XCP's flows          4.0\n  average RTT          502.1 ms\n  RTT limit            1000.0 ms\n  feedback             -120.0 kb/s\n",
            "\n  malformed headers    0\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn virtual_routers_of_a_device_are_shown() {
        let one = One {
            router: Some(status()),
            clouds: vec![cloud()],
        };
        let text = describe_one(&one, &Style(false));
        for line in [
            "\n\ncloud 192.0.2.1 -> eth1\n  state             suspended: no recent probe\n",
            "\n  last probe        12000.0 ms\n  queueing delay    3.5 ms\n",
            "\n  free bandwidth    47.6 Mb/s\n  standard error    6.1 Mb/s\n  probe train       2104.4 ms\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn watch_has_a_line_for_each_router() {
        let lines = watch_lines([status()].iter(), &[cloud()]);
        assert_eq!(
            format!("{}\n{}", watch_head(), lines.join("\n")),
            "device           capacity      input     queue     delay  flows  share    drops\n\
             eth0             8.2 Mb/s   9.8 Mb/s    4.5 kB    4.4 ms    4.0      -        3\n\
             192.0.2.1->eth1  50.0 Mb/s  49.0 Mb/s         -    3.5 ms      -      -        -"
        );
    }

    #[test]
    fn list_has_a_line_for_each_router() {
        let mut all = All {
            routers: vec![status(), status()],
            clouds: vec![cloud()],
        };
        all.routers[1].warnings = vec![Warning {
            reason: "is a bridge".into(),
            remedy: "add routers to its ports".into(),
            hides_packets: true,
        }];
        let text = describe_all(&all, &Style(false));
        assert_eq!(
            text,
            "device   capacity    in use  XCP's share   queue  drops\n\
             eth0    10.0 Mb/s  8.2 Mb/s         60 %  4.5 kB      3\n\
             eth0    10.0 Mb/s  8.2 Mb/s         60 %  4.5 kB      3\n\
             \n\
             virtual router                          state   capacity      input  routers\n\
             192.0.2.1 -> eth1  suspended: no recent probe  50.0 Mb/s  49.0 Mb/s        2\n\
             \n\
             warning: eth0: is a bridge; add routers to its ports"
        );
        all.routers.clear();
        assert!(describe_all(&all, &Style(false)).starts_with("virtual router "));
        all.clouds.clear();
        assert!(describe_all(&all, &Style(false)).starts_with("No XCP router here."));
    }
}

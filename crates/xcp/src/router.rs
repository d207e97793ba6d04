// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp router`: devices that hand out their capacity.

use std::process::ExitCode;

use serde_json::json;
use xcp_datapath::router::{self, Change, Framing, Limits, Options, Queueing, Status};

use crate::cli::{RouterAction, RouterAdd};
use crate::failure::Failure;
use crate::out::{Out, Style};
use crate::table;
use crate::units;

pub fn act(action: RouterAction, out: &Out) -> Result<ExitCode, Failure> {
    match action {
        RouterAction::Add(asked) => add(&asked, out)?,
        RouterAction::Del { device } => {
            router::del(&device)?;
            let value = json!({ "device": device, "change": "removed" });
            out.print(&value, |_| format!("{device}: no XCP router any more"))?;
        }
        RouterAction::Show { device: Some(name) } => {
            let status = router::show(&name)?;
            out.print(&status, |style| describe(&status, style))?;
        }
        RouterAction::Show { device: None } => {
            let all = router::list()?;
            out.print(&all, |style| describe_all(&all, style))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn add(asked: &RouterAdd, out: &Out) -> Result<(), Failure> {
    let device = &asked.device;
    let options = Options {
        capacity_bytes_per_s: asked.capacity.bytes_per_s,
        framing: Framing {
            overhead_bytes: asked.overhead,
            ..Default::default()
        },
        queueing: if asked.no_qdisc {
            Queueing::Keep
        } else {
            Queueing::Auto(Limits::default())
        },
        ip_proto: asked.header.ip_proto,
        ..Default::default()
    };
    let change = router::add(device, options)?;
    let capacity_bps = options.capacity_bytes_per_s * 8;
    let value = json!({
        "device": device,
        "change": change,
        "capacity_bps": capacity_bps,
        "overhead_bytes": options.framing.overhead_bytes,
        "ip_proto": options.ip_proto,
    });
    out.print(&value, |_| {
        let rate = units::rate(capacity_bps as f64);
        let done = match change {
            Change::Added => "is an XCP router now",
            Change::Changed => "changed",
            Change::Unchanged => "was an XCP router already, nothing changed",
        };
        format!("{device}: {done}, {rate}")
    })
}

fn describe_all(all: &[Status], style: &Style) -> String {
    if all.is_empty() {
        return "No XCP router here. Add one: xcp router add DEV --capacity 10mbit".into();
    }
    let each: Vec<String> = all.iter().map(|status| describe(status, style)).collect();
    each.join("\n")
}

fn describe(status: &Status, style: &Style) -> String {
    let head = style.bold(&status.device);
    let rows = [
        ("capacity", units::rate(status.capacity_bps as f64)),
        (
            "overhead",
            format!("{} B per packet", status.overhead_bytes),
        ),
        ("header protocol", status.ip_proto.to_string()),
        ("attached by", status.attached.into()),
        ("input rate", units::rate(status.input_rate_bps as f64)),
        ("queue", units::bytes(status.queue_bytes)),
        (
            "persistent queue",
            units::bytes(status.persistent_queue_bytes),
        ),
        ("average RTT", units::milliseconds(status.average_rtt_ms)),
        ("feedback", units::signed_rate(status.feedback_bps as f64)),
        (
            "feedback handed out",
            units::signed_rate(status.granted_bytes_per_s as f64 * 8.0),
        ),
        ("control intervals", status.control_intervals.to_string()),
        ("XCP packets", status.xcp_packets.to_string()),
        ("other packets", status.other_packets.to_string()),
        ("malformed headers", status.malformed.to_string()),
    ];
    format!("{head}\n{}", table::pairs(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status {
            device: "eth0".into(),
            attached: "tcx",
            capacity_bps: 10_000_000,
            overhead_bytes: 18,
            mpu_bytes: 0,
            ip_proto: 253,
            input_rate_bps: 9_840_000,
            queue_bytes: 4_500,
            persistent_queue_bytes: 0,
            average_rtt_ms: 502.14,
            feedback_bps: -120_000,
            granted_bytes_per_s: 1_250_000,
            control_intervals: 42,
            xcp_packets: 1000,
            other_packets: 7,
            malformed: 0,
        }
    }

    #[test]
    fn a_status_has_units() {
        let text = describe(&status(), &Style(false));
        for line in [
            "eth0\n  capacity             10.0 Mb/s\n  overhead             18 B per packet\n",
            "\n  input rate           9.8 Mb/s\n  queue                4.5 kB\n",
            "\n  average RTT          502.1 ms\n  feedback             -120.0 kb/s\n",
            "\n  malformed headers    0\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn several_are_apart_and_none_is_said() {
        let text = describe_all(&[status(), status()], &Style(false));
        assert!(text.contains("\n\neth0\n"));
        assert!(describe_all(&[], &Style(false)).starts_with("No XCP router here."));
    }
}

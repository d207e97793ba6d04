// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp apply`: applies a configuration file to the host, its routers and a running gateway.

use std::process::ExitCode;

use serde::Serialize;
use xcp_cli::cli::Apply;
use xcp_cli::failure::{print_error, Failure};
use xcp_cli::out::{Out, Style};
use xcp_datapath::gateway::is_our_router;
use xcp_datapath::router::Change;
use xcp_datapath::{host, links, lock_commands, router, DeviceInfo};

use super::difference::{between, Difference};
use super::file::{File, Table};
use super::pattern::{self, assign};
use super::running::{self, Running};
use super::types::{Gateway, Host, Router};
use crate::device::is_same_device;
use crate::gateway;

/// The exit code if a part could not be changed. For xcp.service this is a success: it stays
/// active, so that udev reloads it when a device appears.
const PARTS_FAILED: u8 = 3;

/// What a step changes.
#[derive(Debug, PartialEq)]
enum Subject {
    Host,
    Router(String),
    Gateway,
}

impl Subject {
    fn device(&self) -> Option<&str> {
        match self {
            Self::Router(device) => Some(device),
            Self::Host | Self::Gateway => None,
        }
    }
}

/// The change of the host, of one device or of the gateway.
#[derive(Debug)]
struct Step {
    subject: Subject,
    differences: Vec<Difference>,
    work: Operation,
}

#[derive(Debug)]
enum Operation {
    TurnOn {
        options: host::Options,
        before: Option<host::Options>,
    },
    TurnOff,
    Add {
        options: router::Options,
        before: Option<router::Options>,
        fresh: bool,
    },
    Remove,
    /// Makes the running gateway read its file, if its settings differ.
    Reload(Gateway),
}

/// The result of a step, or its expected result with `--check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Done {
    Added,
    Changed,
    Removed,
    Unchanged,
    Failed,
    /// Failed, and the earlier settings could not be restored.
    #[serde(rename = "failed")]
    NotRestored,
}

type Outcome = (Done, Option<Failure>);

impl From<Change> for Done {
    fn from(change: Change) -> Self {
        match change {
            Change::Added => Self::Added,
            Change::Changed => Self::Changed,
            Change::Unchanged => Self::Unchanged,
        }
    }
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct Report<'a> {
    file: &'a str,
    /// The steps were not executed.
    check: bool,
    host: Option<Item<'a>>,
    routers: Vec<Item<'a>>,
    /// The settings of the running edge daemon differ from the table `edge`. The daemon
    /// reads the file only when it starts.
    edge_differs: bool,
    /// The change of the running gateway.
    gateway: Option<Item<'a>>,
    /// The gateway runs without a table `gateway` in the file, or the file has one and no
    /// gateway runs.
    gateway_differs: bool,
}

#[derive(Debug, Serialize)]
struct Item<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    change: Done,
    differences: &'a [Difference],
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

pub fn apply(asked: &Apply, out: &Out) -> Result<ExitCode, Failure> {
    let file = File::read(&asked.file)?;
    let (early, lock) = match asked.check {
        true => (None, None),
        false => (
            make_gateway_give_up_router(&file, asked.ignore_missing)?,
            Some(lock_commands("xcp apply")?),
        ),
    };
    let running = running::read()?;
    let mut steps = plan(&file, &running, asked.ignore_missing)?;
    let outcome = |step: &Step| match asked.check {
        // a gateway that the file configures gives its router up first
        true => step.planned(file.config.gateway.is_some()),
        false => step.execute(),
    };
    let mut outcomes: Vec<Outcome> = steps.iter().map(outcome).collect();
    // the gateway changes its router itself, which needs the lock
    drop(lock);
    let late = || gateway_step(&file, &running).map(|step| (outcome(&step), step));
    if let Some((outcome, step)) = early.or_else(late) {
        outcomes.push(outcome);
        steps.push(step);
    }
    let failed = outcomes.iter().any(|(_, error)| error.is_some());
    let mut report = Report {
        file: file.name(),
        check: asked.check,
        host: None,
        routers: Vec::new(),
        edge_differs: running.edge != file.config.edge,
        gateway: None,
        gateway_differs: running.gateway.is_some() != file.config.gateway.is_some(),
    };
    for (step, (change, error)) in steps.iter().zip(outcomes) {
        if let (Some(failure), false) = (&error, out.is_json()) {
            print_error(&format!("xcp: {}", failure.with_help()));
        }
        let item = Item {
            device: step.subject.device(),
            change,
            differences: &step.differences,
            error,
        };
        match step.subject {
            Subject::Host => report.host = Some(item),
            Subject::Router(_) => report.routers.push(item),
            Subject::Gateway => report.gateway = Some(item),
        }
    }
    // the units start this command before the daemons, and stop the daemons before this one
    let is_expected = |daemon_runs: bool| asked.ignore_missing && !daemon_runs;
    if report.edge_differs && !is_expected(running.edge.is_some()) && !out.is_json() {
        let problem = match file.config.edge {
            Some(_) => "does not run with the settings of the file",
            None => "runs, but the file has no table [edge]",
        };
        warn_of_daemon("edge", problem, "xcp-edged", file.config.edge.is_some());
    }
    if report.gateway_differs && !is_expected(running.gateway.is_some()) && !out.is_json() {
        let problem = match file.config.gateway {
            Some(_) => "does not run, but the file has a table [gateway]",
            None => "runs, but the file has no table [gateway]",
        };
        let is_wanted = file.config.gateway.is_some();
        warn_of_daemon("gateway", problem, "xcp-gateway", is_wanted);
    }
    out.print(&report, |style| describe(&report, asked.diff, style))?;
    Ok(match failed {
        true => ExitCode::from(PARTS_FAILED),
        false => ExitCode::SUCCESS,
    })
}

/// Warns of a daemon that differs from the file.
fn warn_of_daemon(thing: &str, problem: &str, unit: &str, is_wanted: bool) {
    let verb = if is_wanted { "restart" } else { "stop" };
    print_error(&format!(
        "xcp: warning: {thing}: the daemon {problem}\n  help: systemctl {verb} {unit}"
    ));
}

/// Computes the steps from the running configuration to that of the file. Fails if the
/// file does not fit this system.
fn plan(file: &File, running: &Running, ignore_missing: bool) -> Result<Vec<Step>, Failure> {
    let links = links()?;
    let mut assigned = assign(file, &links, ignore_missing)?;
    // patterns do not select the router of a gateway that the file does not configure
    let other = running.gateway.as_ref();
    let other = other.filter(|g| g.capacity.is_some() && file.config.gateway.is_none());
    assigned.retain(|(device, _, table)| {
        !(pattern::is_pattern(&table.device)
            && other.is_some_and(|g| is_same_device(&g.wan, device)))
    });
    let mut steps = Vec::new();
    steps.extend(host_step(file, running, &links, ignore_missing)?);
    for (device, options) in &running.routers {
        if !assigned.iter().any(|(name, ..)| name == device) {
            let before = options.map(|o| Router::of(device.clone(), &o));
            steps.push(Step {
                subject: Subject::Router(device.clone()),
                differences: between(before.as_ref(), None),
                work: Operation::Remove,
            });
        }
    }
    for (device, table, asked) in assigned {
        let asked = asked
            .options()
            .map_err(|c| file.wrong(table, c.key, c.reason, c.remedy))?;
        let options = match router::normalized_options(&device, asked) {
            // the device has just been removed or renamed
            Err(_) if ignore_missing && !is_here(&device, &xcp_datapath::links()?) => continue,
            options => options?,
        };
        let there = running.routers.get(&device);
        let before = there.copied().flatten();
        let of = |options: &router::Options| Router::of(device.clone(), options);
        steps.push(Step {
            differences: between(before.as_ref().map(of).as_ref(), Some(&of(&options))),
            work: Operation::Add {
                options: asked,
                before,
                fresh: there.is_none(),
            },
            subject: Subject::Router(device),
        });
    }
    Ok(steps)
}

fn is_here(device: &str, links: &[DeviceInfo]) -> bool {
    links.iter().any(|link| link.name == device)
}

fn host_step(
    file: &File,
    running: &Running,
    links: &[DeviceInfo],
    ignore_missing: bool,
) -> Result<Option<Step>, Failure> {
    let before = running.host.as_ref();
    let step = |differences, work| {
        Ok(Some(Step {
            subject: Subject::Host,
            differences,
            work,
        }))
    };
    let Some(asked) = &file.config.host else {
        let differences = between(before.map(Host::of).as_ref(), None);
        return match before {
            Some(_) => step(differences, Operation::TurnOff),
            None => Ok(None),
        };
    };
    let wrong =
        |key: &str, reason: String, remedy: &str| file.wrong(Table::Host, key, reason, remedy);
    let mut asked = asked.clone();
    for device in &mut asked.devices {
        // it may be an alternative name
        if let Some(link) = pattern::find(links, device) {
            device.clone_from(&link.name);
        }
    }
    asked.devices.sort();
    asked.devices.dedup();
    if ignore_missing {
        asked.devices.retain(|device| is_here(device, links));
        if asked.wire.is_header() && asked.devices.is_empty() {
            print_error("xcp: warning: host: none of its devices exists yet: nothing changed");
            return Ok(None);
        }
    } else if let Some(missing) = asked.devices.iter().find(|d| !is_here(d, links)) {
        let reason = format!("no such network device here: {missing}");
        return Err(wrong("devices", reason, "list the devices with `ip link`"));
    }
    if let Some(group) = asked.cgroup.as_ref().filter(|path| !path.is_dir()) {
        let reason = format!("no such control group: {}", group.display());
        if ignore_missing {
            print_error(&format!("xcp: warning: host: {reason}: nothing changed"));
            return Ok(None);
        }
        return Err(wrong("cgroup", reason, "list them with `systemd-cgls`"));
    }
    let options = asked
        .options()
        .map_err(|c| file.wrong(Table::Host, c.key, c.reason, c.remedy))?;
    let after = Host::of(&host::normalized_options(options.clone())?);
    let differences = between(before.map(Host::of).as_ref(), Some(&after));
    let before = before.cloned();
    step(differences, Operation::TurnOn { options, before })
}

/// The step of a gateway that runs, if the file has one.
fn gateway_step(file: &File, running: &Running) -> Option<Step> {
    let before = running.gateway.as_ref()?;
    let wanted = file.config.gateway.as_ref()?;
    Some(Step {
        subject: Subject::Gateway,
        differences: between(Some(before), Some(wanted)),
        work: Operation::Reload(wanted.clone()),
    })
}

/// If the running gateway has a router that it does not have with the settings of the file,
/// makes it read the file. So it removes its router before one of the file takes its place.
fn make_gateway_give_up_router(
    file: &File,
    ignore_missing: bool,
) -> Result<Option<(Outcome, Step)>, Failure> {
    let gives_up = match (running::gateway(), &file.config.gateway) {
        (Some(before), Some(wanted)) => {
            before.capacity.is_some() && (wanted.capacity.is_none() || wanted.wan != before.wan)
        }
        _ => false,
    };
    if !gives_up {
        return Ok(None);
    }
    let running = running::read()?;
    plan(file, &running, ignore_missing)?; // a file that does not fit changes nothing
    Ok(gateway_step(file, &running).map(|step| (step.execute(), step)))
}

impl Step {
    /// Returns the expected outcome.
    fn planned(&self, gateway_gives_up_router: bool) -> Outcome {
        if let (false, Some(error)) = (gateway_gives_up_router, self.refused()) {
            return (Done::Failed, Some(error.into()));
        }
        let done = match &self.work {
            Operation::TurnOff | Operation::Remove => Done::Removed,
            Operation::TurnOn { before: None, .. } | Operation::Add { fresh: true, .. } => {
                Done::Added
            }
            _ if self.differences.is_empty() => Done::Unchanged,
            _ => Done::Changed,
        };
        (done, None)
    }

    /// Returns why the step cannot be executed, if that is known before.
    fn refused(&self) -> Option<xcp_datapath::Error> {
        let device = self.subject.device()?;
        let is_add = matches!(self.work, Operation::Add { .. });
        (is_add && is_our_router(device)).then(|| {
            xcp_datapath::Error::new(
                device,
                "is the router of a gateway",
                "end the gateway (xcp gateway off), or remove this table",
            )
        })
    }

    /// Executes the step, completely or not at all.
    fn execute(&self) -> Outcome {
        if let Some(error) = self.refused() {
            return (Done::Failed, Some(error.into()));
        }
        let device = self.subject.device().unwrap_or_default();
        let done = match &self.work {
            Operation::Reload(_) if self.differences.is_empty() => Ok(Done::Unchanged),
            Operation::Reload(wanted) => {
                return match gateway::reload(wanted) {
                    Ok(()) => (Done::Changed, None),
                    Err(e) => (Done::Failed, Some(e)),
                }
            }
            Operation::TurnOff => host::off().map(|()| {
                gateway::warn_without_host();
                Done::Removed
            }),
            Operation::Remove => router::del(device).map(|()| Done::Removed),
            Operation::TurnOn { options, before } => {
                let on = |options| host::on(options).map(|on| on.change);
                return or_restore(on(options), before.as_ref().map(|before| || on(before)));
            }
            Operation::Add {
                options, before, ..
            } => {
                let add = |options| router::add(device, options);
                return or_restore(add(*options), before.map(|before| move || add(before)));
            }
        };
        match done {
            Ok(done) => (done, None),
            Err(e) => (Done::Failed, Some(e.into())),
        }
    }
}

/// The outcome of a change; after an error the earlier settings, if any, are restored.
fn or_restore(
    changed: xcp_datapath::Result<Change>,
    restore: Option<impl FnOnce() -> xcp_datapath::Result<Change>>,
) -> Outcome {
    let mut error = match changed {
        Ok(change) => return (change.into(), None),
        Err(error) => error,
    };
    match restore.map(|restore| restore()) {
        Some(Err(second)) => {
            error.reason += &format!("; its earlier settings could not be restored: {second}");
            (Done::NotRestored, Some(error.into()))
        }
        Some(Ok(_)) | None => (Done::Failed, Some(error.into())),
    }
}

fn describe(report: &Report, diff: bool, style: &Style) -> String {
    let items = report.host.iter().map(|host| ("host".to_owned(), host));
    let routers = report.routers.iter().map(|router| {
        let device = router.device.unwrap_or_default();
        (format!("router {device}"), router)
    });
    let gateway = report.gateway.iter();
    let gateway = gateway.map(|gateway| ("gateway".to_owned(), gateway));
    let mut text = String::new();
    let mut unchanged = 0;
    for (what, item) in items.chain(routers).chain(gateway) {
        let (mark, word) = match item.change {
            Done::Unchanged => {
                unchanged += 1;
                continue;
            }
            Done::Added => (style.good("+"), "added"),
            Done::Changed => (style.weak("~"), "changed"),
            Done::Removed => (style.bad("-"), "removed"),
            Done::Failed => (style.bad("!"), "failed, not changed"),
            Done::NotRestored => (style.bad("!"), "failed, partly changed"),
        };
        let would = if report.check { "to be " } else { "" };
        text += &format!("{mark} {what}: {would}{word}\n");
        if diff {
            for difference in item.differences {
                text += &format!("    {}\n", difference.line());
            }
        }
    }
    let rest = match (text.is_empty(), unchanged) {
        (true, 0) => "Nothing to change: the file configures nothing".to_owned(),
        (true, n) => format!("Nothing to change: {n} unchanged"),
        (false, 0) => String::new(),
        (false, n) => format!("{n} unchanged"),
    };
    let valid = match report.check {
        true => format!("{}: valid\n", report.file),
        false => String::new(),
    };
    format!("{valid}{text}{rest}")
}

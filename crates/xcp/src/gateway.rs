// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp gateway`: runs the gateway, shows its state and ends it.

mod lock;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use serde_json::json;
use signal_hook::consts::SIGHUP;
use xcp_daemon::status_socket;
use xcp_datapath::gateway as datapath;
use xcp_datapath::gateway::Filters;
use xcp_datapath::host::{self, RunGroup};
use xcp_datapath::interrupt;
use xcp_datapath::router::{self, Limits as QueueLimits, Queueing};
use xcp_gateway::daemon::{self, Limits, Next, Options};
use xcp_gateway::status::{self, Status};

use crate::config::{self, Gateway};
use crate::{device, watch};
use xcp_cli::cli::{GatewayAction, GatewayRun};
use xcp_cli::failure::{print_error, print_wait, Failure};
use xcp_cli::out::{Out, Style};

/// The congestion control on the WAN side.
const WAN_CONTROL: &str = "xcp";
/// File descriptors of one connection: two sockets, and a pipe in each direction.
const DESCRIPTORS: u64 = 6;
/// File descriptors of everything else.
const OTHER_DESCRIPTORS: u64 = 256;
/// How many intercepted SYNs may be in a handshake, without a warning.
const IN_HANDSHAKE: u64 = 100;
/// How many SYNs of one connection are no reason for a warning. They are sent again, and port
/// scanners complete no handshake.
const SYNS_PER_CONNECTION: u64 = 2;
/// How long `xcp gateway off` waits for a gateway to end.
const PATIENCE_MS: u16 = 10_000;
/// How long `xcp apply` waits until a gateway has the new settings.
const RELOAD_PATIENCE: Duration = Duration::from_secs(5);
const RELOAD_CHECK: Duration = Duration::from_millis(100);

pub fn act(action: GatewayAction, out: &Out) -> Result<ExitCode, Failure> {
    match action {
        GatewayAction::Run(asked) => run(&asked)?,
        GatewayAction::Show { socket, watch } => return show(&socket, watch, out),
        GatewayAction::Off { socket, only_left } => off(&socket, only_left, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl From<&GatewayRun> for Gateway {
    fn from(asked: &GatewayRun) -> Self {
        Self {
            lan: asked.lan.clone(),
            wan: asked.wan.clone().unwrap_or_default(),
            capacity: asked.capacity,
            include: asked.include.clone(),
            exclude: asked.exclude.clone(),
            ports: asked.port.clone(),
            exclude_ports: asked.exclude_port.clone(),
            max_connections: asked.max_connections,
            max_per_source: asked.max_per_source,
        }
    }
}

fn options(gateway: &Gateway) -> Result<Options, Failure> {
    Ok(Options {
        lan: gateway.lan.clone(),
        wan: gateway.wan.clone(),
        router: gateway
            .capacity
            .map(|capacity| router_options(capacity.bytes_per_s())),
        filters: Filters {
            include: gateway.include.clone(),
            exclude: gateway.exclude.clone(),
            ports: gateway.ports.clone(),
            exclude_ports: gateway.exclude_ports.clone(),
        },
        limits: Limits {
            connections: gateway.max_connections,
            possible: raise_descriptors(gateway.max_connections)?,
            per_source: gateway.max_per_source,
        },
    })
}

fn router_options(capacity_bytes_per_s: u64) -> router::Options {
    router::Options {
        capacity_bytes_per_s,
        queueing: match capacity_bytes_per_s {
            0 => Queueing::Auto(QueueLimits::default()),
            rate_bytes_per_s => Queueing::Shape {
                rate_bytes_per_s,
                limit_packets: 0,
            },
        },
        ..Default::default()
    }
}

/// Runs the gateway. Being ended by a signal is not a failure, since systemd sends one.
fn run(asked: &GatewayRun) -> Result<(), Failure> {
    let read = || match &asked.config {
        Some(file) => config::gateway(file),
        None => Ok(asked.into()),
    };
    let gateway = read()?;
    let commands = RunGroup::lock()?;
    // from here on a signal ends the gateway in order, so that it removes what it has added
    let hangup = Arc::new(AtomicBool::new(false));
    if asked.config.is_some() {
        interrupt::watch_on_terminal();
        signal_hook::flag::register(SIGHUP, hangup.clone())
            .map_err(|e| Failure::io("SIGHUP", &e))?;
    } else {
        interrupt::watch();
    }
    let options_at_start = options(&gateway)?;
    let _only = lock::take()?;
    let group = RunGroup::without_default(commands)?;
    group.enter()?;
    if gateway.capacity.is_none() {
        warn_without_router(&gateway.wan);
    }

    let ready = || print_error("xcp: ready; Ctrl-C ends it");
    let next = || {
        if interrupt::requested() {
            return Next::End;
        }
        if !hangup.swap(false, Ordering::Relaxed) {
            return Next::Continue;
        }
        match read().and_then(|gateway| options(&gateway)) {
            Ok(options) => Next::Change(Box::new(options)),
            Err(failure) => {
                print_error(&format!("xcp: nothing changed: {}", failure.with_help()));
                Next::Continue
            }
        }
    };
    Ok(daemon::run(
        options_at_start,
        WAN_CONTROL,
        &asked.socket,
        ready,
        |e| print_error(&format!("xcp: nothing changed: {e}\n  help: {}", e.remedy)),
        |e| print_error(&format!("xcp: warning: {e}\n  help: {}", e.remedy)),
        next,
    )?)
}

/// Lets this process open as many files as its connections need. Returns the number of
/// connections for which the limit of this system suffices.
fn raise_descriptors(connections: u32) -> Result<u32, Failure> {
    let failed = |e: nix::errno::Errno| Failure::io("open files", &e.into());
    let needed = u64::from(connections) * DESCRIPTORS + OTHER_DESCRIPTORS;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if soft >= needed || setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).is_ok() {
        return Ok(connections);
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(failed)?;
    let possible = hard.saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS;
    print_error(&format!(
        "xcp: warning: open files: {connections} connections need {needed}, the limit of {hard} \
         suffices for {possible}; further ones are forwarded\n  help: raise it (LimitNOFILE= in \
         the systemd unit, ulimit -n), or give --max-connections"
    ));
    Ok(possible as u32)
}

/// Warns if a gateway runs while XCP is switched off for the host.
pub fn warn_without_host() {
    if status::here().is_some() {
        print_error(
            "xcp: warning: gateway: its new connections may not use XCP any more\n  help: restart \
             it: systemctl restart xcp-gateway",
        );
    }
}

fn warn_without_router(wan: &str) {
    let is_router = router::devices().is_ok_and(|routers| device::contains(&routers, wan));
    if !is_router {
        print_error(&format!(
            "xcp: warning: {wan}: no XCP router, so connections fall back to the default congestion \
             control\n  help: give --capacity, or run: xcp router add {wan} --capacity RATE"
        ));
    }
}

fn off(socket: &Path, only_left: bool, out: &Out) -> Result<(), Failure> {
    xcp_datapath::require_access("xcp gateway off")?;
    let was_running = match status_socket::process_of(socket) {
        Some(process) if only_left => {
            let remedy = "end it with: xcp gateway off";
            return Err(Failure::new(thing(process), "is running", remedy));
        }
        Some(process) => end(process, socket).map(|()| true)?,
        None => false,
    };
    let _only = lock::take()?;
    let undone = datapath::undo()?;
    let routers = datapath::remove_routers()?;
    let programs = host::remove_left()?;
    let removed = was_running || undone || routers || programs;
    out.print(
        &json!({ "ended": was_running, "removed": removed }),
        |_| match (was_running, removed) {
            (true, _) => "the gateway is off".into(),
            (false, true) => "removed what a killed gateway had left behind".into(),
            (false, false) => "no gateway is running, and there was nothing to remove".to_owned(),
        },
    )
}

fn thing(process: i32) -> String {
    format!("gateway (process {process})")
}

/// Sends a signal to a gateway, and returns its pidfd.
fn signal(process: i32, signal: Signal) -> Result<Option<OwnedFd>, Failure> {
    let failed = |e: rustix::io::Errno| Failure::io(thing(process), &e.into());
    let Some(pid) = Pid::from_raw(process) else {
        return Ok(None);
    };
    let gateway = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
    pidfd_send_signal(&gateway, signal).map_err(failed)?;
    Ok(Some(gateway))
}

/// Makes the gateway of this network namespace read its configuration again, and waits until it
/// has these settings.
pub fn reload(wanted: &Gateway) -> Result<(), Failure> {
    if let Some(process) = status_socket::process_of(Path::new(status::SOCKET)) {
        signal(process, Signal::HUP)?;
    }
    let begun = Instant::now();
    while config::running_gateway().as_ref() != Some(wanted) {
        if begun.elapsed() > RELOAD_PATIENCE {
            return Err(Failure::new(
                "gateway",
                "has not taken over the new settings: it does not read this file, or cannot use it",
                "systemctl restart xcp-gateway; its journal has the reason",
            ));
        }
        thread::sleep(RELOAD_CHECK);
    }
    Ok(())
}

/// Ends a gateway and waits for its end.
fn end(process: i32, socket: &Path) -> Result<(), Failure> {
    let Some(gateway) = signal(process, Signal::TERM)? else {
        return Ok(());
    };
    print_wait(&format!("xcp: waiting for the {} to end", thing(process)));
    let mut ends = [PollFd::new(gateway.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ends, PATIENCE_MS) {
        Ok(1..) => Ok(()),
        _ => Err(Failure::new(
            thing(process),
            "does not end",
            format!(
                "kill it, and run `xcp gateway off --socket {}` again",
                socket.display()
            ),
        )),
    }
}

fn show(socket: &Path, again: bool, out: &Out) -> Result<ExitCode, Failure> {
    if again {
        let read = || Ok(status::ask(socket)?);
        return watch::watch(out, read, &watch_head(), |status| vec![watch_line(status)]);
    }
    let status = status::ask(socket)?;
    out.print(&status, |style| describe(&status, style))?;
    Ok(ExitCode::SUCCESS)
}

fn watch_head() -> String {
    format!(
        "{:>11} {:>10} {:>10} {:>10} {:>14} {:>10}",
        "connections", "accepted", "failed", "reset", "bytes", "forwarded"
    )
}

fn watch_line(status: &Status) -> String {
    format!(
        "{:>11} {:>10} {:>10} {:>10} {:>14} {:>10}",
        status.connections,
        status.accepted,
        status.not_connected,
        status.reset,
        status.bytes,
        status.forwarded()
    )
}

fn describe(status: &Status, style: &Style) -> String {
    let n = &status.packets;
    let mut text = format!(
        "{}\n  connections  {} (at most {}, and {} from one source)\n  \
         accepted     {}: {} not connected, {} reset, {} with another source port\n  \
         bytes        {}\n",
        style.bold(&format!("{} - {}", status.lan.join(", "), status.wan)),
        status.connections,
        status.connections_max,
        status.per_source_max,
        status.accepted,
        status.not_connected,
        status.reset,
        status.other_port,
        status.bytes,
    );
    let reasons = [
        (n.excluded, "excluded"),
        (n.unsplittable, "signed, or join an MPTCP connection"),
        (n.over_limit, "over a limit"),
        (n.spoofed, "without a route back to the source"),
        (n.no_proxy, "while the proxy was not running"),
        (n.no_rule, "while the routing rule was missing"),
    ];
    let reasons = reasons.iter().filter(|(number, _)| *number > 0);
    let reasons: Vec<String> = reasons
        .map(|(number, why)| format!("{number} {why}"))
        .collect();
    text += &match reasons.is_empty() {
        true => "  forwarded    0\n".to_owned(),
        false => format!(
            "  forwarded    {}: {}\n",
            status.forwarded(),
            reasons.join(", ")
        ),
    };
    text += &format!(
        "  not split    {} packets that are not TCP, or are fragments\n",
        n.other_packets
    );
    for failure in &status.failures {
        text += &format!("  warning      {failure}\n");
    }
    if n.intercepted > IN_HANDSHAKE + SYNS_PER_CONNECTION * status.accepted {
        text += &format!(
            "  warning      only {} of {} intercepted SYNs became a connection to the proxy: does \
             the firewall accept them in its INPUT chain?\n",
            status.accepted, n.intercepted
        );
    }
    text
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Starts the gateway and its proxy, and ends them.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags};
use tokio::runtime::{Builder, Runtime};
use xcp_daemon::notify;
use xcp_daemon::status_socket::StatusSocket;
use xcp_datapath::gateway::{self, Filters, Gateway};
use xcp_datapath::router;

pub use crate::proxy::Limits;
use crate::proxy::{self, Shared};
use crate::status::Status;
use crate::wan_router::WanRouter;
use crate::{Error, Result};

const DEFAULT_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// How long to wait for a status reader before everything else is checked.
const TICK_MS: u16 = 500;
/// How often rule and devices are checked.
const REPAIR_PERIOD: Duration = Duration::from_secs(1);

/// What a gateway does; may change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The devices on the LAN side.
    pub lan: Vec<String>,
    /// The device on the WAN side.
    pub wan: String,
    /// Makes the WAN device an XCP router while the gateway runs.
    pub router: Option<router::Options>,
    /// The connections to split.
    pub filters: Filters,
    /// The limits.
    pub limits: Limits,
}

/// What the main loop does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Continue.
    Continue,
    /// Continue with other options.
    Change(Box<Options>),
    /// End.
    End,
}

/// Runs a gateway until `next` returns [`Next::End`]. `next` is called at least once per second
/// and after each signal. Calls `ready` when connections are accepted, `refused` if options
/// cannot be changed, and `failed` for each new failure of [`Daemon::repair`].
///
/// # Errors
/// See [`Daemon::start`]; or the path of the status socket is in use or not permitted.
pub fn run(
    options: Options,
    wan_control: &str,
    socket: &Path,
    ready: impl FnOnce(),
    refused: impl Fn(&Error),
    failed: impl Fn(&Error),
    mut next: impl FnMut() -> Next,
) -> Result<()> {
    let status_socket = StatusSocket::open(socket)?;
    let mut daemon = Daemon::start(options, wan_control)?;
    notify::send_state("READY=1");
    ready();
    let mut checked = Instant::now();
    let mut known: Vec<String> = Vec::new();
    loop {
        match next() {
            Next::Continue => {}
            Next::Change(options) => {
                if let Err(e) = daemon.change(*options) {
                    refused(&e);
                }
            }
            Next::End => break,
        }
        if checked.elapsed() >= REPAIR_PERIOD {
            daemon.repair();
            checked = Instant::now();
        }
        let failures = daemon.failures.iter();
        failures
            .filter(|e| !known.contains(&e.to_string()))
            .for_each(&failed);
        known = daemon.failures.iter().map(Error::to_string).collect();
        let mut waits_for = [PollFd::new(status_socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waits_for, TICK_MS) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(Error::new("status socket", e.to_string(), "report this")),
        }
        status_socket.serve(|| daemon.status());
    }
    notify::send_state("STOPPING=1");
    Ok(())
}

/// A running gateway. Dropping it resets all its connections and removes everything.
pub struct Daemon {
    shared: Arc<Shared>,
    options: Options,
    /// What does not work now, and is tried again every second.
    failures: Vec<Error>,
    rule_repairs: u64,
    /// Runs the connections, until this is dropped.
    runtime: Option<Runtime>,
    router: WanRouter,
    _undo: Undo,
}

/// Dropping this undoes what a gateway changes in the network namespace.
struct Undo;

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = gateway::undo();
    }
}

impl Daemon {
    /// Starts a gateway with this congestion control on the WAN side.
    ///
    /// # Errors
    /// This process is not root, a device does not exist, or the kernel lacks a feature.
    pub fn start(options: Options, wan_control: &str) -> Result<Self> {
        let default = fs::read_to_string(DEFAULT_CONTROL)
            .map_err(|e| Error::new(DEFAULT_CONTROL, e.to_string(), "mount /proc"))?;
        let mut router = WanRouter::default();
        router.set(&options.wan, options.router)?;
        let undo = Undo;
        let attached = Gateway::attach(&options.lan, &options.wan, &options.filters)?;
        let shared = Arc::new(Shared::new(
            attached,
            options.limits,
            OsString::from(default.trim_end()),
            OsString::from(wan_control),
        ));
        let failed = |e: std::io::Error| {
            Error::new(
                "proxy",
                e.to_string(),
                "run it as root, and check the kernel with `xcp doctor`",
            )
        };
        let runtime = Builder::new_multi_thread()
            .enable_io()
            .enable_time()
            .thread_name("xcp-gateway")
            .build()
            .map_err(failed)?;
        gateway::accept_fast_open()?;
        {
            let _inside = runtime.enter();
            proxy::start(&shared).map_err(failed)?;
        }
        Ok(Self {
            shared,
            options,
            failures: Vec::new(),
            rule_repairs: 0,
            runtime: Some(runtime),
            router,
            _undo: undo,
        })
    }

    /// Changes the options. Present connections stay as they are. What fails, for example
    /// because a device does not exist now, is tried again every second.
    ///
    /// # Errors
    /// The options are not valid; then nothing changes. Or the filters cannot be written.
    pub fn change(&mut self, options: Options) -> Result<()> {
        let Options {
            lan,
            wan,
            router,
            filters,
            limits,
        } = &options;
        gateway::check(lan, wan, filters)?;
        self.shared.gateway().set_filters(filters)?;
        // before the gateway's program on the same device, as when the gateway starts
        let added = self.router.set(wan, *router);
        let devices = self.shared.gateway().set_devices(lan, wan);
        self.failures = devices.unwrap_or_else(|e| vec![e]);
        self.add_failure(added);
        self.add_failure(self.shared.set_limits(*limits));
        self.options = options;
        Ok(())
    }

    /// Undoes what other programs did: adds the routing rule and the router again, finds
    /// devices that have been replaced, and writes the limits. What fails is tried again with
    /// the next call; until then, connections are forwarded.
    pub fn repair(&mut self) {
        // before the gateway's program on the same device, as when the gateway starts
        let router = self.router.repair();
        let Options { lan, wan, .. } = &self.options;
        let devices = self.shared.gateway().set_devices(lan, wan);
        self.failures = devices.unwrap_or_else(|e| vec![e]);
        self.add_failure(router);
        let rule = gateway::repair_rule();
        self.rule_repairs += u64::from(matches!(rule, Ok(true)));
        self.add_failure(rule.map(drop));
        self.add_failure(self.shared.write_limits());
    }

    fn add_failure(&mut self, result: Result<()>) {
        let known = |e: &Error| self.failures.iter().any(|other| other.thing == e.thing);
        let failure = result.err().filter(|e| !known(e));
        self.failures.extend(failure);
    }

    /// The state.
    pub fn status(&self) -> Status {
        let counts = &self.shared.counts;
        let limits = self.shared.limits();
        Status {
            lan: self.options.lan.clone(),
            wan: self.options.wan.clone(),
            capacity_bytes_per_s: self.router.options().map(|o| o.capacity_bytes_per_s),
            filters: self.options.filters.clone(),
            connections: self.shared.connections(),
            connections_max: limits.most(),
            connections_configured: limits.connections,
            per_source_max: limits.per_source,
            accepted: counts.accepted.load(Ordering::Relaxed),
            not_connected: counts.not_connected.load(Ordering::Relaxed),
            reset: counts.reset.load(Ordering::Relaxed),
            other_port: counts.other_port.load(Ordering::Relaxed),
            fast_open: counts.fast_open.load(Ordering::Relaxed),
            bytes: counts.bytes.load(Ordering::Relaxed),
            rule_repairs: self.rule_repairs,
            failures: self.failures.iter().map(Error::to_string).collect(),
            netns: xcp_datapath::netns_inode().unwrap_or(0),
            packets: self.shared.gateway().counters().unwrap_or_default(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // while a connection has its socket, its packets need the rule
        drop(self.runtime.take());
    }
}

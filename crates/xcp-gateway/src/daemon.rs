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

pub use crate::proxy::Limits;
use crate::proxy::{self, Shared};
use crate::status::Status;
use crate::{Error, Result};

const DEFAULT_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// How long to wait for a status reader before everything else is checked.
const TICK_MS: u16 = 500;
/// How often rule and devices are checked.
const REPAIR_PERIOD: Duration = Duration::from_secs(1);

/// What a gateway does; may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The devices on the LAN side.
    pub lan: Vec<String>,
    /// The device on the WAN side.
    pub wan: String,
    /// The connections to split.
    pub filters: Filters,
    /// The limits.
    pub limits: Limits,
}

/// What the main loop does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Continue.
    Continue,
    /// Continue with other options.
    Change(Options),
    /// End.
    End,
}

/// Runs a gateway until `next` returns [`Next::End`]. `next` is called at least once per second
/// and after each signal. Calls `ready` when connections are accepted, and
/// `refused` if options cannot be changed.
///
/// # Errors
/// See [`Daemon::start`]; or the path of the status socket is in use or not permitted.
pub fn run(
    options: Options,
    wan_control: &str,
    socket: &Path,
    ready: impl FnOnce(),
    refused: impl Fn(&Error),
    mut next: impl FnMut() -> Next,
) -> Result<()> {
    let status_socket = StatusSocket::open(socket)?;
    let mut daemon = Daemon::start(options, wan_control)?;
    notify::send_state("READY=1");
    ready();
    let mut checked = Instant::now();
    loop {
        match next() {
            Next::Continue => {}
            Next::Change(options) => {
                if let Err(e) = daemon.change(options) {
                    refused(&e);
                }
            }
            Next::End => break,
        }
        if checked.elapsed() >= REPAIR_PERIOD {
            daemon.repair();
            checked = Instant::now();
        }
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
    rule_repairs: u64,
    /// Runs the connections, until this is dropped.
    runtime: Option<Runtime>,
}

impl Daemon {
    /// Starts a gateway with this congestion control on the WAN side.
    ///
    /// # Errors
    /// This process is not root, a device does not exist, or the kernel lacks a feature.
    pub fn start(options: Options, wan_control: &str) -> Result<Self> {
        let default = fs::read_to_string(DEFAULT_CONTROL)
            .map_err(|e| Error::new(DEFAULT_CONTROL, e.to_string(), "mount /proc"))?;
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
            rule_repairs: 0,
            runtime: Some(runtime),
        })
    }

    /// Changes the options. Present connections stay as they are.
    ///
    /// # Errors
    /// A device does not exist.
    pub fn change(&mut self, options: Options) -> Result<()> {
        let Options {
            lan,
            wan,
            filters,
            limits,
        } = &options;
        self.shared.configure(lan, wan, filters, *limits)?;
        self.options = options;
        Ok(())
    }

    /// Undoes what other programs did: adds the routing rule again, and finds devices that have
    /// been replaced. What fails is tried again with the next call; until then, connections are
    /// forwarded.
    pub fn repair(&mut self) {
        self.rule_repairs += u64::from(gateway::repair_rule().unwrap_or(false));
        let Options { lan, wan, .. } = &self.options;
        let _ = self.shared.gateway().set_devices(lan, wan);
    }

    /// The state.
    pub fn status(&self) -> Status {
        let counts = &self.shared.counts;
        let limits = self.shared.limits();
        Status {
            lan: self.options.lan.clone(),
            wan: self.options.wan.clone(),
            filters: self.options.filters.clone(),
            connections: self.shared.connections(),
            connections_max: limits.connections,
            per_source_max: limits.per_source,
            accepted: counts.accepted.load(Ordering::Relaxed),
            not_connected: counts.not_connected.load(Ordering::Relaxed),
            reset: counts.reset.load(Ordering::Relaxed),
            other_port: counts.other_port.load(Ordering::Relaxed),
            fast_open: counts.fast_open.load(Ordering::Relaxed),
            bytes: counts.bytes.load(Ordering::Relaxed),
            rule_repairs: self.rule_repairs,
            netns: xcp_datapath::netns_inode().unwrap_or(0),
            packets: self.shared.gateway().counters().unwrap_or_default(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // while a connection has its socket, its packets need the rule
        drop(self.runtime.take());
        let _ = gateway::undo();
    }
}

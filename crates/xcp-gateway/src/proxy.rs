// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Accepts connections, and enforces the limits. The gateway's programs forward new connections
//! unsplit while a limit is reached: no connection is refused.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::libc;
use tokio::net::{TcpListener, TcpStream};
use xcp_datapath::gateway::{Gateway, Side};

use crate::connection::handle;
use crate::fast_open::KnownPeers;
use crate::relay::Pipes;
use crate::sockets;

/// How long to wait after a failure to accept, because descriptors or memory are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The configured maximum of connections.
    pub connections: u32,
    /// The maximum that the system's limit of open files permits.
    pub possible: u32,
    /// The most connections of one source address.
    pub per_source: u32,
}

impl Limits {
    /// The maximum of connections that is in force.
    pub(crate) fn most(self) -> u32 {
        self.connections.min(self.possible)
    }
}

/// Counters of connections.
#[derive(Default)]
pub(crate) struct Counts {
    pub accepted: AtomicU64,
    pub not_connected: AtomicU64,
    pub reset: AtomicU64,
    pub other_port: AtomicU64,
    pub fast_open: AtomicU64,
    pub bytes: AtomicU64,
}

/// The limits and the present connections. Its lock is held until the gateway's maps are updated:
/// an older state, written after a newer one, could keep the gateway full.
struct Present {
    limits: Limits,
    all: u32,
    by_source: HashMap<IpAddr, u32>,
}

/// What all connections share.
pub(crate) struct Shared {
    gateway: Mutex<Gateway>,
    present: Mutex<Present>,
    pub counts: Counts,
    pub pipes: Pipes,
    pub known_peers: KnownPeers,
    lan_control: OsString,
    wan_control: OsString,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(
        gateway: Gateway,
        limits: Limits,
        lan_control: OsString,
        wan_control: OsString,
    ) -> Self {
        Self {
            gateway: Mutex::new(gateway),
            present: Mutex::new(Present {
                limits,
                all: 0,
                by_source: HashMap::new(),
            }),
            counts: Counts::default(),
            pipes: Pipes::default(),
            known_peers: KnownPeers::default(),
            lan_control,
            wan_control,
        }
    }

    /// The congestion control of a side.
    pub fn control(&self, side: Side) -> &OsStr {
        match side {
            Side::Lan => &self.lan_control,
            Side::Wan => &self.wan_control,
        }
    }

    pub fn gateway(&self) -> MutexGuard<'_, Gateway> {
        lock(&self.gateway)
    }

    pub fn limits(&self) -> Limits {
        lock(&self.present).limits
    }

    pub fn connections(&self) -> u32 {
        lock(&self.present).all
    }

    /// Replaces the limits; connections stay.
    pub fn set_limits(&self, limits: Limits) -> xcp_datapath::Result<()> {
        lock(&self.present).limits = limits;
        self.write_limits()
    }

    /// Writes which limits are reached. This is needed only if they have changed, a write has
    /// failed, or the kernel has evicted an entry.
    pub fn write_limits(&self) -> xcp_datapath::Result<()> {
        let present = lock(&self.present);
        let full = |(_, number): &(&IpAddr, &u32)| **number >= present.limits.per_source;
        let sources = present.by_source.iter().filter(full);
        let sources: Vec<IpAddr> = sources.map(|(source, _)| *source).collect();
        let gateway = self.gateway();
        gateway.set_full(present.all >= present.limits.most())?;
        gateway.set_full_sources(&sources)
    }

    /// Counts a connection as long as the returned value lives.
    fn admit(self: &Arc<Self>, source: IpAddr) -> Admitted {
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        self.change(source, |number| number + 1);
        Admitted {
            shared: self.clone(),
            source,
        }
    }

    fn change(&self, source: IpAddr, change: fn(u32) -> u32) {
        let mut present = lock(&self.present);
        let (connections, per_source) = (present.limits.most(), present.limits.per_source);
        let (all_before, all) = (present.all, change(present.all));
        present.all = all;
        let before = present.by_source.get(&source).copied().unwrap_or(0);
        let number = change(before);
        if number == 0 {
            present.by_source.remove(&source);
        } else {
            present.by_source.insert(source, number);
        }
        // what cannot be written now is written by write_limits
        if (all_before >= connections) != (all >= connections) {
            let _ = self.gateway().set_full(all >= connections);
        }
        if (before >= per_source) != (number >= per_source) {
            let _ = self.gateway().set_source_full(source, number >= per_source);
        }
    }
}

struct Admitted {
    shared: Arc<Shared>,
    source: IpAddr,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.shared.change(self.source, |number| number - 1);
    }
}

/// Opens the listeners, gives them to the gateway's programs, and starts to accept. Must be
/// called in a runtime.
///
/// # Errors
/// A congestion control does not exist, or this process is not root.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    for side in [Side::Lan, Side::Wan] {
        for ipv6 in [false, true] {
            let listener = match sockets::listener(ipv6, side, shared.control(side)) {
                Ok(listener) => listener,
                // IPv6 is switched off by a setting, or the kernel has none
                Err(e) if ipv6 && is_without_ipv6(&e) => continue,
                Err(e) => return Err(e),
            };
            let set = shared.gateway().set_listener(side, ipv6, listener.as_fd());
            set.map_err(io::Error::other)?;
            tokio::spawn(serve(listener, side, shared.clone()));
        }
    }
    Ok(())
}

fn is_without_ipv6(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::AddrNotAvailable || e.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

async fn serve(listener: TcpListener, side: Side, shared: Arc<Shared>) {
    let own = listener.local_addr();
    loop {
        let Ok((stream, source)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // a program of this machine has connected to the listener's own address
        if is_same(&stream, own.as_ref().ok()) {
            continue;
        }
        let admitted = shared.admit(source.ip());
        let shared = shared.clone();
        tokio::spawn(async move {
            // a failure is counted, and closing the sockets resets both sides
            let _ = handle(stream, source, side, &shared).await;
            drop(admitted);
        });
    }
}

fn is_same(stream: &TcpStream, own: Option<&SocketAddr>) -> bool {
    stream.local_addr().ok().as_ref() == own
}

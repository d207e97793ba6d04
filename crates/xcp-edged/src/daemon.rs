// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The daemon's main loop: one thread waits for messages, timers and status readers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{clock_gettime, ClockId};
use xcp_daemon::notify;
use xcp_daemon::status_socket::StatusSocket;
use xcp_datapath::cloud;
use xcp_edge::edge::{Arrived, Datagram, Edge, Time};
use xcp_edge::message::{Key, PORT};

use crate::socket::{Family, Socket, BUFFER_B};
use crate::status::{self, Status};
pub use crate::test_overrides::TestOverrides;
use crate::virtuals::Virtuals;
use crate::{secret, Error, Result};

const SECOND_NS: u64 = 1_000_000_000;
/// How often the routes to the upstream edges are checked.
const ROUTES_NS: u64 = 10 * SECOND_NS;
/// For shorter waits than this the daemon does not sleep: it would wake up too late, in the
/// middle of a train.
const SPIN_NS: u64 = 100_000;
/// Number of messages that are read before timers are checked again.
const BATCH: usize = 64;

/// The daemon's options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The shared key.
    pub key: Key,
    /// The key's file, for the status.
    pub key_file: PathBuf,
    /// The upstream edges to ask.
    pub upstream: Vec<IpAddr>,
    /// The path of the status socket.
    pub socket: PathBuf,
    /// Changes for experiments.
    pub trial: TestOverrides,
}

/// Whether the main loop continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopControl {
    /// Continue.
    On,
    /// End: send byes and remove the virtual routers from the data path.
    End,
    /// End as if killed: the virtual routers stay. For experiments.
    Crash,
}

struct Daemon {
    edge: Edge,
    sockets: Vec<Socket>,
    upstream: Vec<IpAddr>,
    unreachable: Vec<IpAddr>,
    routes_ns: u64,
    unsent: u64,
    virtuals: Virtuals,
}

/// Runs until `next` returns another value than [`LoopControl::On`]. `next` is called at
/// least once per second and after each signal. Calls `ready` when the sockets are open.
///
/// # Errors
/// The port or the status socket's path is in use or not permitted.
pub fn run(options: &Options, ready: impl FnOnce(), next: &dyn Fn() -> LoopControl) -> Result<()> {
    let sockets: Vec<Socket> = [Family::V4, Family::V6]
        .into_iter()
        .filter_map(|family| Socket::open(family).transpose())
        .collect::<Result<_>>()?;
    let status_socket = StatusSocket::open(&options.socket)?;
    let edge = Edge::new(options.key.clone(), secret::seed()?);
    let mut daemon = Daemon {
        edge: match options.trial.frequent_trains {
            true => edge.with_frequent_trains(),
            false => edge,
        },
        sockets,
        upstream: options.upstream.clone(),
        unreachable: Vec::new(),
        routes_ns: 0,
        unsent: 0,
        virtuals: Virtuals::new(options.trial),
    };
    notify::send_state("READY=1");
    ready();
    loop {
        match next() {
            LoopControl::On => daemon.run_once(&status_socket, options)?,
            LoopControl::End => break,
            LoopControl::Crash => return Ok(()),
        }
    }
    notify::send_state("STOPPING=1");
    daemon.virtuals.stop();
    let byes = daemon.edge.stop(time()?.now_ns);
    byes.iter().for_each(|bye| daemon.send(bye));
    Ok(())
}

impl Daemon {
    fn run_once(&mut self, status_socket: &StatusSocket, options: &Options) -> Result<()> {
        let now = time()?;
        if now.now_ns >= self.routes_ns {
            self.routes_ns = now.now_ns + ROUTES_NS;
            self.check_routes(now.now_ns);
            self.virtuals.tidy(&self.edge, now.now_ns);
        }
        self.virtuals.set_edge_address(&self.edge, now.now_ns);
        // one message at a time, so that each has a timestamp
        while let Some(datagram) = self.edge.poll(time()?) {
            self.send(&datagram);
        }
        self.wait(status_socket, now.now_ns)?;
        for socket in &mut self.sockets {
            while let Some((stamp, wall_ns)) = socket.transmitted() {
                self.edge.transmitted(stamp, wall_ns);
            }
        }
        self.receive()?;
        let now_ns = time()?.now_ns;
        status_socket.serve(|| Status {
            unreachable: self.unreachable.clone(),
            unsent: self.unsent,
            key_file: options.key_file.clone(),
            upstream: options.upstream.clone(),
            netns: status::netns(),
            failure: self.virtuals.failure(),
            ..Status::of(&self.edge, now_ns)
        });
        Ok(())
    }

    /// Waits for a message, a status reader or the next timer.
    fn wait(&self, status_socket: &StatusSocket, began_ns: u64) -> Result<()> {
        let next_ns = self.edge.next_ns().unwrap_or(u64::MAX).min(self.routes_ns);
        let left_ns = next_ns
            .min(began_ns + SECOND_NS)
            .saturating_sub(time()?.now_ns);
        let left_ns = if left_ns < SPIN_NS { 0 } else { left_ns };
        let mut fds: Vec<_> = self
            .sockets
            .iter()
            .map(Socket::as_fd)
            .chain([status_socket.as_fd()])
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let timeout = TimeSpec::nanoseconds(left_ns.cast_signed());
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(Error::new(
                "waiting for messages",
                e.to_string(),
                "report this",
            )),
        }
    }

    fn receive(&mut self) -> Result<()> {
        let mut buffer = [0; BUFFER_B];
        let mut answers = Vec::new();
        for socket in &self.sockets {
            for _ in 0..BATCH {
                let received = match socket.receive(&mut buffer) {
                    Ok(Some(received)) => received,
                    Ok(None) => break,
                    // a message that cannot be read is dropped
                    Err(_) => continue,
                };
                let now = time()?;
                let arrived = Arrived {
                    from: received.from,
                    to: received.to,
                    ttl: received.ttl,
                    wall_ns: received.wall_ns.unwrap_or(now.wall_ns),
                    bytes: &buffer[..received.length.min(BUFFER_B)],
                };
                // ignored messages are only counted
                let Ok(answer) = self.edge.receive(now.now_ns, &arrived) else {
                    continue;
                };
                answers.extend(answer);
                let upstream = received.from.ip();
                self.virtuals
                    .heard(&self.edge, upstream, received.device, now.now_ns);
            }
        }
        answers.iter().for_each(|answer| self.send(answer));
        Ok(())
    }

    fn send(&mut self, datagram: &Datagram) {
        let family = match datagram.to.ip() {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        };
        let socket = self.sockets.iter_mut().find(|s| s.family() == family);
        if socket.is_none_or(|socket| socket.send(datagram).is_err()) {
            self.unsent += 1;
        }
    }

    /// Asks all reachable upstream edges, from the source address of the route. Starts
    /// again if this address has changed.
    fn check_routes(&mut self, now_ns: u64) {
        self.unreachable.clear();
        for upstream in self.upstream.clone() {
            let local = local_address(upstream);
            let asked = self.edge.clouds().find(|(ip, _)| *ip == upstream);
            let asked = asked.map(|(_, cloud)| cloud.local());
            if local.is_none() {
                self.unreachable.push(upstream);
            }
            if asked == local {
                continue;
            }
            if let Some(bye) = self.edge.forget(now_ns, upstream) {
                self.send(&bye);
            }
            if let Some(local) = local {
                // the first request is always valid
                let _ = self.edge.ask(now_ns, local, upstream);
                // after a restart the path is still the same, after a change of address it is not
                if asked.is_none() {
                    if let Some((probe, routers)) = cloud::base_probe(upstream) {
                        self.edge.restore_base_probe(upstream, probe, routers);
                    }
                }
            }
        }
    }
}

/// The source address of messages to this upstream edge.
fn local_address(upstream: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match upstream {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((upstream, PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn time() -> Result<Time> {
    let read = |clock: ClockId| {
        let time =
            clock_gettime(clock).map_err(|e| Error::new("clock", e.to_string(), "report this"))?;
        Ok(u64::try_from(time.num_nanoseconds()).unwrap_or(0))
    };
    Ok(Time {
        now_ns: read(ClockId::CLOCK_MONOTONIC)?,
        wall_ns: read(ClockId::CLOCK_REALTIME)?,
    })
}

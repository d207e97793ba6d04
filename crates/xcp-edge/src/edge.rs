// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A router as an edge of clouds: it asks its configured upstream edges for probes,
//! and answers all askers that have the key.
//!
//! [`probing`] is its answerer side, [`cloud`] its asker side. The caller owns the
//! sockets and clocks: it passes received messages in, and sends the messages that
//! [`Edge::poll`] returns.

mod cloud;
mod datagram;
mod probing;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

pub use cloud::{Cloud, State, FIRST_TTL};
pub use datagram::{Arrived, Datagram, Stamp, Time};
use probing::Probing;

use crate::conversation::{Answerer, Counters, Ignored};
use crate::estimate::Estimate;
use crate::message::{addressee, Error, Key, Role, PORT};

/// The asker and answerer sides of one router.
#[derive(Debug)]
pub struct Edge {
    key: Key,
    seed: Key,
    asked: u64,
    answerer: Answerer,
    probing: BTreeMap<SocketAddr, Probing>,
    clouds: BTreeMap<IpAddr, Cloud>,
    unrequested: u64,
    /// The initial estimate of a new cloud.
    estimate: Estimate,
    /// The wall clock minus the monotonic clock.
    offset_ns: Option<i64>,
}

/// A larger change of the clock offset is a clock step; NTP corrects smaller errors slowly.
const STEP_NS: u64 = 100_000_000;

impl Edge {
    /// Creates an edge that does not ask any upstream edge yet. `seed` must be random and
    /// different after each start.
    #[must_use]
    pub fn new(key: Key, seed: Key) -> Self {
        Edge {
            answerer: Answerer::new(key.clone(), seed.clone()),
            key,
            seed,
            asked: 0,
            probing: BTreeMap::new(),
            clouds: BTreeMap::new(),
            unrequested: 0,
            estimate: Estimate::default(),
            offset_ns: None,
        }
    }

    /// Keeps the train rate even if trains lose packets. For experiments.
    #[must_use]
    pub fn with_frequent_trains(mut self) -> Self {
        self.estimate = Estimate::with_frequent_trains();
        self
    }

    /// Asks this upstream edge for probes, from this address, until [`Edge::forget`].
    ///
    /// # Errors
    /// The request is invalid.
    pub fn ask(&mut self, now_ns: u64, local: IpAddr, upstream: IpAddr) -> Result<(), Error> {
        self.asked += 1;
        let seed = self.seed.derived(&self.asked.to_be_bytes());
        let (key, estimate) = (self.key.clone(), self.estimate.clone());
        let cloud = Cloud::new(key, seed, local, upstream, now_ns, estimate)?;
        self.clouds.insert(upstream, cloud);
        Ok(())
    }

    /// Restores a probe from before a restart ([`Cloud::base_probe`]) and the number of routers
    /// that it passed, so that a standing queue is not taken for the base delay.
    pub fn restore_base_probe(&mut self, upstream: IpAddr, probe: (u64, u64), routers: u8) {
        if let Some(cloud) = self.clouds.get_mut(&upstream) {
            cloud.restore_base_probe(probe, routers);
        }
    }

    /// Stops asking this upstream edge. Returns the bye to send.
    pub fn forget(&mut self, now_ns: u64, upstream: IpAddr) -> Option<Datagram> {
        let mut cloud = self.clouds.remove(&upstream)?;
        Some(Datagram::plain(
            cloud.local(),
            (upstream, PORT).into(),
            cloud.bye(now_ns),
        ))
    }

    /// The clouds, by the upstream edge's address.
    pub fn clouds(&self) -> impl Iterator<Item = (IpAddr, &Cloud)> {
        self.clouds.iter().map(|(ip, cloud)| (*ip, cloud))
    }

    /// The askers whose streams are open.
    pub fn askers(&self, now_ns: u64) -> impl Iterator<Item = SocketAddr> + '_ {
        self.answerer.streams(now_ns).map(|(to, _, _)| to)
    }

    /// The local addresses that askers use for this edge. Its routers write the first one
    /// into packets.
    #[must_use]
    pub fn local_addresses(&self) -> BTreeSet<IpAddr> {
        self.probing.values().map(Probing::local).collect()
    }

    /// The cloud between this edge and an upstream edge.
    #[must_use]
    pub fn cloud(&self, upstream: IpAddr) -> Option<&Cloud> {
        self.clouds.get(&upstream)
    }

    /// The number of ignored messages from askers.
    #[must_use]
    pub fn ignored(&self) -> Counters {
        self.answerer.counters()
    }

    /// The number of answers from addresses that were not asked.
    #[must_use]
    pub fn unrequested(&self) -> u64 {
        self.unrequested
    }

    /// The next message to send now. Call it until it returns None.
    pub fn poll(&mut self, time: Time) -> Option<Datagram> {
        let offset_ns = time.wall_ns.wrapping_sub(time.now_ns).cast_signed();
        let last_ns = self.offset_ns.replace(offset_ns).unwrap_or(offset_ns);
        if offset_ns.abs_diff(last_ns) > STEP_NS {
            self.clouds.values_mut().for_each(Cloud::on_step);
        }
        let answerer = &mut self.answerer;
        self.probing
            .retain(|to, _| answerer.stream(time.now_ns, *to).is_some());
        let probes = self.probing.iter_mut();
        let mut probes = probes.filter_map(|(to, p)| p.poll(time, *to, answerer));
        if let Some(probe) = probes.next() {
            return Some(probe);
        }
        let mut clouds = self.clouds.iter_mut();
        clouds.find_map(|(upstream, cloud)| {
            let request = cloud.poll(time.now_ns)?;
            Some(Datagram::plain(
                cloud.local(),
                (*upstream, PORT).into(),
                request,
            ))
        })
    }

    /// When to call [`Edge::poll`] next, unless a message arrives earlier.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let probing = self.probing.values().map(Probing::next_ns);
        let clouds = self.clouds.values().map(Cloud::next_ns);
        probing.chain(clouds).min()
    }

    /// Processes a received message. Returns the answer to send at once.
    ///
    /// # Errors
    /// The reason why the message was ignored, which is also counted.
    pub fn receive(
        &mut self,
        now_ns: u64,
        arrived: &Arrived<'_>,
    ) -> Result<Option<Datagram>, Ignored> {
        let Arrived {
            from, to, bytes, ..
        } = *arrived;
        let answer = if addressee(bytes) == Role::Answerer {
            let answer = self.answerer.receive(now_ns, from, to, bytes)?;
            if self.answerer.stream(now_ns, from).is_some() {
                let probing = self.probing.entry(from);
                probing.or_insert_with(|| Probing::new(to, now_ns));
            }
            answer
        } else {
            let cloud = self.clouds.get_mut(&from.ip());
            let Some(cloud) = cloud.filter(|cloud| cloud.local() == to && from.port() == PORT)
            else {
                self.unrequested += 1;
                return Err(Ignored::Unexpected);
            };
            cloud.receive(now_ns, arrived)?
        };
        Ok(answer.map(|bytes| Datagram::plain(to, from, bytes)))
    }

    /// Records the kernel's transmit timestamp of a train packet.
    pub fn transmitted(&mut self, stamp: Stamp, wall_ns: u64) {
        if let Some(probing) = self.probing.get_mut(&stamp.to) {
            probing.transmitted(stamp.sequence, wall_ns);
        }
    }

    /// Ends all streams. Returns the byes to send.
    pub fn stop(&mut self, now_ns: u64) -> Vec<Datagram> {
        let upstream: Vec<IpAddr> = self.clouds.keys().copied().collect();
        let mut byes: Vec<_> = upstream
            .into_iter()
            .filter_map(|ip| self.forget(now_ns, ip))
            .collect();
        let probing = std::mem::take(&mut self.probing);
        for (to, bye) in self.answerer.stop() {
            if let Some(probing) = probing.get(&to) {
                byes.push(Datagram::plain(probing.local(), to, bye));
            }
        }
        byes
    }
}

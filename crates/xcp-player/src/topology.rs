// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The topology of an experiment: its nodes are network namespaces, its links
//! are veth pairs with their shapers and routers. It is removed when dropped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use xcp_datapath::host::{self, PeerPolicies};
use xcp_datapath::router::{Framing, Limits, Queueing};
use xcp_datapath::{features, qdisc, router, PeerPolicy};
use xcp_testbed::Medium;

use crate::experiment::{Capacity, Event, Experiment, Flow, Link, Queue, Variant};
use crate::link::device;
use crate::paths::shortest_paths;
use crate::shaper::{self, disciplines, Shaper};
use crate::{Error, Result};

/// The congestion control that sends XCP headers.
pub const CONTROL: &str = "xcp";

/// The built topology.
pub struct Topology {
    prefix: String,
    /// The open network namespaces, by node name.
    spaces: BTreeMap<String, File>,
    home: File,
    routers: Vec<(String, String)>,
    /// The shapers of links whose rate or delay can change, with the link's
    /// index.
    shapers: Vec<(usize, Shaper)>,
    /// Nodes with configured wire formats.
    configured_nodes: Vec<String>,
}

impl Topology {
    /// Builds the topology. `prefix` keeps the names of its namespaces apart
    /// from others.
    pub fn build(experiment: &Experiment, variant: &Variant, prefix: &str) -> Result<Self> {
        let home = "/proc/thread-self/ns/net";
        let mut stage = Self {
            prefix: prefix.to_owned(),
            spaces: BTreeMap::new(),
            home: File::open(home).map_err(|e| Error::io(home, &e))?,
            routers: Vec::new(),
            shapers: Vec::new(),
            configured_nodes: Vec::new(),
        };
        for node in experiment.nodes() {
            stage.add_node(&node, experiment, variant)?;
        }
        stage.connect(experiment)?;
        stage.shape(experiment, variant)?;
        stage.lose(experiment, variant)?;
        if experiment.has_kind(variant, CONTROL) {
            stage.configure_wire_formats(experiment, variant)?;
        }
        Ok(stage)
    }

    /// The name of a node's namespace.
    pub fn space_name(&self, node: &str) -> String {
        format!("{}{node}", self.prefix)
    }

    /// A node's namespace, for use by another thread.
    pub fn space(&self, node: &str) -> Result<File> {
        let space = self.spaces.get(node).ok_or_else(|| no_node(node))?;
        space.try_clone().map_err(|e| Error::io(node, &e))
    }

    fn add_node(&mut self, node: &str, experiment: &Experiment, variant: &Variant) -> Result<()> {
        let name = self.space_name(node);
        tool("ip", &["netns", "add", &name], "")?;
        let path = format!("/run/netns/{name}");
        let space = File::open(&path).map_err(|e| Error::io(path, &e))?;
        self.spaces.insert(node.to_owned(), space);
        let buffer = experiment.buffer_bytes;
        let receive = experiment.receive_start_bytes.unwrap_or(buffer);
        // 2, the kernel's default: only if the peer requests ECN
        let ecn = if variant.ecn { "1" } else { "2" };
        let sack = if variant.sack { "1" } else { "0" };
        self.within(node, || {
            for (key, value) in [
                ("ipv4/ip_forward", "1".to_owned()),
                ("ipv6/conf/all/forwarding", "1".to_owned()),
                ("ipv6/conf/default/accept_dad", "0".to_owned()),
                ("ipv6/conf/all/accept_dad", "0".to_owned()),
                ("ipv4/tcp_rmem", format!("4096 {receive} {buffer}")),
                ("ipv4/tcp_wmem", format!("4096 65536 {buffer}")),
                ("ipv4/tcp_no_metrics_save", "1".to_owned()),
                ("ipv4/tcp_ecn", ecn.to_owned()),
                ("ipv4/tcp_sack", sack.to_owned()),
            ] {
                let path = format!("/proc/sys/net/{key}");
                fs::write(&path, value).map_err(|e| Error::io(path, &e))?;
            }
            Ok(())
        })?
    }

    /// Runs `work` in a node's namespace.
    pub fn within<T>(&self, node: &str, work: impl FnOnce() -> T) -> Result<T> {
        let space = self.spaces.get(node).ok_or_else(|| no_node(node))?;
        enter(space)?;
        let result = work();
        enter(&self.home)?;
        Ok(result)
    }

    fn connect(&self, experiment: &Experiment) -> Result<()> {
        let mut batch = String::new();
        for link in &experiment.links {
            let [a, b] = &link.between;
            batch += &format!(
                "link add name {} netns {} type veth peer name {} netns {}\n",
                device(a, b),
                self.space_name(a),
                device(b, a),
                self.space_name(b)
            );
        }
        tool("ip", &["-batch", "-"], &batch)?;
        for node in experiment.nodes() {
            let batch = addresses_and_routes(experiment, &node);
            self.within(&node, || tool("ip", &["-batch", "-"], &batch))??;
        }
        Ok(())
    }

    /// Installs queue disciplines and XCP routers.
    fn shape(&mut self, experiment: &Experiment, variant: &Variant) -> Result<()> {
        for (number, link) in experiment.links.iter().enumerate() {
            let [a, b] = &link.between;
            for (node, peer) in [(a, b), (b, a)] {
                let dev = device(node, peer);
                if link.queue_packets.is_none() || !has_own_queue(variant, link) {
                    let batch = disciplines("add", link, &dev, variant);
                    self.within(node, || tool("tc", &["-batch", "-"], &batch))??;
                }
                if link.queue_packets.is_some() {
                    self.add_router(number, link, variant, node, &dev)?;
                } else if !link.delays.is_empty() {
                    let (node, device) = (node.clone(), dev);
                    self.shapers.push((number, Shaper::Path { node, device }));
                }
            }
            if link.half_duplex && !has_own_queue(variant, link) {
                let medium = self.share_medium(link)?;
                self.shapers.push((number, Shaper::Medium(medium)));
            }
        }
        let own_queue = |l: &Link| has_own_queue(variant, l);
        if experiment
            .links
            .iter()
            .any(|l| own_queue(l) || l.half_duplex)
        {
            self.send_packet_by_packet(experiment)?;
        }
        Ok(())
    }

    /// Sets up the device that sends into a bottleneck: its router, if it has
    /// one, and the shaper that can change its rate.
    fn add_router(
        &mut self,
        number: usize,
        link: &Link,
        variant: &Variant,
        node: &str,
        dev: &str,
    ) -> Result<()> {
        let mut own = has_own_queue(variant, link).then(|| Shaper::Own {
            node: node.to_owned(),
            device: dev.to_owned(),
            options: queue_options(number, link),
        });
        let rate = link.rate_bps(0.0).unwrap_or(0.0);
        let mut shape = |stage: &Self| match &mut own {
            Some(own) => stage.within(node, || own.set_rate(rate))?,
            None => Ok(()),
        };
        if variant.routes(link) {
            // a router without a configured capacity needs a link to measure
            shape(self)?;
            let options = router_options(number, link, variant);
            self.within(node, || router::add(dev, options))??;
            self.routers.push((node.to_owned(), dev.to_owned()));
        }
        // set again, because the link's rate must not depend on its router's
        // capacity
        shape(self)?;
        let (node, device) = (node.to_owned(), dev.to_owned());
        let shaper = if let Some(own) = own {
            own
        } else if link.half_duplex {
            return Ok(());
        } else {
            Shaper::Tbf {
                node,
                device,
                bucket: shaper::bucket(link),
            }
        };
        self.shapers.push((number, shaper));
        Ok(())
    }

    /// Changes a route, a delay or an MTU, as an event requires.
    pub fn change(&self, experiment: &Experiment, variant: &Variant, event: &Event) -> Result<()> {
        if let Some([from, to, by]) = &event.route {
            let batch = route_by(experiment, from, to, by);
            self.within(from, || tool("ip", &["-batch", "-"], &batch))??;
        }
        let mut links = experiment.links.iter();
        let Some(link) = links.find(|l| event.between.as_ref() == Some(&l.between)) else {
            return Ok(());
        };
        let [a, b] = &link.between;
        for (node, peer) in [(a, b), (b, a)] {
            let dev = device(node, peer);
            if let Some(delay_ms) = event.delay_ms {
                let changed = Link {
                    delay_ms,
                    ..link.clone()
                };
                let batch = disciplines("change", &changed, &dev, variant);
                self.within(node, || tool("tc", &["-batch", "-"], &batch))??;
            }
            if let Some(bytes) = event.mtu_bytes {
                let batch = format!("link set dev {dev} mtu {bytes}\n");
                self.within(node, || tool("ip", &["-batch", "-"], &batch))??;
            }
        }
        Ok(())
    }

    /// Makes both ends of a half-duplex link send through one shaper.
    fn share_medium(&self, link: &Link) -> Result<Medium> {
        let [a, b] = &link.between;
        let bytes_per_s = link.rate_bps(0.0).unwrap_or(0.0) / 8.0;
        let limit = link.queue_packets.unwrap_or(0);
        let mut medium = Medium::new(bytes_per_s as u64, link.framing(), limit)?;
        for (node, peer) in [(a, b), (b, a)] {
            self.within(node, || medium.attach(&device(node, peer)))??;
        }
        Ok(medium)
    }

    /// Turns off GSO packets, because neither a medium nor the `xcp` queue
    /// discipline splits them.
    fn send_packet_by_packet(&self, experiment: &Experiment) -> Result<()> {
        for link in &experiment.links {
            let [a, b] = &link.between;
            for (node, peer) in [(a, b), (b, a)] {
                let batch = format!("link set dev {} gso_max_segs 1\n", device(node, peer));
                self.within(node, || tool("ip", &["-batch", "-"], &batch))??;
            }
        }
        Ok(())
    }

    /// Drops random packets as they arrive: after the programs that remove
    /// headers, and before TCP or forwarding.
    fn lose(&self, experiment: &Experiment, variant: &Variant) -> Result<()> {
        for (point, percent) in &variant.lose {
            let Some((from, to)) = experiment.direction(point) else {
                continue; // rejected by validate()
            };
            let dev = device(to, from);
            let one_in = (100.0 / percent).round();
            let batch = format!(
                "qdisc add dev {dev} clsact\n\
                 filter add dev {dev} ingress matchall action pass random netrand drop {one_in}\n"
            );
            self.within(to, || tool("tc", &["-batch", "-"], &batch))??;
        }
        Ok(())
    }

    /// Changes the rate of a link, in both directions.
    pub fn set_rate(&mut self, link: usize, bits_per_s: f64) -> Result<()> {
        self.each_shaper(link, |shaper| shaper.set_rate(bits_per_s))
    }

    /// Changes the delay of a path, in both directions.
    pub fn set_delay(&mut self, link: usize, delay: Duration) -> Result<()> {
        self.each_shaper(link, |shaper| shaper.set_delay(delay))
    }

    /// Changes the shapers of a link, each in the namespace of its node.
    fn each_shaper(
        &mut self,
        link: usize,
        change: impl Fn(&mut Shaper) -> Result<()>,
    ) -> Result<()> {
        let (home, spaces) = (&self.home, &self.spaces);
        let of_link = self
            .shapers
            .iter_mut()
            .filter(|(number, _)| *number == link);
        for (_, shaper) in of_link {
            if let Some(space) = shaper.node().and_then(|node| spaces.get(node)) {
                enter(space)?;
            }
            let changed = change(shaper);
            enter(home)?;
            changed?;
        }
        Ok(())
    }
}

/// Whether a link's queue discipline is `xcp`.
pub fn has_own_queue(variant: &Variant, link: &Link) -> bool {
    variant.routes(link) && variant.queue == Queue::Xcp && features::has_qdisc()
}

/// Limits of the queue discipline `xcp` on a link.
fn limits_of(number: usize, link: &Link) -> Limits {
    Limits {
        packets: link.queue_packets.unwrap_or(0),
        // 0: no shared medium
        medium: if link.half_duplex {
            number as u32 + 1
        } else {
            0
        },
        ..Limits::default()
    }
}

/// The options of the `xcp` queue discipline on a link; its rate is set later.
fn queue_options(number: usize, link: &Link) -> qdisc::Options {
    qdisc::Options {
        rate_bytes_per_s: 0,
        limits: limits_of(number, link),
        framing: link.framing(),
    }
}

/// The options of the XCP router on a link.
fn router_options(number: usize, link: &Link, variant: &Variant) -> router::Options {
    let capacity_bps = match variant.capacity_mbit {
        Some(Capacity::Mbit(rate)) => rate * 1e6,
        Some(Capacity::Unknown(_)) => 0.0,
        None => link.highest_bps().unwrap_or(0.0),
    };
    router::Options {
        capacity_bytes_per_s: (capacity_bps / 8.0) as u64,
        measure: variant.measure,
        without: match variant.anticipate {
            true => router::LawTerms::from(&variant.law_without[..]),
            false => router::LawTerms::all(),
        },
        level: variant.law_level,
        max_rtt: Duration::from_secs_f64(variant.max_rtt_s),
        xcp_share_percent: variant.xcp_share,
        framing: Framing {
            overhead_bytes: variant.overhead_bytes,
            mpu_bytes: variant.mpu_bytes,
            ..Framing::default()
        },
        queueing: match variant.queue {
            Queue::Xcp => Queueing::Auto(limits_of(number, link)),
            _ => Queueing::Keep,
        },
        whole_feedback: !variant.fractions,
        ..Default::default()
    }
}

impl Topology {
    /// Configures the sender and the receiver of each flow to use its wire
    /// format.
    fn configure_wire_formats(&mut self, experiment: &Experiment, variant: &Variant) -> Result<()> {
        for node in experiment.nodes() {
            let mut peer_policies = PeerPolicies::default();
            let uses_xcp = |f: &&Flow| f.kind(variant) == CONTROL;
            for flow in experiment.flows.iter().filter(uses_xcp) {
                let peer = match (flow.from == node, flow.to == node) {
                    (true, _) => &flow.to,
                    (_, true) => &flow.from,
                    _ => continue,
                };
                let wire = flow.wire.unwrap_or(variant.wire);
                for peers in addresses(experiment, peer) {
                    let peers = peers
                        .parse()
                        .map_err(|e: String| Error::new(peers, e, "see the experiment's links"))?;
                    peer_policies.policies.push(PeerPolicy {
                        wire: Some(wire),
                        peers: Some(peers),
                    });
                }
            }
            if peer_policies.policies.is_empty() {
                continue;
            }
            peer_policies.devices = experiment
                .links
                .iter()
                .filter_map(|l| {
                    let side = l.between.iter().position(|n| *n == node)?;
                    Some(device(&node, &l.between[1 - side]))
                })
                .collect();
            self.within(&node, || host::set_peer_policies(&peer_policies))??;
            self.configured_nodes.push(node);
        }
        Ok(())
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        for node in &self.configured_nodes {
            let _ = self.within(node, || host::set_peer_policies(&PeerPolicies::default()));
        }
        for (node, dev) in &self.routers {
            let _ = self.within(node, || router::del(dev));
        }
        for node in self.spaces.keys() {
            let _ = tool("ip", &["netns", "del", &self.space_name(node)], "");
        }
    }
}

/// The address of a node on its first link.
pub fn address(experiment: &Experiment, node: &str) -> String {
    addresses(experiment, node)
        .into_iter()
        .next()
        .unwrap_or_default()
}

/// All addresses of a node.
fn addresses(experiment: &Experiment, node: &str) -> Vec<String> {
    let of_link = |(i, link): (usize, &Link)| {
        let side = link.between.iter().position(|n| n == node)?;
        Some(link_address(experiment.ip, i, side))
    };
    experiment
        .links
        .iter()
        .enumerate()
        .filter_map(of_link)
        .collect()
}

fn link_address(ip: u8, link: usize, side: usize) -> String {
    match ip {
        6 => format!("fd00:{link:x}::{}", side + 1),
        _ => format!("10.0.{link}.{}", side + 1),
    }
}

fn link_network(ip: u8, link: usize) -> String {
    match ip {
        6 => format!("fd00:{link:x}::/64"),
        _ => format!("10.0.{link}.0/24"),
    }
}

fn addresses_and_routes(experiment: &Experiment, node: &str) -> String {
    let ip = experiment.ip;
    let (length, nodad) = if ip == 6 { (64, " nodad") } else { (24, "") };
    let mut batch = String::from("link set lo up\n");
    for (i, link) in experiment.links.iter().enumerate() {
        let Some(side) = link.between.iter().position(|n| n == node) else {
            continue;
        };
        let dev = device(node, &link.between[1 - side]);
        batch += &format!(
            "addr add {}/{length} dev {dev}{nodad}\nlink set {dev} up\n",
            link_address(ip, i, side)
        );
    }
    let shortest_paths = shortest_paths(experiment, node);
    for (i, link) in experiment.links.iter().enumerate() {
        if link.between.iter().any(|n| n == node) {
            continue;
        }
        let nearest = link
            .between
            .iter()
            .filter_map(|n| shortest_paths.get(n.as_str()))
            .min_by_key(|nearest_path| nearest_path.len());
        if let Some((link, side)) = nearest.and_then(|nearest_path| nearest_path.first()) {
            let via = link_address(ip, *link, *side);
            batch += &format!("route add {} via {via}\n", link_network(ip, i));
        }
    }
    batch
}

/// The ip command that routes a node's packets for another node via a
/// neighbour.
fn route_by(experiment: &Experiment, from: &str, to: &str, by: &str) -> String {
    let ip = experiment.ip;
    let place = |l: &Link, node: &str| l.between.iter().position(|n| n == node);
    let mut links = experiment.links.iter().enumerate();
    let network = links.clone().find(|(_, l)| place(l, to).is_some());
    let neighbour = links.find(|(_, l)| place(l, from).is_some() && place(l, by).is_some());
    match (network, neighbour) {
        (Some((network, _)), Some((link, l))) => format!(
            "route replace {} via {}\n",
            link_network(ip, network),
            link_address(ip, link, place(l, by).unwrap_or(0))
        ),
        _ => String::new(), // rejected by validate()
    }
}

fn no_node(node: &str) -> Error {
    Error::new(node, "no such node", "see the experiment's links")
}

/// Moves the calling thread to a network namespace.
pub(crate) fn enter(space: &File) -> Result<()> {
    // SAFETY: the descriptor is open; only this thread moves.
    if unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
        return Err(Error::io("setns", &std::io::Error::last_os_error()));
    }
    Ok(())
}

/// Runs ip or tc with a batch on its standard input, and returns its output.
pub fn tool(name: &str, args: &[&str], batch: &str) -> Result<String> {
    let command = format!("{name} {}", args.join(" "));
    let missing = |e: std::io::Error| {
        Error::new(
            command.clone(),
            e.to_string(),
            "install it: apt-get install iproute2",
        )
    };
    let mut child = Command::new(name)
        .args(args)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(batch.as_bytes());
    }
    let out = child.wait_with_output().map_err(missing)?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(Error::new(
        command,
        String::from_utf8_lossy(&out.stderr).trim().to_owned(),
        "`xcp doctor` shows which queue disciplines this kernel has; the virtual machine has all",
    ))
}

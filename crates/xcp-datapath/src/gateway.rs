// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The gateway's part of the data path (bpf/gateway.bpf.c): delivers forwarded TCP connections to
//! the listeners of a proxy. Its programs are not pinned: the kernel removes them when the
//! process of the proxy ends, and forwards all packets again.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use libbpf_rs::{MapCore, MapFlags, Object};
use serde::{Deserialize, Serialize};

use crate::bpf_link::{self, Direction, Place};
use crate::host::device;
use crate::host::peers::Prefix;
use crate::pinned::change::Change;
use crate::rtnl::Device;
use crate::{bpffs, netns, object, policy_routing, router, wire, Error, Result};
use xcp_abi::{
    xcp_gateway_config, xcp_gateway_counters, xcp_gateway_device, xcp_gateway_prefix, Record,
    XCP_GATEWAY_DEVICES_MAX, XCP_GATEWAY_EXCLUDE, XCP_GATEWAY_FILTERS_MAX, XCP_GATEWAY_INCLUDE,
    XCP_GATEWAY_LAN, XCP_GATEWAY_MARK, XCP_GATEWAY_WAN,
};

/// The mark of delivered packets, and the number of the routing table for them.
const MARK: u32 = XCP_GATEWAY_MARK as u32;
const FAST_OPEN: &str = "/proc/sys/net/ipv4/tcp_fastopen";
/// The bit that lets listeners accept SYNs with data.
const FAST_OPEN_SERVER: u32 = 2;

/// The side of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The hosts that do not use XCP.
    Lan,
    /// The link on which the gateway uses XCP.
    Wan,
}

impl Side {
    fn number(self) -> u32 {
        match self {
            Self::Lan => XCP_GATEWAY_LAN,
            Self::Wan => XCP_GATEWAY_WAN,
        }
    }

    /// The other side.
    pub fn other(self) -> Self {
        match self {
            Self::Lan => Self::Wan,
            Self::Wan => Self::Lan,
        }
    }
}

/// The connections that the proxy accepts; all without any entry. Prefixes are those of either
/// end, ports those of destinations. The longest prefix that matches an address decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filters {
    /// Only these prefixes.
    pub include: Vec<Prefix>,
    /// Not these prefixes.
    pub exclude: Vec<Prefix>,
    /// Only these ports.
    pub ports: Vec<u16>,
    /// Not these ports.
    pub exclude_ports: Vec<u16>,
}

/// Counters since the gateway was started: new connections, by what happened to them, and other
/// packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Connections given to the proxy.
    pub intercepted: u64,
    /// Connections forwarded, because the configuration excludes them.
    pub excluded: u64,
    /// Connections forwarded, because they are signed (TCP-MD5, TCP-AO) or join an MPTCP
    /// connection.
    pub unsplittable: u64,
    /// Connections that are not forwarded between LAN and WAN.
    pub not_across: u64,
    /// Connections forwarded, because there is no route back to the source on its side.
    pub spoofed: u64,
    /// Connections forwarded, because the proxy or the source has too many.
    pub over_limit: u64,
    /// Connections forwarded, because there is no proxy.
    pub no_proxy: u64,
    /// Connections forwarded, because the routing rule is missing.
    pub no_rule: u64,
    /// Packets of other protocols, and fragments, which are forwarded.
    pub other_packets: u64,
}

/// The programs of a gateway, attached until this is dropped.
pub struct Gateway {
    object: Object,
    /// By the index of the device.
    links: HashMap<u32, OwnedFd>,
    /// The index of the WAN device, and the program that makes room for feedback on its ACKs.
    room: Option<(u32, OwnedFd)>,
    _reopen: OwnedFd,
}

impl Gateway {
    /// Attaches the programs to the LAN and WAN devices, and adds the routing rule. No
    /// connection is delivered before [`Self::set_listener`].
    ///
    /// # Errors
    /// This process is not root, a device does not exist, or the kernel lacks a feature.
    pub fn attach(lan: &[String], wan: &str, filters: &Filters) -> Result<Self> {
        bpffs::require("xcp gateway run", bpffs::Access::Read)?;
        check(lan, wan, filters)?;
        let object = object::load(&object::GATEWAY, object::open(&object::GATEWAY)?)?;
        let netns = netns::open()?;
        let reopen = {
            let program = object::program(&object, "xcp_gateway_reopen")?;
            bpf_link::attach_to(program.as_fd(), netns.as_fd(), libbpf_sys::BPF_SK_LOOKUP)?
        };
        let mut gateway = Self {
            object,
            links: HashMap::new(),
            room: None,
            _reopen: reopen,
        };
        gateway.set_filters(filters)?;
        if let Some(e) = gateway.set_devices(lan, wan)?.into_iter().next() {
            return Err(e);
        }
        policy_routing::deliver_locally(MARK)?;
        Ok(gateway)
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        object::map(&self.object, name)
    }

    /// Replaces the devices. May be called again to find devices that have been replaced by
    /// others of the same name. Returns the failures of those that are left out, for example
    /// because they do not exist; all others are set.
    ///
    /// # Errors
    /// The map of devices cannot be written.
    pub fn set_devices(&mut self, lan: &[String], wan: &str) -> Result<Vec<Error>> {
        let lan = lan.iter().map(|name| (name.as_str(), Side::Lan));
        let (mut found, mut failures) = (Vec::new(), Vec::new());
        for (name, side) in lan.chain([(wan, Side::Wan)]) {
            match self.attach_to(name, side) {
                Ok(device) => found.push((device, side)),
                Err(e) => failures.push(e),
            }
        }
        let records = found.iter().map(|(device, side)| {
            let record = xcp_gateway_device {
                side: side.number(),
                l2_len: device.l2_len,
            };
            (device.index.to_ne_bytes().to_vec(), record.bytes().to_vec())
        });
        replace_entries(&self.map("devices")?, &records.collect())?;
        let is_kept = |index: u32| found.iter().any(|(device, _)| device.index == index);
        self.links.retain(|index, _| is_kept(*index));
        Ok(failures)
    }

    /// Attaches the programs to a device, unless they are attached.
    fn attach_to(&mut self, name: &str, side: Side) -> Result<Device> {
        let device = Device::find(name)?;
        if side == Side::Wan {
            device::refuse_headers(&device)?;
        }
        if !self.links.contains_key(&device.index) {
            let program = object::program(&self.object, "xcp_gateway")?;
            let link =
                bpf_link::attach_tcx(program.as_fd(), &device, Direction::Ingress, Place::First)?;
            self.links.insert(device.index, link);
        }
        let has_room = |(index, _): &(u32, OwnedFd)| *index == device.index;
        if side == Side::Wan && !self.room.as_ref().is_some_and(has_room) {
            self.room = device::make_room(&device)?.map(|link| (device.index, link));
        }
        Ok(device)
    }

    /// Replaces the filters.
    ///
    /// # Errors
    /// There are too many, which [`check`] finds, or a map cannot be written.
    pub fn set_filters(&mut self, filters: &Filters) -> Result<()> {
        let prefixes = entries(&filters.include, &filters.exclude, |prefix| {
            let (address, bits) = prefix.mapped();
            let key = xcp_gateway_prefix {
                length: bits,
                address: xcp_abi::xcp_address { bytes: address },
            };
            key.bytes().to_vec()
        });
        let ports = entries(&filters.ports, &filters.exclude_ports, |port| {
            u32::from(*port).to_ne_bytes().to_vec()
        });
        replace_entries(&self.map("prefixes")?, &prefixes)?;
        replace_entries(&self.map("ports")?, &ports)?;
        let mut config = self.config()?;
        config.only_prefixes = u32::from(!filters.include.is_empty());
        config.only_ports = u32::from(!filters.ports.is_empty());
        self.write_config(&config)
    }

    fn config(&self) -> Result<xcp_gateway_config> {
        object::read_record(&self.map(".data.config")?, 0)
    }

    fn write_config(&self, config: &xcp_gateway_config) -> Result<()> {
        object::write_record(&self.map(".data.config")?, config)
    }

    /// Gives new connections from one side, over IPv4 or IPv6, to a listener, until its socket
    /// is closed.
    ///
    /// # Errors
    /// The socket does not listen.
    pub fn set_listener(&self, side: Side, ipv6: bool, listener: BorrowedFd<'_>) -> Result<()> {
        let index = 2 * side.number() + u32::from(ipv6);
        let socket = (listener.as_raw_fd() as u64).to_ne_bytes();
        self.map("listeners")?
            .update(&index.to_ne_bytes(), &socket, MapFlags::ANY)
            .map_err(|e| object::failure("listener", &e))
    }

    /// Forwards all new connections while the proxy is full.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn set_full(&self, full: bool) -> Result<()> {
        let mut config = self.config()?;
        config.full = full.into();
        self.write_config(&config)
    }

    /// Forwards new connections of a source while it has as many as one may have.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn set_source_full(&self, source: IpAddr, full: bool) -> Result<()> {
        let map = self.map("full_sources")?;
        let key = wire::mapped(source).octets();
        if full {
            map.update(&key, &1u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(|e| object::failure("source", &e))
        } else {
            let _ = map.delete(&key); // the kernel may have evicted it
            Ok(())
        }
    }

    /// Forwards new connections of exactly these sources.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn set_full_sources(&self, sources: &[IpAddr]) -> Result<()> {
        let entry = |source: &IpAddr| {
            let key = wire::mapped(*source).octets();
            (key.to_vec(), 1u32.to_ne_bytes().to_vec())
        };
        let sources = sources.iter().take(XCP_GATEWAY_FILTERS_MAX as usize);
        replace_entries(&self.map("full_sources")?, &sources.map(entry).collect())
    }

    /// The counters.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn counters(&self) -> Result<Counters> {
        let mut total = Counters::default();
        for cpu in object::read_per_cpu::<xcp_gateway_counters>(&self.map("counters")?)? {
            total.intercepted += cpu.intercepted;
            total.excluded += cpu.excluded;
            total.unsplittable += cpu.unsplittable;
            total.not_across += cpu.not_across;
            total.spoofed += cpu.spoofed;
            total.over_limit += cpu.over_limit;
            total.no_proxy += cpu.no_proxy;
            total.no_rule += cpu.no_rule;
            total.other_packets += cpu.other_packets;
        }
        Ok(total)
    }
}

/// Adds the routing rule and route again if another program has removed them. Returns whether
/// it had.
///
/// # Errors
/// The kernel refuses them.
pub fn repair_rule() -> Result<bool> {
    policy_routing::deliver_locally(MARK)
}

/// Lets the kernel accept SYNs with data (TCP Fast Open) on sockets that ask for it.
///
/// # Errors
/// The setting cannot be written.
pub fn accept_fast_open() -> Result<()> {
    let bits = fast_open()?;
    if bits & FAST_OPEN_SERVER != 0 {
        return Ok(());
    }
    bpffs::create(&fast_open_note()?)?;
    set_fast_open(bits | FAST_OPEN_SERVER)
}

/// Removes the routing rule and undoes [`accept_fast_open`], also for a killed gateway. Returns
/// whether there was anything.
///
/// # Errors
/// This process is not root.
pub fn undo() -> Result<bool> {
    bpffs::require("xcp gateway off", bpffs::Access::Read)?;
    let removed = policy_routing::stop_delivering(MARK);
    let note = fast_open_note()?;
    if !object::exists(&bpffs::dir(&note)) {
        return Ok(removed);
    }
    set_fast_open(fast_open()? & !FAST_OPEN_SERVER)?;
    bpffs::remove(&note)?;
    Ok(true)
}

fn fast_open() -> Result<u32> {
    let text = fs::read_to_string(FAST_OPEN).map_err(|e| Error::io(FAST_OPEN, &e))?;
    let number = text.trim().parse();
    number.map_err(|_| Error::new(FAST_OPEN, "not a number", "report this"))
}

fn set_fast_open(bits: u32) -> Result<()> {
    fs::write(FAST_OPEN, bits.to_string()).map_err(|e| Error::io(FAST_OPEN, &e))
}

/// A folder that notes that the gateway of this network namespace has set the bit.
fn fast_open_note() -> Result<String> {
    Ok(format!("gateway/{}-fast-open", netns::inode()?))
}

/// Makes the WAN device a router, and notes that it is one only for the gateway.
///
/// # Errors
/// It is a router already, and not only for the gateway; or see [`router::add`].
pub fn add_router(wan: &str, options: router::Options) -> Result<Change> {
    let is_router = router::devices()?.iter().any(|device| device == wan);
    if is_router && !is_our_router(wan) {
        return Err(Error::new(
            wan,
            "is a router already",
            format!("leave out the capacity of the gateway, or run: xcp router del {wan}"),
        ));
    }
    let change = router::add(wan, options)?;
    if change == Change::Added {
        bpffs::mark(&note(wan)?)?;
    }
    Ok(change)
}

/// Whether this device is a router only for the gateway.
pub fn is_our_router(device: &str) -> bool {
    note(device).is_ok_and(|path| object::exists(&path))
}

/// Removes the routers that are only for the gateway. Returns whether there were any.
///
/// # Errors
/// See [`router::del`].
pub fn remove_routers() -> Result<bool> {
    let ours = router::devices()?;
    let ours = ours.iter().filter(|device| is_our_router(device));
    ours.map(|device| router::del(device))
        .collect::<Result<Vec<_>>>()
        .map(|removed| !removed.is_empty())
}

/// A folder in that of the router.
fn note(device: &str) -> Result<PathBuf> {
    let part = router::folder::part(Device::find(device)?.index)?;
    Ok(bpffs::dir(&part).join("gateway"))
}

/// Checks options of a gateway.
///
/// # Errors
/// A device is on both sides, or there are too many devices or filters.
pub fn check(lan: &[String], wan: &str, filters: &Filters) -> Result<()> {
    if lan.iter().any(|name| name == wan) {
        return Err(Error::new(
            wan,
            "is on both sides",
            "use different devices for LAN and WAN",
        ));
    }
    if lan.len() >= XCP_GATEWAY_DEVICES_MAX as usize {
        let most = XCP_GATEWAY_DEVICES_MAX - 1;
        return Err(Error::new(
            "lan",
            format!("more than {most} devices"),
            "put them into a bridge",
        ));
    }
    let prefixes = filters.include.len() + filters.exclude.len();
    let ports = filters.ports.len() + filters.exclude_ports.len();
    if prefixes.max(ports) > XCP_GATEWAY_FILTERS_MAX as usize {
        return Err(Error::new(
            "filters",
            format!("more than {XCP_GATEWAY_FILTERS_MAX} prefixes or ports"),
            "use shorter prefixes, or fewer ports",
        ));
    }
    Ok(())
}

/// The keys and values of a map of filters.
fn entries<T>(
    include: &[T],
    exclude: &[T],
    key: impl Fn(&T) -> Vec<u8>,
) -> HashMap<Vec<u8>, Vec<u8>> {
    let include = include.iter().map(|one| (one, XCP_GATEWAY_INCLUDE));
    let exclude = exclude.iter().map(|one| (one, XCP_GATEWAY_EXCLUDE));
    include
        .chain(exclude)
        .map(|(one, filter)| (key(one), filter.to_ne_bytes().to_vec()))
        .collect()
}

/// Writes entries, after deleting all others: the map may have room for no more.
fn replace_entries(map: &impl MapCore, entries: &HashMap<Vec<u8>, Vec<u8>>) -> Result<()> {
    let failure = |e| object::failure("filters", &e);
    let old: Vec<_> = map
        .keys()
        .filter(|key| !entries.contains_key(key))
        .collect();
    for key in &old {
        map.delete(key).map_err(failure)?;
    }
    for (key, value) in entries {
        map.update(key, value, MapFlags::ANY).map_err(failure)?;
    }
    Ok(())
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The queue discipline `xcp`: it is registered once, pinned in `qdisc` with its maps, and
//! made the root queue discipline of devices. Each device has an index, and a record at this
//! index. Both exist as long as the device's router.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::OnceLock;

use libbpf_rs::{Btf, MapCore, MapFlags, MapHandle};

use super::framing::{Framing, Limits};
use crate::command_lock::CommandLock;
use crate::rtnl::{self, Device};
use crate::{bpffs, layout, netns, object, Error, Result};
use xcp_abi::{xcp_queue, xcp_queue_config, xcp_queue_key, Record};

/// Its name in `tc`.
pub const KIND: &str = "xcp";
const PART: &str = "qdisc";
/// The map of records, which routers share.
pub(crate) const RECORDS: &str = "queues";
const CONFIGS: &str = "queue_configs";
const INDEX: &str = "queue_index";
const MEDIA: &str = "media";
const MAPS: [&str; 4] = [RECORDS, CONFIGS, INDEX, MEDIA];
/// The pin of the link that registers it; created last.
const LINK: &str = "link";

/// The options of a device's queue discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The shaping rate, bytes per second; 0 for no shaping.
    pub rate_bytes_per_s: u64,
    pub limits: Limits,
    /// The link's per-packet overhead.
    pub framing: Framing,
}

impl Options {
    fn config(self) -> xcp_queue_config {
        xcp_queue_config {
            rate_Bps: self.rate_bytes_per_s,
            limit_B: self.limits.bytes,
            limit_packets: self.limits.packets,
            frame: self.framing.record(),
            medium: self.limits.medium,
        }
    }
}

/// The result of [`install`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The index of the device's record.
    pub index: u32,
    /// The configuration was changed.
    pub changed: bool,
}

/// Registers the queue discipline, so that `tc qdisc replace dev DEV root xcp`
/// works.
///
/// # Errors
/// The kernel does not support queue disciplines in BPF.
pub fn register() -> Result<()> {
    let _lock = CommandLock::take()?;
    register_now()
}

/// Whether the queue discipline is already registered.
pub(crate) fn is_registered() -> bool {
    object::exists(&bpffs::dir(PART).join(LINK))
}

/// Whether the kernel supports queue disciplines in BPF (6.16 and later with
/// CONFIG_NET_SCH_BPF).
pub fn is_supported() -> bool {
    /// Cached, because reading all of the kernel's types takes milliseconds.
    static IN_TYPES: OnceLock<bool> = OnceLock::new();
    let in_types = || {
        Btf::from_vmlinux().is_ok_and(|btf| {
            btf.type_by_name::<libbpf_rs::btf::types::Struct<'_>>("bpf_struct_ops_Qdisc_ops")
                .is_some()
        })
    };
    is_registered() || *IN_TYPES.get_or_init(in_types)
}

fn register_now() -> Result<()> {
    if is_registered() {
        return match layout::is_ours(&bpffs::dir(PART), &object::QDISC, &MAPS)? {
            true => Ok(()),
            false => Err(Error::new(
                "queue discipline xcp",
                "registered by another version of xcp, with a different record layout",
                "delete all routers that use it: xcp router del DEV",
            )),
        };
    }
    bpffs::create(PART)?;
    // remove what a killed command left incomplete
    bpffs::clear(PART)?;
    let loaded = if is_supported() {
        load()
    } else {
        Err(Error::new(
            "queue discipline xcp",
            "this kernel has no queue disciplines in BPF (needs 6.16 with CONFIG_NET_SCH_BPF)",
            "keep the device's queue discipline: --no-qdisc",
        ))
    };
    loaded.inspect_err(|_| {
        let _ = bpffs::remove(PART);
    })
}

fn load() -> Result<()> {
    let dir = bpffs::dir(PART);
    let mut loaded = object::load(&object::QDISC, object::open(&object::QDISC)?)?;
    for map in MAPS {
        object::pin_map(&mut loaded, map, &dir.join(map))?;
    }
    layout::mark(&dir, &object::QDISC, &MAPS)?;
    object::register(&mut loaded, KIND, "queue discipline xcp", &dir.join(LINK))
}

/// Makes it a device's root queue discipline, or changes its options while traffic flows.
///
/// # Errors
/// The device has another, configured root queue discipline.
pub fn install(dev: &str, options: Options) -> Result<Installed> {
    let prepared = prepare(dev, options)?;
    let placed = place(dev).inspect_err(|_| {
        if prepared.changed {
            let _ = remove(dev);
        }
    })?;
    Ok(Installed {
        changed: prepared.changed || placed,
        ..prepared
    })
}

/// Creates or updates a device's record, whether its queue discipline exists or not.
pub(crate) fn prepare(dev: &str, options: Options) -> Result<Installed> {
    let device = Device::find(dev)?;
    rtnl::refuse_configured_qdisc(&device, Some(KIND), "with --no-qdisc")?;
    let _lock = CommandLock::take()?;
    register_now()?;
    configure(&device, options).inspect_err(|_| {
        let _ = unregister_unused();
    })
}

fn configure(device: &Device, options: Options) -> Result<Installed> {
    let (index, fresh) = enter(device)?;
    let config = options.config();
    if config.medium != 0 {
        let key = config.medium.to_ne_bytes();
        // an existing medium keeps its time
        let _ = map(MEDIA)?.update(&key, &0u64.to_ne_bytes(), MapFlags::NO_EXIST);
    }
    let before: xcp_queue_config = object::read_record(&map(CONFIGS)?, index)?;
    let differs = config.bytes() != before.bytes();
    if differs {
        write(CONFIGS, &index.to_ne_bytes(), config.bytes())?;
    }
    Ok(Installed {
        index,
        changed: fresh || differs,
    })
}

/// Makes sure that the root queue discipline of a device uses the device's record. Returns
/// whether this changed anything.
pub(crate) fn place(dev: &str) -> Result<bool> {
    let device = Device::find(dev)?;
    let _lock = CommandLock::take()?;
    let ours = rtnl::root_qdisc(device.index).is_some_and(|q| q.kind == KIND);
    if ours && record(dev)?.is_some_and(|r| r.present > 0) {
        return Ok(false);
    }
    if ours {
        // it was added by hand, without a record
        rtnl::delete_root_qdisc(device.index)?;
    }
    rtnl::replace_root_qdisc(device.index, KIND)
        .map_err(|e| Error::new(dev, e.reason, e.remedy))?;
    Ok(true)
}

/// Removes it from a device, which gets its default queue discipline back. Unregisters it
/// after the last device.
pub fn remove(dev: &str) -> Result<()> {
    if !object::exists(&bpffs::dir(PART)) {
        return Ok(());
    }
    let device = &Device::find(dev)?;
    let _lock = CommandLock::take()?;
    remove_qdisc(device)
}

/// Frees records without a queue discipline and a router. Unregisters the queue discipline if
/// no record remains.
pub(crate) fn tidy() -> Result<()> {
    if !object::exists(&bpffs::dir(PART)) {
        return Ok(());
    }
    let _lock = CommandLock::take()?;
    unregister_unused()
}

fn remove_qdisc(device: &Device) -> Result<()> {
    if is_registered() && index_of(device)?.is_some() {
        if rtnl::root_qdisc(device.index).is_some_and(|q| q.kind == KIND) {
            rtnl::delete_root_qdisc(device.index)?;
        }
        map(INDEX)?
            .delete(key_of(device)?.bytes())
            .map_err(|e| object::failure(INDEX, &e))?;
    }
    unregister_unused()
}

/// The counters of a device's queues; None if it has no record.
pub fn record(dev: &str) -> Result<Option<xcp_queue>> {
    let device = &Device::find(dev)?;
    if !is_registered() {
        return Ok(None);
    }
    index_of(device)?
        .map(|index| object::read_record(&map(RECORDS)?, index))
        .transpose()
}

/// The shaping rate of the queue discipline with this index, bytes per second; None if it
/// does not shape.
pub(crate) fn rate(index: u32) -> Result<Option<u64>> {
    let config: xcp_queue_config = object::read_record(&map(CONFIGS)?, index)?;
    Ok((config.rate_Bps > 0).then_some(config.rate_Bps))
}

/// The options of the queue discipline with this index.
pub(crate) fn options(index: u32) -> Result<Options> {
    let config: xcp_queue_config = object::read_record(&map(CONFIGS)?, index)?;
    Ok(Options {
        rate_bytes_per_s: config.rate_Bps,
        limits: Limits {
            bytes: config.limit_B,
            packets: config.limit_packets,
            medium: config.medium,
        },
        framing: Framing::of(&config.frame),
    })
}

/// Sets the shaping rate, bytes per second; 0 for no shaping.
pub(crate) fn set_rate(index: u32, rate_bytes_per_s: u64) -> Result<()> {
    let config: xcp_queue_config = object::read_record(&map(CONFIGS)?, index)?;
    let config = xcp_queue_config {
        rate_Bps: rate_bytes_per_s,
        ..config
    };
    write(CONFIGS, &index.to_ne_bytes(), config.bytes())
}

/// The number of packets that its queues dropped.
pub(crate) fn drops(index: u32) -> Result<u64> {
    let record: xcp_queue = object::read_record(&map(RECORDS)?, index)?;
    Ok(record.class.iter().map(|c| c.dropped_packets).sum())
}

/// Whether a queue discipline uses the record with this index.
pub(crate) fn is_present(index: u32) -> Result<bool> {
    let record: xcp_queue = object::read_record(&map(RECORDS)?, index)?;
    Ok(record.present > 0)
}

/// The folder in which its maps are pinned.
pub(crate) fn folder() -> PathBuf {
    bpffs::dir(PART)
}

fn unregister_unused() -> Result<()> {
    if is_registered() {
        sweep()?;
        if map(INDEX)?.keys().next().is_some() {
            return Ok(());
        }
    }
    bpffs::remove(PART)
}

fn map(name: &str) -> Result<MapHandle> {
    object::pinned_map(&bpffs::dir(PART).join(name))
}

fn write(name: &str, key: &[u8], value: &[u8]) -> Result<()> {
    map(name)?
        .update(key, value, MapFlags::ANY)
        .map_err(|e| object::failure(name, &e))
}

fn key_of(device: &Device) -> Result<xcp_queue_key> {
    Ok(xcp_queue_key {
        netns: netns::inode()? as u32,
        ifindex: device.index,
    })
}

fn index_of(device: &Device) -> Result<Option<u32>> {
    index_at(&map(INDEX)?, key_of(device)?.bytes())
}

fn index_at(index: &MapHandle, key: &[u8]) -> Result<Option<u32>> {
    let found = index
        .lookup(key, MapFlags::ANY)
        .map_err(|e| object::failure(INDEX, &e))?;
    Ok(found
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_ne_bytes))
}

/// Finds or creates the record of a device. Returns its index, and whether it is new (empty).
fn enter(device: &Device) -> Result<(u32, bool)> {
    if let Some(known) = index_of(device)? {
        return Ok((known, false));
    }
    sweep()?;
    let index = map(INDEX)?;
    let mut used = BTreeSet::new();
    for key in index.keys() {
        used.extend(index_at(&index, &key)?);
    }
    let records = map(RECORDS)?.max_entries();
    let free = (0..records).find(|i| !used.contains(i)).ok_or_else(|| {
        Error::new(
            &device.name,
            format!("all {records} records of the queue discipline xcp are in use"),
            "delete routers that you do not need: xcp router del DEV",
        )
    })?;
    let key = free.to_ne_bytes();
    write(RECORDS, &key, xcp_queue::default().bytes())?;
    write(CONFIGS, &key, xcp_queue_config::default().bytes())?;
    write(INDEX, key_of(device)?.bytes(), &key)?;
    Ok((free, true))
}

/// Frees records without a queue discipline and a router, and unused media.
fn sweep() -> Result<()> {
    let index = map(INDEX)?;
    let mut used = BTreeSet::new();
    for key in index.keys().collect::<Vec<_>>() {
        let (Some(device), Some(at)) = (xcp_queue_key::from_bytes(&key), index_at(&index, &key)?)
        else {
            continue;
        };
        let router = bpffs::dir(&format!("router/{}-{}", device.netns, device.ifindex));
        let record: xcp_queue = object::read_record(&map(RECORDS)?, at)?;
        if record.present == 0 && !object::exists(&router) {
            let _ = index.delete(&key);
        } else {
            used.insert(object::read_record::<xcp_queue_config>(&map(CONFIGS)?, at)?.medium);
        }
    }
    let media = map(MEDIA)?;
    for key in media.keys().collect::<Vec<_>>() {
        let medium = key.as_slice().try_into().map(u32::from_ne_bytes);
        if medium.is_ok_and(|m| !used.contains(&m)) {
            let _ = media.delete(&key);
        }
    }
    Ok(())
}

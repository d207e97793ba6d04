// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Adds, changes, replaces and deletes routers: one program instance per device.

use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::{Object, OpenObject, ProgramMut};
use xcp_abi::{xcp_router_config, xcp_router_options, Record};

use super::folder::*;
use super::framing::Framing;
use super::options::*;
use super::qdisc;
use super::shape::{self, Shape};
use crate::bpf_link::{Direction, Place};
use crate::bpffs::Access;
use crate::command_lock::CommandLock;
use crate::pinned::change::Change;
use crate::rtnl::{self, Device};
use crate::trace::{self, Trace};
use crate::{bpf_link, bpffs, device, folders, layout, object, probes, Error, Result};

/// Renames the folder of a device's router if the device has moved from another network
/// namespace. An outdated router under the new name is deleted.
fn rename_moved_folder(device: &Device) -> Result<()> {
    let part = part(device.index)?;
    let named = bpffs::dir(&part);
    let found = find(device)?;
    if found.as_ref() == Some(&named) {
        return Ok(());
    }
    if object::exists(&named.join("link")) {
        bpf_link::detach(bpf_link::open(&named.join("link"))?.as_fd());
        bpffs::remove(&part)?;
    }
    let Some(found) = found else {
        return Ok(());
    };
    // a moved device loses its queue discipline; without this mark, `add` sets up everything
    let _ = fs::remove_dir(found.join(COMPLETE).join(object::ROUTER.build()));
    let _ = fs::remove_dir_all(&named);
    fs::rename(&found, &named).map_err(|e| Error::io(named.display().to_string(), &e))
}

/// Loads a router program that does not use the queue discipline `xcp`, without attaching it.
pub fn load(l2_len: u32, options: Options) -> Result<Object> {
    load_for(object::cpus()?, l2_len, options)
}

/// Like [`load`], for a machine with this number of CPUs.
pub fn load_for(cpus: u32, l2_len: u32, options: Options) -> Result<Object> {
    load_over(cpus, l2_len, options.record(), None)
}

fn load_over(
    cpus: u32,
    l2_len: u32,
    config: xcp_router_config,
    queues: Option<&Path>,
) -> Result<Object> {
    let mut open = object::open(&object::ROUTER)?;
    if let Some(folder) = queues {
        object::reuse(&mut open, &[qdisc::RECORDS], folder)?;
    }
    configure(&mut open, constants(cpus, l2_len), config)?;
    object::load(&object::ROUTER, open)
}

/// The constants of a router program on this kernel.
pub(crate) fn constants(cpus: u32, l2_len: u32) -> xcp_router_options {
    xcp_router_options {
        l2_len,
        cpus,
        merge_chains: probes::merges_chains().into(),
        upstream: 0,
    }
}

/// Sets the constants and the configuration of an opened router program.
pub(crate) fn configure(
    open: &mut OpenObject,
    constants: xcp_router_options,
    config: xcp_router_config,
) -> Result<()> {
    object::open_map(open, "cpus")?
        .set_max_entries(constants.cpus)
        .map_err(|e| object::failure("map of CPUs", &e))?;
    object::set_data(open, ".rodata", &constants)?;
    object::set_data(open, ".data.config", &config)
}

/// Adds a router to a device, or changes the options of the present one.
pub fn add(dev: &str, options: Options) -> Result<Change> {
    bpffs::require("xcp router add", Access::Change)?;
    let _lock = CommandLock::take()?;
    let device = Device::find(dev)?;
    let part = part(device.index)?;
    let dir = bpffs::dir(&part);
    refuse_unmeasurable(&device, options)?;
    rename_moved_folder(&device)?;
    let options = options.over(&device);
    if object::exists(&dir.join(COMPLETE)) {
        return match object::exists(&dir.join(COMPLETE).join(object::ROUTER.build())) {
            true => change(&device, options, &dir),
            false => replace_programs(&device, options, &dir).map(|()| Change::Changed),
        };
    }
    if object::exists(&dir) {
        // remove what a killed command left incomplete
        remove_all(&device)?;
    }
    bpffs::create(&part)?;
    install(&device, options, &dir).inspect_err(|_| {
        let _ = qdisc::remove(&device.name);
        let _ = shape::remove(&device, &dir);
        let _ = bpffs::remove(&part);
    })?;
    Ok(Change::Added)
}

/// The options that [`options`] would return after [`add`] with the given ones. Options that
/// have the same effect on this device and kernel become equal.
///
/// # Errors
/// The device does not exist.
pub fn normalized_options(dev: &str, asked: Options) -> Result<Options> {
    let asked = asked.over(&Device::find(dev)?);
    let max_rtt_ticks = asked.record().params.max_rtt;
    Ok(Options {
        queueing: queueing(asked.capacity_bytes_per_s, asked.qdisc(), asked.shape()),
        max_rtt: duration(max_rtt_ticks),
        ..asked
    })
}

/// The options of a device's router; None if the device has none.
///
/// # Errors
/// The device does not exist, or the router's records cannot be read, for example because
/// another build laid them out differently.
pub fn options(dev: &str) -> Result<Option<Options>> {
    bpffs::require("the configuration", Access::Read)?;
    let device = Device::find(dev)?;
    let Some(dir) = find(&device)?.filter(|dir| object::exists(&dir.join(COMPLETE))) else {
        return Ok(None);
    };
    ours(&dir, dev)?;
    let config: xcp_router_config =
        object::read_record(&object::pinned_map(&dir.join("config"))?, 0)?;
    let params = &config.params;
    let framing = Framing::of(&config.frame);
    let qdisc = match config.queue {
        0 => None,
        behind => Some(qdisc::options(behind - 1)?),
    };
    let shape = shape::set(&dir).map(|(rate_bytes_per_s, limit_packets)| Shape {
        rate_bytes_per_s,
        limit_packets,
        framing,
    });
    Ok(Some(Options {
        capacity_bytes_per_s: params.capacity_Bps,
        measure: config.measure != 0,
        without: LawTerms::of_bits(params.without),
        level: params.with != 0,
        max_rtt: duration(params.max_rtt),
        xcp_share_percent: percent(config.share),
        framing,
        queueing: queueing(params.capacity_Bps, qdisc, shape),
        ip_proto: config.ip_proto as u8,
        whole_feedback: config.whole_feedback != 0,
    }))
}

/// The names of the devices of this network namespace that have a router, sorted.
///
/// # Errors
/// This process may not read pinned objects.
pub fn devices() -> Result<Vec<String>> {
    bpffs::require("the configuration", Access::Read)?;
    let complete = of_here().filter(|(_, dir)| object::exists(&dir.join(COMPLETE)));
    let mut names: Vec<String> = complete.filter_map(|(i, _)| rtnl::name_of(i)).collect();
    names.sort();
    Ok(names)
}

/// Fails if the capacity is only measured, but the device permits no measurement.
fn refuse_unmeasurable(device: &Device, options: Options) -> Result<()> {
    let by_measuring = options.capacity_bytes_per_s == 0;
    let shaped = matches!(options.queueing, Queueing::Shape { .. });
    match by_measuring && !shaped {
        true => refuse_noqueue(device),
        false => Ok(()),
    }
}

/// Fails if the device never queues packets.
pub(crate) fn refuse_noqueue(device: &Device) -> Result<()> {
    let root = rtnl::root_qdisc(device.index);
    if root.is_some_and(|root| root.kind == "noqueue") {
        return Err(Error::new(
            &device.name,
            "never queues packets (noqueue), so its capacity cannot be measured",
            "set the capacity: --capacity 10mbit",
        ));
    }
    Ok(())
}

/// Changes the options of a router. If the router starts or stops using the queue discipline
/// `xcp`, its program is replaced, because it uses the map of queue records.
fn change(device: &Device, options: Options, dir: &Path) -> Result<Change> {
    let map = object::pinned_map(&dir.join("config"))?;
    let present: xcp_router_config = object::read_record(&map, 0)?;
    let mut config = options.config(device);
    config.edge = present.edge;
    config.edge_address = present.edge_address;
    config.hint_Bps = present.hint_Bps;
    config.hint_until_ns = present.hint_until_ns;
    let mut queue_changed = false;
    match (options.qdisc(), present.queue) {
        (None, 0) => {}
        (Some(queue), 1..) => {
            let installed = qdisc::install(&device.name, queue)?;
            config.queue = installed.index + 1;
            queue_changed = installed.changed;
        }
        _ => return replace_programs(device, options, dir).map(|()| Change::Changed),
    }
    queue_changed |= match options.shape() {
        Some(shape) => shape::install(device, shape, dir)?,
        None => shape::remove(device, dir)?,
    };
    if config.bytes() != present.bytes() {
        object::write_record(&map, &config)?;
    } else if !queue_changed {
        return Ok(Change::Unchanged);
    }
    Ok(Change::Changed)
}

/// Loads the router's program; also returns whether it uses the queue discipline `xcp`.
fn prepare(device: &Device, options: Options) -> Result<(Object, bool)> {
    let mut config = options.config(device);
    let mut queues = None;
    if let Some(queue) = options.qdisc() {
        config.queue = qdisc::prepare(&device.name, queue)?.index + 1;
        queues = Some(qdisc::folder());
    }
    let loaded = load_over(object::cpus()?, device.l2_len, config, queues.as_deref())?;
    Ok((loaded, config.queue != 0))
}

fn install(device: &Device, options: Options, dir: &Path) -> Result<()> {
    let (mut loaded, queue) = prepare(device, options)?;
    let program = pin_all(&mut loaded, dir)?;
    // after the host's program, which inserts headers
    let host = device::egress(device);
    let place = host
        .as_ref()
        .map_or(Place::First, |link| Place::Behind(link.as_fd()));
    let attached = bpf_link::attach_tcx(program.as_fd(), device, Direction::Egress, place)?;
    bpf_link::pin(attached.as_fd(), &dir.join("link"))?;
    // the queue discipline is added last and removed first: it must not queue packets that
    // no router has classified, or a flow would change queues
    if queue {
        qdisc::place(&device.name)?;
    }
    if let Some(shape) = options.shape() {
        shape::install(device, shape, dir)?;
    }
    layout::mark(dir, &object::ROUTER, &RECORDS)?;
    bpffs::mark(&dir.join(COMPLETE).join(object::ROUTER.build()))
}

/// Pins the router's maps and program in a folder.
fn pin_all<'a>(loaded: &'a mut Object, dir: &Path) -> Result<ProgramMut<'a>> {
    for (map, pin) in MAPS {
        object::pin_map(loaded, map, &dir.join(pin))?;
    }
    let program = object::program(loaded, "xcp_router")?;
    bpf_link::pin(program.as_fd(), &dir.join(PROGRAM))?;
    Ok(program)
}

/// Replaces the program by this build's, for example when it is of another build or uses
/// other maps. This works while traffic flows: no packet passes without a program, and flows
/// keep their rates. The old state and counters are lost, because the records may differ.
fn replace_programs(device: &Device, options: Options, dir: &Path) -> Result<()> {
    let (mut loaded, queue) = prepare(device, options)?;
    // no build is marked until everything is in place, so after a failure `add` repeats this
    let complete = dir.join(COMPLETE);
    let builds = fs::read_dir(&complete).into_iter().flatten().flatten();
    for build in builds.map(|entry| entry.path()).collect::<Vec<_>>() {
        let _ = fs::remove_dir(build);
    }
    let next = dir.join(NEXT);
    let _ = fs::remove_dir_all(&next);
    bpffs::mark(&next)?;
    let program = pin_all(&mut loaded, &next)?;
    bpf_link::replace(bpf_link::open(&dir.join("link"))?.as_fd(), program.as_fd())?;
    for pin in MAPS.map(|(_, pin)| pin).into_iter().chain([PROGRAM]) {
        let (from, to) = (next.join(pin), dir.join(pin));
        fs::rename(&from, &to).map_err(|e| Error::io(to.display().to_string(), &e))?;
    }
    let _ = fs::remove_dir_all(&next);
    match queue {
        true => qdisc::place(&device.name).map(drop)?,
        false => qdisc::remove(&device.name)?,
    }
    match options.shape() {
        Some(shape) => shape::install(device, shape, dir)?,
        None => shape::remove(device, dir)?,
    };
    layout::mark(dir, &object::ROUTER, &RECORDS)?;
    bpffs::mark(&complete.join(object::ROUTER.build()))
}

/// Deletes the router of a device.
pub fn del(dev: &str) -> Result<()> {
    bpffs::require("xcp router del", Access::Change)?;
    let _lock = CommandLock::take()?;
    let device = Device::find(dev)?;
    rename_moved_folder(&device)?;
    if !object::exists(&bpffs::dir(&part(device.index)?)) {
        return Err(no_router(dev));
    }
    remove_all(&device)
}

fn remove_all(device: &Device) -> Result<()> {
    let part = part(device.index)?;
    let dir = bpffs::dir(&part);
    let taken = qdisc::remove(&device.name).and(shape::remove(device, &dir));
    if object::exists(&dir.join("link")) {
        bpf_link::detach(bpf_link::open(&dir.join("link"))?.as_fd());
    }
    bpffs::remove(&part)?;
    taken.map(|_| ())
}

/// Removes pinned objects of devices that no longer exist, and ring buffers of trace readers
/// that were killed.
pub(crate) fn sweep() {
    for dir in folders::folders("router") {
        trace::free_unread(&dir);
    }
    for dir in folders::left("router") {
        let _ = bpffs::remove(&format!("router/{}", folders::name_of(&dir)));
        let _ = qdisc::tidy();
    }
}

/// Makes all routers of this network namespace write an address into last_xcp_router
/// ([`wire::router_id`]), or none. The next XCP router after a cloud uses it. Routers that are
/// added later write none.
///
/// # Errors
/// The records of a router cannot be written.
pub fn set_edge(address: Option<IpAddr>) -> Result<()> {
    let _lock = CommandLock::take()?;
    for (_, dir) in of_here() {
        if !layout::is_ours(&dir, &object::ROUTER, &RECORDS)? {
            continue; // it is of another build
        }
        let map = object::pinned_map(&dir.join("config"))?;
        let config: xcp_router_config = object::read_record(&map, 0)?;
        let told = with_edge(config, address);
        if told.edge_address != config.edge_address {
            object::write_record(&map, &told)?;
        }
    }
    Ok(())
}

/// Starts to read the control intervals of a device's router. A router has at most one
/// reader.
pub fn trace(dev: &str) -> Result<Trace> {
    bpffs::require("xcp router trace", Access::Read)?;
    let _lock = CommandLock::take()?;
    let device = Device::find(dev)?;
    let dir = readable(&device)?;
    Trace::open(&device, dir)
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A host's devices: attaches the programs that insert and remove headers and make room on
//! full ACKs. Detaching them restores the device: its settings are recorded before they are
//! changed, so that the changes of a killed command can be undone, too.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object, OpenObject};
use libbpf_sys::bpf_map_create_opts;

use crate::bpf_link::{self, Direction, Place};
use crate::rtnl::{self, Device};
use crate::{bpffs, netns, object, offload, Error, Result};
use xcp_abi::{xcp_device_key, xcp_device_options, xcp_device_record, Record};

const PART: &str = "host";
const FOLDER: &str = "devices";
const MAP: &str = "device_table";
const INGRESS: &str = "xcp_ingress";
pub(crate) const EGRESS: &str = "xcp_egress";
const DEVICES_MAX: u32 = 1024;
/// The maps that these programs share with the host's other programs.
const SHARED: [&str; 5] = ["sockets", "counters", "peers", "handshake_cache", "config"];

fn dir(key: &xcp_device_key) -> PathBuf {
    bpffs::dir(PART)
        .join(FOLDER)
        .join(format!("{}-{}", key.netns, key.ifindex))
}

/// The key of a device of this network namespace.
fn key_of(device: &Device) -> Result<xcp_device_key> {
    Ok(xcp_device_key {
        netns: netns::cookie()?,
        ifindex: device.index,
        unused: 0,
    })
}

fn table() -> Result<MapHandle> {
    object::pinned_map(&bpffs::dir(PART).join(MAP))
}

/// Creates the table of devices when the host's programs are loaded.
pub fn create_table(host: &Path) -> Result<()> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let mut map = MapHandle::create(
        MapType::Hash,
        Some("xcp_devices"),
        size_of::<xcp_device_key>() as u32,
        size_of::<xcp_device_record>() as u32,
        DEVICES_MAX,
        &options,
    )
    .map_err(|e| object::failure("table of devices", &e))?;
    map.pin(host.join(MAP))
        .map_err(|e| object::failure("table of devices", &e))
}

fn all() -> Result<Vec<(xcp_device_key, xcp_device_record)>> {
    if !object::exists(&bpffs::dir(PART).join(MAP)) {
        return Ok(Vec::new());
    }
    let map = table()?;
    Ok(map
        .keys()
        .filter_map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            Some((
                xcp_device_key::from_bytes(&key)?,
                xcp_device_record::from_bytes(&value)?,
            ))
        })
        .collect())
}

/// The names of the host's devices in this network namespace.
pub fn names() -> Result<Vec<String>> {
    let here = netns::cookie()?;
    let mut names: Vec<String> = all()?
        .iter()
        .filter(|(key, _)| key.netns == here)
        .filter_map(|(key, _)| rtnl::name_of(key.ifindex))
        .collect();
    names.sort();
    Ok(names)
}

/// Fails if a device of this namespace carries headers, which a gateway cannot use.
pub fn refuse_headers(device: &Device) -> Result<()> {
    let wanted = key_of(device)?;
    let carries = |(key, record): &(xcp_device_key, xcp_device_record)| {
        key.bytes() == wanted.bytes() && record.gso_max_segs != 0
    };
    match all()?.iter().any(carries) {
        true => Err(Error::new(
            &device.name,
            "has a wire format with headers, but a gateway splits TCP that follows IP",
            "use the wire format option on this device: xcp host on --wire option",
        )),
        false => Ok(()),
    }
}

/// The IP protocol number of headers on this namespace's devices, if there are any.
pub fn ip_proto() -> Result<Option<u8>> {
    let here = netns::cookie()?;
    let mut all = all()?.into_iter();
    let found = all.find(|(key, _)| key.netns == here);
    Ok(found.map(|(_, record)| record.ip_proto as u8))
}

/// Attaches the programs to exactly these devices of this network namespace. `header` says
/// whether they carry headers. Returns whether this changed anything. If one device fails,
/// the programs are detached from those before it.
pub fn set(wanted: &[Device], header: bool, ip_proto: u8) -> Result<bool> {
    let here = netns::cookie()?;
    let (stay, go): (Vec<_>, Vec<_>) = all()?
        .into_iter()
        .filter(|(key, _)| key.netns == here)
        .partition(|(key, record)| {
            wanted.iter().any(|d| d.index == key.ifindex)
                && record.complete != 0
                && record.ip_proto == u32::from(ip_proto)
                && (record.gso_max_segs != 0) == header
        });
    let is_wanted = |key: &xcp_device_key| wanted.iter().any(|d| d.index == key.ifindex);
    let (changed, unwanted): (Vec<_>, Vec<_>) = go.into_iter().partition(|(key, _)| is_wanted(key));
    for (key, record) in &changed {
        detach(key, record, true)?;
    }
    let mut added: Vec<xcp_device_key> = Vec::new();
    for device in wanted {
        let key = key_of(device)?;
        let is_on = |other: &xcp_device_key| other.ifindex == key.ifindex;
        if stay.iter().any(|(k, _)| is_on(k)) || added.iter().any(is_on) {
            continue;
        }
        added.push(key);
        attach_and_record(&key, device, header, ip_proto).inspect_err(|_| undo(&added))?;
    }
    for (key, record) in &unwanted {
        detach(key, record, true)?;
    }
    Ok(!added.is_empty() || !unwanted.is_empty())
}

/// Detaches the programs from these devices after a failure.
fn undo(added: &[xcp_device_key]) {
    for key in added {
        if let Ok(Some(record)) = recorded(key) {
            let _ = detach(key, &record, true);
        }
    }
}

fn recorded(key: &xcp_device_key) -> Result<Option<xcp_device_record>> {
    let value = table()?
        .lookup(key.bytes(), MapFlags::ANY)
        .map_err(|e| object::failure("table of devices", &e))?;
    Ok(value.and_then(|v| xcp_device_record::from_bytes(&v)))
}

fn write(key: &xcp_device_key, record: &xcp_device_record) -> Result<()> {
    table()?
        .update(key.bytes(), record.bytes(), MapFlags::ANY)
        .map_err(|e| object::failure("table of devices", &e))
}

fn attach_and_record(
    key: &xcp_device_key,
    device: &Device,
    header: bool,
    ip_proto: u8,
) -> Result<()> {
    let mut record = xcp_device_record {
        ip_proto: ip_proto.into(),
        ..Default::default()
    };
    if header {
        (record.gso_max_segs, record.tx_checksums) = offload::of(device)?;
    }
    write(key, &record)?;
    let folder = dir(key);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| Error::io(folder.display().to_string(), &e))?;
    attach(key, device, ip_proto, &folder)?;
    if header {
        offload::stop(device, record.tx_checksums)?;
    }
    record.complete = 1;
    write(key, &record)
}

/// Opens the programs for a device in the network namespace with this cookie.
pub fn open(netns: u64, l2_len: u32, ip_proto: u8) -> Result<OpenObject> {
    let mut open = object::open(&object::DEVICE)?;
    let options = xcp_device_options {
        netns,
        l2_len,
        ip_proto: ip_proto.into(),
    };
    object::set_data(&mut open, ".rodata", &options)?;
    Ok(open)
}

fn attach(key: &xcp_device_key, device: &Device, ip_proto: u8, folder: &Path) -> Result<()> {
    let loaded = load(key, device, ip_proto)?;
    for (name, direction) in [(INGRESS, Direction::Ingress), (EGRESS, Direction::Egress)] {
        let program = object::program(&loaded, name)?;
        let attached = bpf_link::attach_tcx(program.as_fd(), device, direction, Place::First)?;
        bpf_link::pin(attached.as_fd(), &folder.join(name))?;
    }
    Ok(())
}

/// Attaches to a device the program that makes room for feedback on ACKs full of SACK blocks,
/// until the returned link is dropped. None while no programs of a host are loaded.
pub fn make_room(device: &Device) -> Result<Option<OwnedFd>> {
    if !object::exists(&bpffs::dir(PART).join(MAP)) {
        return Ok(None);
    }
    let loaded = load(&key_of(device)?, device, super::IP_PROTO)?;
    let program = object::program(&loaded, EGRESS)?;
    bpf_link::attach_tcx(program.as_fd(), device, Direction::Egress, Place::First).map(Some)
}

/// Replaces the programs on all devices by those of this build. Devices in unreachable network
/// namespaces keep the old ones.
pub fn replace_programs() -> Result<()> {
    let here = netns::cookie()?;
    for (key, record) in all()? {
        let work = || replace(&key, &record);
        match key.netns == here {
            true => work()?,
            false => netns::within(key.netns, work).unwrap_or(Ok(()))?,
        }
    }
    Ok(())
}

fn replace(key: &xcp_device_key, record: &xcp_device_record) -> Result<()> {
    let Some(name) = rtnl::name_of(key.ifindex) else {
        return Ok(());
    };
    let device = Device::find(&name)?;
    let loaded = load(key, &device, record.ip_proto as u8)?;
    for name in [INGRESS, EGRESS] {
        let program = object::program(&loaded, name)?;
        bpf_link::replace(
            bpf_link::open(&dir(key).join(name))?.as_fd(),
            program.as_fd(),
        )?;
    }
    Ok(())
}

fn load(key: &xcp_device_key, device: &Device, ip_proto: u8) -> Result<Object> {
    let mut open = open(key.netns, device.l2_len, ip_proto)?;
    object::reuse(&mut open, &SHARED, &bpffs::dir(PART))?;
    object::load(&object::DEVICE, open)
}

/// The link of the program that inserts headers, if a device of this namespace has one.
pub fn egress(device: &Device) -> Option<OwnedFd> {
    bpf_link::open(&dir(&key_of(device).ok()?).join(EGRESS)).ok()
}

/// Detaches the programs from a device and restores its settings. `here`: the device is in this
/// thread's namespace. Continues after failures, and returns the failure to restore the settings.
fn detach(key: &xcp_device_key, record: &xcp_device_record, here: bool) -> Result<()> {
    let folder = dir(key);
    let device = here.then(|| rtnl::name_of(key.ifindex)).flatten();
    let restored = match &device {
        Some(name) => offload::restore(name, key.ifindex, record),
        None => Ok(()),
    };
    for pin in [INGRESS, EGRESS].map(|name| folder.join(name)) {
        if let Ok(attached) = bpf_link::open(&pin) {
            bpf_link::detach(attached.as_fd());
        }
    }
    let _ = fs::remove_dir_all(&folder);
    let _ = table()?.delete(key.bytes());
    restored
}

/// Removes the entries and pins of devices that no longer exist.
pub fn sweep() {
    for (key, record) in all().unwrap_or_default() {
        let attached = bpf_link::open(&dir(&key).join(INGRESS));
        let info = attached.and_then(|attached| bpf_link::info(attached.as_fd()));
        if info.is_ok_and(|info| bpf_link::device_of(&info) == 0) {
            let _ = detach(&key, &record, false);
        }
    }
}

/// Detaches the programs from all devices, also in other namespaces if these are reachable.
/// Continues after failures, and returns the first one.
pub fn clear() -> Result<()> {
    let here = netns::cookie()?;
    let mut first = Ok(());
    for (key, record) in all()? {
        let done = if key.netns == here {
            detach(&key, &record, true)
        } else {
            netns::within(key.netns, || detach(&key, &record, true))
                // the namespace no longer exists or is unreachable
                .unwrap_or_else(|| detach(&key, &record, false))
        };
        first = first.and(done);
    }
    first
}

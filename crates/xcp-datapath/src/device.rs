// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A host's devices: the programs that put headers in and take them out, and
//! make room on crowded ACKs; and what has to be changed on the device for
//! headers. Everything as before when taken off.
//!
//! The kernel cannot cut a super-packet with an unknown protocol in it, so
//! TCP must make none (`gso_max_segs` 1). And it cannot let hardware compute a
//! checksum behind a header that the hardware does not know, so hardware that
//! looks for TCP by itself must leave it alone (`tx-checksum-ipv4`, `-ipv6`).

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use libbpf_sys::bpf_map_create_opts;

use crate::clsact::{self, Direction, Place};
use crate::ethtool::Features;
use crate::intf::{DeviceKey, DeviceRecord, Record};
use crate::rtnl::{self, Device};
use crate::{bpffs, features, link, netns, object, Error, Result};

const PART: &str = "host";
const FOLDER: &str = "devices";
const MAP: &str = "device_table";
const DEVICES_MAX: u32 = 1024;
/// Of the maps that the host's programs share.
const SHARED: [&str; 4] = ["sockets", "counters", "peers", "heard"];
/// Checksums that hardware computes only where it finds TCP by itself.
const CHECKSUMS: [(&str, u32); 2] = [("tx-checksum-ipv4", 1), ("tx-checksum-ipv6", 2)];

fn dir(key: &DeviceKey) -> PathBuf {
    bpffs::dir(PART)
        .join(FOLDER)
        .join(format!("{}-{}", key.netns, key.ifindex))
}

fn table() -> Result<MapHandle> {
    object::pinned_map(&bpffs::dir(PART).join(MAP))
}

/// Makes the table of devices, when the host's programs are loaded.
pub fn create_table(host: &Path) -> Result<()> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let mut map = MapHandle::create(
        MapType::Hash,
        Some("xcp_devices"),
        size_of::<DeviceKey>() as u32,
        size_of::<DeviceRecord>() as u32,
        DEVICES_MAX,
        &options,
    )
    .map_err(|e| object::failure("table of devices", &e))?;
    map.pin(host.join(MAP))
        .map_err(|e| object::failure("table of devices", &e))
}

fn all() -> Result<Vec<(DeviceKey, DeviceRecord)>> {
    let map = table()?;
    Ok(map
        .keys()
        .filter_map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            Some((
                DeviceKey::from_bytes(&key)?,
                DeviceRecord::from_bytes(&value)?,
            ))
        })
        .collect())
}

/// The names of this namespace's devices.
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

/// Attaches to these devices of this namespace and to no others; `header`
/// says whether they carry headers. Returns whether anything was different.
pub fn set(wanted: &[Device], header: bool, ip_proto: u8) -> Result<bool> {
    let here = netns::cookie()?;
    let mut changed = false;
    for (key, record) in all()? {
        let stays = wanted.iter().any(|d| d.index == key.ifindex)
            && record.ip_proto == u32::from(ip_proto)
            && (record.gso_max_segs != 0) == header;
        if key.netns == here && !stays {
            take_off(&key, &record, true)?;
            changed = true;
        }
    }
    for device in wanted {
        let key = DeviceKey {
            netns: here,
            ifindex: device.index,
            unused: 0,
        };
        if !object::exists(&dir(&key)) {
            put_on(&key, device, header, ip_proto).inspect_err(|_| {
                let _ = fs::remove_dir_all(dir(&key));
            })?;
            changed = true;
        }
    }
    Ok(changed)
}

fn put_on(key: &DeviceKey, device: &Device, header: bool, ip_proto: u8) -> Result<()> {
    let folder = dir(key);
    fs::create_dir_all(&folder).map_err(|e| Error::io(folder.display().to_string(), &e))?;
    let mut record = DeviceRecord {
        ip_proto: ip_proto.into(),
        ..Default::default()
    };
    if header {
        record.gso_max_segs = rtnl::gso_max_segs(device.index)?;
        record.tx_checksums = checksums_to_stop(&device.name)?;
    }
    attach(key, device, ip_proto, &folder, &mut record)?;
    // known before it is changed, so that it can always be changed back
    table()?
        .update(key.bytes(), record.bytes(), MapFlags::ANY)
        .map_err(|e| object::failure("table of devices", &e))?;
    if header {
        rtnl::set_gso_max_segs(device.index, 1)?;
        switch_checksums(&device.name, record.tx_checksums, false)?;
    }
    Ok(())
}

fn attach(
    key: &DeviceKey,
    device: &Device,
    ip_proto: u8,
    folder: &Path,
    record: &mut DeviceRecord,
) -> Result<()> {
    let host = bpffs::dir(PART);
    let mut open = object::open(&object::DEVICE)?;
    for map in SHARED {
        object::open_map(&mut open, map)?
            .reuse_pinned_map(host.join(map))
            .map_err(|e| object::failure(map, &e))?;
    }
    let mut constants = key.netns.to_ne_bytes().to_vec();
    constants.extend(device.l2_len.to_ne_bytes());
    constants.extend(u32::from(ip_proto).to_ne_bytes());
    object::open_map(&mut open, ".rodata")?
        .set_initial_value(&constants)
        .map_err(|e| object::failure("constants", &e))?;
    let loaded = object::load(&object::DEVICE, open)?;
    for (name, direction) in [
        ("xcp_ingress", Direction::Ingress),
        ("xcp_egress", Direction::Egress),
    ] {
        let program = object::program(&loaded, name)?;
        if features::has_tcx() {
            let attached = link::attach_tcx_first(program.as_fd(), device.index, direction)?;
            link::pin(attached.as_fd(), &folder.join(name))?;
        } else if clsact::attach(program.as_fd(), device.index, direction, Place::Host)? {
            record.clsact = 1;
        }
    }
    Ok(())
}

/// The device as it was. `here`: it is in this thread's namespace.
fn take_off(key: &DeviceKey, record: &DeviceRecord, here: bool) -> Result<()> {
    let folder = dir(key);
    if here && record.gso_max_segs != 0 {
        if let Some(name) = rtnl::name_of(key.ifindex) {
            rtnl::set_gso_max_segs(key.ifindex, record.gso_max_segs)?;
            switch_checksums(&name, record.tx_checksums, true)?;
        }
    }
    for pin in ["xcp_ingress", "xcp_egress"].map(|name| folder.join(name)) {
        if object::exists(&pin) {
            link::detach(link::open(&pin)?.as_fd());
        } else if here {
            for direction in [Direction::Ingress, Direction::Egress] {
                clsact::detach(key.ifindex, direction, Place::Host);
            }
        }
    }
    if here && record.clsact != 0 {
        clsact::remove(key.ifindex);
    }
    let _ = fs::remove_dir_all(&folder);
    let _ = table()?.delete(key.bytes());
    Ok(())
}

/// Takes all devices off, those of other namespaces too where they are found.
pub fn clear() -> Result<()> {
    let here = netns::cookie()?;
    let (ours, others): (Vec<_>, Vec<_>) = all()?.into_iter().partition(|(k, _)| k.netns == here);
    for (key, record) in &ours {
        take_off(key, record, true)?;
    }
    for (key, record) in &others {
        let done = netns::within(key.netns, || take_off(key, record, true));
        match done {
            Some(result) => result?,
            // its namespace is gone, or nothing names it
            None => take_off(key, record, false)?,
        }
    }
    Ok(())
}

fn checksums_to_stop(device: &str) -> Result<u32> {
    let features = Features::of(device)?;
    let mut found = 0;
    for (name, bit) in CHECKSUMS {
        if features.is_on(name)? {
            found |= bit;
        }
    }
    Ok(found)
}

fn switch_checksums(device: &str, which: u32, on: bool) -> Result<()> {
    if which == 0 {
        return Ok(());
    }
    let features = Features::of(device)?;
    for (name, bit) in CHECKSUMS {
        if which & bit != 0 {
            features.set(name, on)?;
        }
    }
    Ok(())
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The folder in which a router is pinned, `router/NETNS-IFINDEX`. A device that moves to
//! another network namespace keeps its router; the next command that changes the router
//! renames the folder.

use std::path::{Path, PathBuf};

use crate::bpf_link::Direction;
use crate::rtnl::Device;
use crate::{bpffs, folders, layout, netns, object, trace, Error, Result};

/// A folder that marks a router as completely installed. A folder in it names the build of
/// the program.
pub const COMPLETE: &str = "complete";

/// The folder of the new program and maps, until they replace the present ones.
pub(super) const NEXT: &str = "next";

pub const PROGRAM: &str = "program";

/// The maps, and the names of their pins.
pub const MAPS: [(&str, &str); 4] = [
    ("cpus", "cpus"),
    (".data.config", "config"),
    (".data.link", "state"),
    ("trace", trace::PIN),
];

/// The maps and records whose layout commands must know.
pub(super) const RECORDS: [&str; 4] = ["cpus", "config", "link", "xcp_router_record"];

pub(crate) fn part(ifindex: u32) -> Result<String> {
    Ok(format!("router/{}-{ifindex}", netns::inode()?))
}

/// The folder of a device's router. If the device has moved, its name is still the old one.
pub(super) fn find(device: &Device) -> Result<Option<PathBuf>> {
    let named = bpffs::dir(&part(device.index)?);
    let is_on = |dir: &PathBuf| folders::is_on(dir, device.index, Direction::Egress);
    if is_on(&named) {
        return Ok(Some(named));
    }
    Ok(folders::folders("router").find(is_on))
}

/// The routers of this network namespace: their device indexes and folders.
pub(super) fn of_here() -> impl Iterator<Item = (u32, PathBuf)> {
    folders::folders("router")
        .filter_map(|dir| Some((folders::here(&dir, Direction::Egress)?, dir)))
}

/// The folder of a device's router. Fails if its records have another layout than in this
/// build.
pub fn readable(device: &Device) -> Result<PathBuf> {
    let dir = find(device)?.ok_or_else(|| no_router(&device.name))?;
    ours(&dir, &device.name)?;
    Ok(dir)
}

/// Fails if a folder's records have another layout than in this build.
pub(super) fn ours(dir: &Path, dev: &str) -> Result<()> {
    match layout::is_ours(dir, &object::ROUTER, &RECORDS)? {
        true => Ok(()),
        false => Err(object::other_version(dev)),
    }
}

pub(super) fn no_router(dev: &str) -> Error {
    Error::new(
        dev,
        "no XCP router on this device",
        format!("add one: xcp router add {dev} --capacity 10mbit"),
    )
}

/// Whether a folder has a complete router, with records laid out as in this build.
pub(crate) fn is_readable(dir: &Path) -> Result<bool> {
    Ok(object::exists(&dir.join(COMPLETE)) && layout::is_ours(dir, &object::ROUTER, &RECORDS)?)
}

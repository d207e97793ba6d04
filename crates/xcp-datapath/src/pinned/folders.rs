// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The folders of routers and virtual routers. In each, a device's program is pinned with its
//! link and maps.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::bpf_link::Direction;
use crate::{bpf_link, bpffs};

/// The folders of one part, for all network namespaces of the system.
pub fn folders(part: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(bpffs::dir(part));
    entries.into_iter().flatten().flatten().map(|e| e.path())
}

/// The last component of a folder's path.
pub fn name_of(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn link_of(dir: &Path) -> Option<libbpf_sys::bpf_link_info> {
    bpf_link::info(bpf_link::open(&dir.join("link")).ok()?.as_fd()).ok()
}

/// The index of the device of a folder's program, in the device's network namespace; 0 if the
/// device no longer exists.
pub fn device_of(dir: &Path) -> Option<u32> {
    Some(bpf_link::device_of(&link_of(dir)?))
}

/// Whether a folder's program is on the device with this index in this network namespace.
/// Devices in other namespaces may have the same index.
pub fn is_on(dir: &Path, ifindex: u32, direction: Direction) -> bool {
    let on_device = |id| {
        bpf_link::tcx_programs(ifindex, direction)
            .is_ok_and(|all| all.iter().any(|attached| attached.link == id))
    };
    link_of(dir).is_some_and(|info| bpf_link::device_of(&info) == ifindex && on_device(info.id))
}

/// The device index of a folder's program, if the device is in this network namespace.
pub fn here(dir: &Path, direction: Direction) -> Option<u32> {
    let index = device_of(dir)?;
    is_on(dir, index, direction).then_some(index)
}

/// The folders of one part whose devices no longer exist.
pub fn left(part: &str) -> impl Iterator<Item = PathBuf> {
    folders(part).filter(|dir| device_of(dir) == Some(0))
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Reads the kernel state of a device's router.

use std::os::fd::AsRawFd;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags};
use xcp_abi::xcp_router_link;
use xcp_datapath::internal::{bpf_link, object, router, Device};
use xcp_datapath::{Error, Result};

/// Returns the link state of a device's router.
pub fn router_link(dev: &str) -> Result<xcp_router_link> {
    let state = router::readable(&Device::find(dev)?)?.join("state");
    object::read_record(&object::pinned_map(&state)?, 0)
}

/// Returns whether a device's router has a ring buffer for its trace, and the kernel memory
/// of each of its maps and its program, by name, in bytes.
pub fn router_memory(dev: &str) -> Result<(bool, Vec<(String, u64)>)> {
    let dir = router::readable(&Device::find(dev)?)?;
    let pins = router::MAPS.iter().map(|(_, pin)| *pin);
    let bytes: Result<Vec<_>> = pins
        .chain([router::PROGRAM])
        .map(|name| Ok((name.to_owned(), memory(&dir.join(name))?)))
        .collect();
    Ok((has_ring(&dir)?, bytes?))
}

fn memory(pin: &Path) -> Result<u64> {
    let fd = bpf_link::open(pin)?;
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, &e))?;
    let line = text.lines().find_map(|l| l.strip_prefix("memlock:"));
    let bytes = line.and_then(|value| value.trim().parse().ok());
    Ok(bytes.unwrap_or(0))
}

fn has_ring(dir: &Path) -> Result<bool> {
    let holder = object::pinned_map(&dir.join("trace"))?;
    let found = holder.lookup(&[0; 4], MapFlags::ANY);
    Ok(found.map_err(|e| object::failure("trace", &e))?.is_some())
}

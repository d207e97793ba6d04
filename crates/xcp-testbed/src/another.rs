// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What is pinned, made to look like another build's.

use std::fs;

use xcp_datapath::internal::{bpffs, host, layout, object, router, Device};
use xcp_datapath::Result;

/// The name of no build.
const ANOTHER: &str = "another";

/// Has the router of a device say that it is of another build.
pub fn call_another_version(dev: &str) -> Result<()> {
    let complete = router::readable(&Device::find(dev)?)?.join(router::COMPLETE);
    let _ = fs::remove_dir(complete.join(object::ROUTER.build()));
    bpffs::mark(&complete.join(ANOTHER))
}

/// The same, and that its records have another layout.
pub fn call_another_layout(dev: &str) -> Result<()> {
    let dir = router::readable(&Device::find(dev)?)?;
    call_another_version(dev)?;
    layout::mark(&dir, &object::ROUTER, &["config"])
}

/// Has the host say that its programs are of another build.
pub fn call_host_another_version() -> Result<()> {
    let build = bpffs::dir(host::PART).join(host::BUILD);
    let _ = fs::remove_dir_all(&build);
    bpffs::mark(&build.join(ANOTHER))
}

/// The same, and that its maps hold records of another layout.
pub fn call_host_another_layout() -> Result<()> {
    call_host_another_version()?;
    layout::mark(&bpffs::dir(host::PART), &object::OPTION, &["config"])
}

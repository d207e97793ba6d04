// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Makes pinned objects look as if another build had created them.

use std::fs;

use xcp_datapath::internal::{bpffs, host, layout, object, router, Device};
use xcp_datapath::Result;

/// A build name that no build has.
const ANOTHER: &str = "another";

/// Marks a device's router as created by another build.
pub fn call_another_version(dev: &str) -> Result<()> {
    let complete = router::readable(&Device::find(dev)?)?.join(router::COMPLETE);
    let _ = fs::remove_dir(complete.join(object::ROUTER.build()));
    bpffs::mark(&complete.join(ANOTHER))
}

/// Marks a device's router as created by another build, and its records as having another
/// layout.
pub fn call_another_layout(dev: &str) -> Result<()> {
    let dir = router::readable(&Device::find(dev)?)?;
    call_another_version(dev)?;
    layout::mark(&dir, &object::ROUTER, &["config"])
}

/// Marks the host programs as created by another build.
pub fn call_host_another_version() -> Result<()> {
    let build = bpffs::dir(host::PART).join(host::BUILD);
    let _ = fs::remove_dir_all(&build);
    bpffs::mark(&build.join(ANOTHER))
}

/// Marks the host programs as created by another build, and the records in their maps as
/// having another layout.
pub fn call_host_another_layout() -> Result<()> {
    call_host_another_version()?;
    layout::mark(&bpffs::dir(host::PART), &object::OPTION, &["config"])
}

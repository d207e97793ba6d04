// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Makes pinned objects look as if another build had created them.

use std::fs;

use xcp_datapath::internal::{bpffs, host, layout, object, router, Device};
use xcp_datapath::Result;

/// A build name that no build has.
const ANOTHER: &str = "another";

/// Marks a device's router as created by another build.
pub fn mark_as_other_build(dev: &str) -> Result<()> {
    let complete = router::readable(&Device::find(dev)?)?.join(router::COMPLETE);
    let _ = fs::remove_dir(complete.join(object::ROUTER.build()));
    bpffs::mark(&complete.join(ANOTHER))
}

/// Marks a device's router as created by another build, and its records as having another
/// layout.
pub fn mark_as_other_layout(dev: &str) -> Result<()> {
    let dir = router::readable(&Device::find(dev)?)?;
    mark_as_other_build(dev)?;
    layout::mark(&dir, &object::ROUTER, &["config"])
}

/// Marks the host programs as created by another build.
pub fn mark_host_as_other_build() -> Result<()> {
    let build = bpffs::dir(host::PART).join(host::BUILD);
    let _ = fs::remove_dir_all(&build);
    bpffs::mark(&build.join(ANOTHER))
}

/// Marks the host programs as created by another build, and the records in their maps as
/// having another layout.
pub fn mark_host_as_other_layout() -> Result<()> {
    mark_host_as_other_build()?;
    layout::mark(&bpffs::dir(host::PART), &object::OPTION, &["config"])
}

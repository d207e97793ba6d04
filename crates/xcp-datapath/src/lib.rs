// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The data path in the kernel: loads, attaches and pins BPF programs, reads and writes
//! their maps. Only this crate depends on kernel features; only this crate and
//! xcp-testbed use libbpf.

// the print macros panic when writing fails
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![allow(non_snake_case)] // units in field names: B and Bps are bytes, b bits

pub mod cloud;
pub mod features;
pub mod gateway;
pub mod host;
#[doc(hidden)]
pub mod internal;
mod kernel;
mod named_bits;
mod pinned;
pub mod router;
mod sweep;
pub mod wire;

pub use host::fallback::{Fallback, Fallbacks};
pub use host::peers::{PeerPolicy, Prefix};
pub use host::{connections, socket};
pub use kernel::cgroup::{mount_point as cgroup_mount_point, Cgroup};
pub use kernel::clock::monotonic_ns;
pub use kernel::error::{Error, Result};
pub use kernel::netns::inode as netns_inode;
pub use kernel::object::set_verbose;
pub use kernel::rtnl::{links, route_to, DeviceInfo, Route};
pub use kernel::{interrupt, netem};
pub use named_bits::{LawTerm, SenderFeature};
pub use pinned::command_lock::CommandLock;
pub use router::warning::Warning;
pub use router::{capacity_hint, meter, qdisc, shape, trace};
pub use sweep::sweep_if_free;
pub use wire::Wire;

use host::device;
use kernel::{
    bpf_link, cgroup, clock, error, ethtool, load_error, mounts, netns, object, offload,
    policy_routing, probes, rtnl, sock_diag,
};
use pinned::{bpffs, command_lock, folders, layout};
use router::warning;

/// Waits until no other command holds the lock, then holds it as long as the returned value
/// lives. For commands that change several things.
///
/// # Errors
/// This process lacks the permission. `what` names the command in the error.
pub fn lock_commands(what: &str) -> Result<CommandLock> {
    bpffs::require(what, bpffs::Access::Change)?;
    CommandLock::take()
}

/// Like [`lock_commands`] for a command that only reads; None if another command holds the
/// lock.
pub fn lock_commands_if_free() -> Option<CommandLock> {
    CommandLock::try_take().ok().flatten()
}

/// Fails unless this process is root and sees XCP's pinned objects.
///
/// # Errors
/// This process lacks the permission. `what` names the command in the error.
pub fn require_access(what: &str) -> Result<()> {
    bpffs::require(what, bpffs::Access::Read)
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The data path in the kernel: load, attach, pin, read and write maps. The
//! only crate that knows what kernels can do, and with xcp-testbed that knows libbpf.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails
#![allow(non_snake_case)] // units in field names: B and Bps are bytes, b bits

pub mod cloud;
pub mod features;
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
pub use kernel::object::set_verbose;
pub use kernel::rtnl::{links, route_to, Link, Route};
pub use kernel::{interrupt, netem};
pub use named_bits::{LawTerm, SenderFeature};
pub use pinned::command_lock::CommandLock;
pub use router::warning::Warning;
pub use router::{capacity_hint, meter, qdisc, shape, trace};
pub use sweep::sweep_if_free;
pub use wire::Wire;

use host::device;
use kernel::{
    cgroup, clock, error, ethtool, link, load_error, mounts, netns, object, offload, probes, rtnl,
    sock_diag,
};
use pinned::{bpffs, command_lock, folders, layout};
use router::warning;

/// Waits until no other command changes anything: for a command that changes several
/// things, as long as what is returned lives.
///
/// # Errors
/// This process may not change anything; `what` names the command.
pub fn lock_commands(what: &str) -> Result<CommandLock> {
    bpffs::require(what, bpffs::Access::Change)?;
    CommandLock::take()
}

/// The same for one that only reads, unless another command changes something now.
pub fn lock_commands_if_free() -> Option<CommandLock> {
    CommandLock::at_once().ok().flatten()
}

/// Fails unless this process is root and sees what XCP has pinned.
///
/// # Errors
/// `what` names the command that needs it.
pub fn require_access(what: &str) -> Result<()> {
    bpffs::require(what, bpffs::Access::Read)
}

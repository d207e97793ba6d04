// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The data path in the kernel: load, attach, pin, read and write maps. The
//! only crate that knows libbpf, and that knows what kernels can do.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails
#![allow(non_snake_case)] // units in field names: B and Bps are bytes, b bits

mod bpffs;
pub mod capacity_hint;
mod cgroup;
mod clock;
pub mod cloud;
pub mod connections;
mod device;
mod error;
mod ethtool;
mod fallback;
pub mod features;
pub mod host;
pub mod interrupt;
mod layout;
mod link;
pub mod medium;
pub mod meter;
mod mounts;
mod named_bits;
pub mod netem;
mod netns;
mod object;
mod offload;
mod peers;
mod pinned;
pub mod qdisc;
mod refusal;
pub mod router;
mod rtnl;
pub mod shape;
mod sock_diag;
pub mod socket;
pub mod testing;
pub mod trace;
mod turn;
mod warning;
pub mod wire;

pub use cgroup::{mount_point as cgroup_mount_point, Cgroup};
pub use clock::monotonic_ns;
pub use error::{Error, Result};
pub use fallback::{Fallback, Fallbacks};
pub use named_bits::{Cure, Term};
pub use object::set_verbose;
pub use peers::{Prefix, Spoken};
pub use rtnl::{links, route_to, Link, Route};
pub use turn::Turn;
pub use warning::Warning;
pub use wire::Wire;

/// Waits until no other command changes anything: for a command that changes several
/// things, as long as what is returned lives.
///
/// # Errors
/// This process may not change anything; `what` names the command.
pub fn turn(what: &str) -> Result<Turn> {
    bpffs::require(what, bpffs::Access::Change)?;
    Turn::take()
}

/// The same for one that only reads, unless another command changes something now.
pub fn turn_if_free() -> Option<Turn> {
    Turn::at_once().ok().flatten()
}

/// Fails unless this process is root and sees what XCP has pinned.
///
/// # Errors
/// `what` names the command that needs it.
pub fn require_access(what: &str) -> Result<()> {
    bpffs::require(what, bpffs::Access::Read)
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Removes pinned objects of devices that no longer exist. The kernel removes no pins:
//! when a network namespace is deleted, the next `xcp` command removes the pins of its
//! devices.

use crate::command_lock::CommandLock;
use crate::error::is_root;
use crate::{cloud, device, mounts, router};

/// Removes stale pins, unless another command holds the lock or this process lacks the
/// permission.
pub fn sweep_if_free() {
    if !is_root() || mounts::require_bpffs("").is_err() {
        return;
    }
    if let Ok(Some(_lock)) = CommandLock::try_take() {
        router::sweep();
        device::sweep();
        cloud::sweep();
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Removes what devices that are gone have left pinned. The kernel removes no pins:
//! a network namespace that is deleted leaves those of its devices to the next
//! command, whatever it is.

use crate::command_lock::CommandLock;
use crate::error::is_root;
use crate::{cloud, device, mounts, router};

/// Sweeps, unless another command changes something now, or this process may not.
pub fn sweep_if_free() {
    if !is_root() || mounts::require_bpffs("").is_err() {
        return;
    }
    if let Ok(Some(_turn)) = CommandLock::at_once() {
        router::sweep();
        device::sweep();
        cloud::sweep();
    }
}

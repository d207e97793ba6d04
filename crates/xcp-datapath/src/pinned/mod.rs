// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What stays in /sys/fs/bpf/xcp when a command has ended, and the lock of commands
//! that change it.

pub mod bpffs;
pub mod change;
pub mod command_lock;
pub mod folders;
pub mod layout;

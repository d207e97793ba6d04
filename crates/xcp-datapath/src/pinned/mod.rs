// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The objects in /sys/fs/bpf/xcp, which outlive a command, and the lock of commands that
//! change them.

pub mod bpffs;
pub mod change;
pub mod command_lock;
pub mod folders;
pub mod layout;

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The init process of the virtual machine in which the lab plays experiments.
//! Its binary is part of the cache key of every result.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

fn main() {
    xcp_player::guest::main(xcp_player::guest::play)
}

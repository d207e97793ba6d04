// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The first process of the lab's machine that plays experiments. Its bytes are
//! in the key of every kept result.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

fn main() {
    xcp_player::guest::main(xcp_player::guest::play)
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The init process of a machine that runs a task other than an experiment.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

fn main() {
    xcp_player::guest::main(xcp_checks::run)
}

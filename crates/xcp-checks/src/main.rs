// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The first process of a machine that does a task other than an experiment.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

fn main() {
    xcp_player::guest::main(xcp_checks::run)
}

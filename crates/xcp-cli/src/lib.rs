// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Code shared by the commands `xcp` and `xcp-lab`: the definition of the command
//! line, values and units, output, failures and exit statuses.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails

pub mod capacity;
pub mod cli;
pub mod failure;
pub mod findings;
pub mod manual;
pub mod out;
pub mod path;
pub mod programs;
pub mod table;
pub mod terminal;
pub mod units;
pub mod value;

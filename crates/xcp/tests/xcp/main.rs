// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The command, as users run it. `native::` are the tests that change this
//! host's network and kernel, `lab::` those that boot virtual machines.
//!
//! All run side by side, in one process. A test that loads a program into this
//! host's kernel has a turn (`xcp_testbed`), and nobody changes what
//! all threads share, such as the control group.

mod cli;
mod command;
mod common;
mod guest;
mod lab;
mod native;
mod place;

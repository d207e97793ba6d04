// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of the `xcp` command as users run it. Tests in `native::` change this
//! host's network and kernel; tests in `lab::` boot virtual machines.
//!
//! All tests run in parallel in one process. A test that loads a program into
//! this host's kernel takes the test lock (`xcp_testbed`), and no test changes
//! what all threads share, such as the control group.

mod cli;
mod command;
mod common;
mod guest;
mod lab;
mod native;
mod place;

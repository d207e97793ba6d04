// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tools for tests, benches and the lab: programs on single packets without a device,
//! fault injection and foreign programs on real devices, the lock for tests, and the
//! lab's half-duplex medium.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))] // they panic when writing fails
#![allow(non_snake_case)] // units in field names: B and Bps are bytes, b bits

mod another;
mod bench;
mod entries;
mod fault_injector;
mod foreign_program;
mod generated;
mod image;
mod ingress;
mod interval;
mod loaded;
mod medium;
mod router;
mod skip;
mod taken;
mod test_lock;
mod verifier_report;
mod wait;

pub use another::{
    mark_as_other_build, mark_as_other_layout, mark_host_as_other_build, mark_host_as_other_layout,
};
pub use bench::Bench;
pub use entries::delete_entries;
pub use fault_injector::{FaultCounters, FaultInjector, FaultPlan};
pub use foreign_program::ForeignProgram;
pub use generated::assert_current;
pub use ingress::Ingress;
pub use interval::interval;
pub use loaded::{loaded, loaded_ids, Loaded};
pub use medium::Medium;
pub use router::{router_link, router_memory};
pub use skip::{can_run, skipped};
pub use taken::{Exclusive, NameTaken};
pub use test_lock::{shared_test_lock, test_lock, TestLock};
pub use verifier_report::{load_all, load_refused, Verified};
pub use wait::{eventually, PATIENCE};

use xcp_datapath::Error;

/// The last operating system error of this thread.
fn last_os(thing: impl Into<String>) -> Error {
    Error::io(thing, &std::io::Error::last_os_error())
}

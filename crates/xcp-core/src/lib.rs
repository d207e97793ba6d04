// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The safe Rust view of core/, and the f64 model that it must follow.
//!
//! core/ is the protocol in freestanding C11; the kernel data path runs it as
//! BPF. Here the same source is compiled natively, so that tests, benches and
//! simulators use it, and nothing of it is written twice. [`model`] is the
//! exception: the router's control laws a second time, in floating point, as
//! the reference.
//!
//! Time is an argument everywhere: nothing here has a clock. Times on the wire
//! are in ticks of 2^-28 s, clocks in ns, rates in bytes per second.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, b would be bits
#![deny(missing_docs)]

mod cloud;
pub mod cubic;
mod ffi;
mod loss;
pub mod model;
mod receiver;
mod router;
mod sampler;
mod sender;
mod service;
mod shaper;
pub mod wire;

pub use cloud::{Cloud, Crowd};
pub use loss::Loss;
pub use receiver::{total_change, Receiver};
pub use router::{split, Other, Packet, Params, Pool, Router, Seen};
pub use sampler::Sampler;
pub use sender::Sender;
pub use service::{Queue, Service};
pub use shaper::{time_ns, Shaper};

/// Ticks in a second; a tick is the unit of times on the wire.
pub const TICKS_PER_SEC: u64 = 1 << 28;

/// Nanoseconds to ticks, rounded down, at most 64 s.
#[must_use]
pub fn ns_to_ticks(ns: u64) -> u64 {
    // SAFETY: takes and returns integers.
    unsafe { ffi::xcp_core_ns_to_ticks(ns) }
}

/// Ticks to nanoseconds, rounded down, at most 64 s.
#[must_use]
pub fn ticks_to_ns(ticks: u64) -> u64 {
    // SAFETY: takes and returns integers.
    unsafe { ffi::xcp_core_ticks_to_ns(ticks) }
}

/// The number of bits of `v`: floor(log2(v)) + 1, and 0 for 0.
#[must_use]
pub fn bits(v: u64) -> u32 {
    // SAFETY: takes and returns integers.
    unsafe { ffi::xcp_core_bits(v) }
}

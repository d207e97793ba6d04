// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/ compiled natively, and the f64 model that it must follow.
//!
//! core/ is the protocol in freestanding C11; the kernel data path runs it as
//! BPF. This crate lets tests and benches call the same source: records are those of
//! `xcp_abi`, functions those of core/, both under their C names. [`model`] implements
//! the router's control laws a second time, in floating point, as the reference.
//!
//! Time is always an argument: nothing here reads a clock. Times on the wire
//! are in ticks of 2^-28 s, clocks in ns, rates in bytes per second.

#![allow(non_snake_case)] // units in names: B and Bps are bytes, b would be bits

#[rustfmt::skip]
mod functions;
pub mod model;
mod router;
mod sender;
pub mod wire;

pub use functions::*;
pub use router::{pool_Bps, Router, PUBLISHED};
pub use sender::new_sender;
pub use xcp_abi::*;

/// Ticks in a second; a tick is the unit of times on the wire.
pub const TICKS_PER_SEC: u64 = XCP_TICKS_PER_SEC as u64;

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The XCP router of an output link.

pub mod capacity_hint;
pub(crate) mod counters;
pub(crate) mod folder;
mod framing;
pub(crate) mod lifecycle;
pub mod meter;
mod options;
pub mod qdisc;
pub mod shape;
pub(crate) mod status;
pub mod trace;
pub(crate) mod warning;

pub use crate::pinned::change::Change;
pub(crate) use counters::sum_counters;
pub use counters::Counters;
pub use framing::{Cells, Framing, Limits};
pub use lifecycle::{add, del, devices, normalized_options, options, set_edge, trace};
pub(crate) use lifecycle::{configure, constants, load, sweep};
pub(crate) use options::TICKS_PER_SEC;
pub use options::{
    with_edge, LawTerms, Options, Queueing, CAPACITY_RANGE_BPS, MAX_RTT_RANGE, OVERHEAD_RANGE_B,
};
pub use status::{list, show, Sharing, Status};

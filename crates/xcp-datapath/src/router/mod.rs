// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The XCP router on an output link.

pub mod capacity_hint;
mod counters;
mod folder;
mod framing;
mod lifecycle;
pub mod meter;
mod options;
pub mod qdisc;
pub mod shape;
mod status;
pub mod trace;
pub(crate) mod warning;

pub use crate::pinned::change::Change;
pub(crate) use counters::sum_counters;
pub use counters::Counters;
pub(crate) use folder::{link, pins};
pub use framing::{Cells, Framing, Limits};
pub use lifecycle::{add, del, devices, options, set_edge, settled, trace};
pub(crate) use lifecycle::{
    call_another_build, call_another_layout, configure, constants, load, load_for, sweep,
};
pub(crate) use options::TICKS_PER_SEC;
pub use options::{
    with_edge, Options, Queueing, Terms, CAPACITY_RANGE_BPS, MAX_RTT_RANGE, OVERHEAD_RANGE_B,
};
pub use status::{list, show, Sharing, Status};

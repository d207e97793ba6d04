// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of core/ through its Rust bindings, one module per subject.

mod capacity;
mod closed_loop;
mod clouds;
mod conformance;
mod cubic;
mod flows;
mod forged;
mod formats;
mod golden;
mod headers;
mod level;
mod loss;
mod properties;
mod queues;
mod vectors;
mod worked;

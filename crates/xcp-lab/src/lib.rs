// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The laboratory: topologies, traffic, sampling, the virtual-time machine
//! and reports.

pub mod result;

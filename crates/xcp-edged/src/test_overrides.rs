// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What experiments change in the daemon.

/// What experiments change: nothing by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestOverrides {
    /// What estimates are made wrong by, at most, as a part of them.
    pub error: f64,
    /// Suspended virtual routers lower no delta.
    pub not_held_back: bool,
    /// Trains are as frequent where they lose packets.
    pub frequent_trains: bool,
}

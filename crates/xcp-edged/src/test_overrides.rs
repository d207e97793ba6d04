// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Changes to the daemon for experiments.

/// Changes for experiments: none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestOverrides {
    /// The largest random error that is added to estimates, as a part of the estimate.
    pub error: f64,
    /// Suspended virtual routers do not lower the granted delta.
    pub no_delta_limit: bool,
    /// Trains stay frequent even if they lose packets.
    pub frequent_trains: bool,
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/xcp_sender.h: the window and the delta to request.

use crate::{xcp_sender, xcp_sender_reset, xcp_sender_update};

/// A sender after its start phase, with a window of `packets` packets of `wire_B` bytes
/// (at least 1) each, and an RTT in ticks.
#[must_use]
pub fn new_sender(wire_B: u32, packets: u64, limit_B: u64, rtt: u64) -> xcp_sender {
    let mut s = xcp_sender {
        wire_B: wire_B.max(1),
        limit_B,
        rtt,
        rtt_base: rtt,
        arrived: u32::MAX,
        ..Default::default()
    };
    xcp_sender_reset(&mut s, packets);
    xcp_sender_update(&mut s);
    s
}

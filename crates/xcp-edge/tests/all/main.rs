// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Tests of XCP-i: messages, conversations and estimates.

#![allow(non_snake_case)] // units in names

mod cases;
mod conversations;
mod dissector;
mod edges;
mod estimates;
mod golden;
mod messages;
mod random;
mod simulated;
mod storm;
#[path = "../../../../wireshark/tshark.rs"]
mod tshark;

use xcp_edge::message::Key;

/// The key of the golden packets.
fn key() -> Key {
    Key::new(b"a shared key of the tests").unwrap()
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Golden packets as they leave a cloud behind an upstream XCP router.

use std::net::Ipv4Addr;

use super::edit::{clear_router, write_router};
use crate::wire::cases::{self, Case};
use crate::wire::checksum;
use crate::wire::decode::{segment, Wire};
use crate::wire::frame::TCP;
use crate::wire::header::Raw;

/// The error of the checksums that are wrong on purpose.
const SPOILED: u16 = 0x0bad;

/// Returns all packets whose format has last_xcp_router, with that field set to `router`.
pub fn all(router: u32) -> Vec<(&'static str, Vec<u8>)> {
    let tells = |c: &Case| {
        let has_room = |h: &Raw| h.last_xcp_router.is_some();
        c.expect.is_forward()
            && (c.expect.wire == Some(Wire::Option)
                || c.expect.header.as_ref().is_some_and(has_room))
    };
    let all: Vec<_> = cases::all()
        .iter()
        .filter(|c| tells(c))
        .map(|c| (c.name, of(c, router)))
        .collect();
    assert!(all.len() > 15, "{}", all.len());
    all
}

/// Returns the packet with this name.
pub fn named(name: &str, router: u32) -> Vec<u8> {
    of(&cases::named(name), router)
}

fn of(case: &Case, router: u32) -> Vec<u8> {
    let mut frame = case.bytes();
    if case.expect.header.is_some() {
        match router {
            0 => clear_router(&mut frame, &case.expect),
            bits => write_router(&mut frame, &case.expect, Ipv4Addr::from_bits(bits).into()),
        }
        return frame;
    }
    let option = case.expect.option_offset.expect("an option has an offset");
    frame[option + 18..option + 22].copy_from_slice(&router.to_be_bytes());
    let tcp = case.expect.tcp_offset.expect("an option is in TCP");
    let check = tcp + 16..tcp + 18;
    frame[check.clone()].fill(0);
    let whole = segment(&frame).expect("a TCP segment");
    let mut sum = checksum::of(whole.addresses, TCP, whole.bytes);
    if case.expect.checksum_valid == Some(false) {
        sum = sum.wrapping_sub(SPOILED);
    }
    frame[check].copy_from_slice(&sum.to_be_bytes());
    frame
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a router may do to a frame.

use crate::wire::checksum;
use crate::wire::decode::{decode, segment, Decoded};
use crate::wire::frame::TCP;

/// Fails unless `after` is what a router may make of `before`. Returns the
/// delta that was written, if the frame carries a forward header.
pub fn check(before: &[u8], after: &[u8]) -> Option<i32> {
    let seen = decode(before);
    let Some((expected, delta)) = edited(before, after, &seen) else {
        assert!(before == after, "not ours, but changed: {seen:?}");
        return None;
    };
    assert_eq!(expected, after, "{seen:?}");

    let (old, new) = (segment(before).unwrap(), segment(after).unwrap());
    assert_eq!(
        old.checksum_error(),
        new.checksum_error(),
        "the checksum is as right or wrong as it was: {seen:?}"
    );
    if seen.checksum_valid == Some(true) {
        let mut zeroed = new.bytes.to_vec();
        zeroed[16..18].fill(0);
        let full = checksum::of(new.addresses, TCP, &zeroed);
        let field = u16::from_be_bytes([new.bytes[16], new.bytes[17]]);
        assert_eq!(full % 0xffff, field % 0xffff, "full recomputation");
    }
    Some(delta)
}

/// `before` with one hop more and `after`'s delta and checksum.
fn edited(before: &[u8], after: &[u8], seen: &Decoded) -> Option<(Vec<u8>, i32)> {
    if !seen.is_forward() {
        return None;
    }
    let asked = seen.forward.expect("a forward header has its fields");
    let option = seen.option_offset.expect("and a place");
    let check = seen.tcp_offset.expect("in TCP") + 16;
    let mut expected = before.to_vec();
    expected[option + 4] = before[option + 4] & 0xf0 | (asked.xcp_hops + 1).min(15);
    if asked.other_hops > 0 {
        expected[option + 5] = asked.xcp_ttl - 1;
    }
    for range in [option + 14..option + 18, check..check + 2] {
        expected[range.clone()].copy_from_slice(&after[range]);
    }
    let delta = decode(after).forward.expect("still there").delta_Bps;
    assert!(
        delta <= asked.delta_Bps,
        "granted {delta}, more than the {} asked for",
        asked.delta_Bps
    );
    Some((expected, delta))
}

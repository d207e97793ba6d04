// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a router may do to a frame.

use std::net::IpAddr;

use crate::wire::checksum;
use crate::wire::decode::{decode_as, segment, Decoded, Wire};
use crate::wire::frame::{TCP, XCP};
use xcp_datapath::cloud::id;

/// Who edits.
#[derive(Clone, Copy)]
struct Editor {
    /// Of XCP headers.
    xcp_protocol: u8,
    /// What it writes into last_xcp_router.
    edge: Option<IpAddr>,
    /// It is a virtual router, for a cloud of so many routers.
    cloud: Option<u8>,
}

const ROUTER: Editor = Editor {
    xcp_protocol: XCP,
    edge: None,
    cloud: None,
};

/// Fails unless `after` is what a router may make of `before`. Returns the
/// delta that was written, if the frame carries a forward header.
pub fn check(before: &[u8], after: &[u8]) -> Option<i32> {
    check_of(before, after, ROUTER)
}

/// With another IP protocol number for XCP headers.
pub fn check_as(before: &[u8], after: &[u8], xcp_protocol: u8) -> Option<i32> {
    let editor = Editor {
        xcp_protocol,
        ..ROUTER
    };
    check_of(before, after, editor)
}

/// Of a router at the edge of a cloud.
pub fn check_edge(before: &[u8], after: &[u8], edge: Option<IpAddr>) -> Option<i32> {
    check_of(before, after, Editor { edge, ..ROUTER })
}

/// Of a virtual router.
pub fn check_cloud(before: &[u8], after: &[u8], routers: u8) -> Option<i32> {
    let cloud = Some(routers);
    check_of(before, after, Editor { cloud, ..ROUTER })
}

fn check_of(before: &[u8], after: &[u8], editor: Editor) -> Option<i32> {
    let xcp_protocol = editor.xcp_protocol;
    let seen = decode_as(before, xcp_protocol);
    if !seen.is_forward() {
        assert!(before == after, "not ours, but changed: {seen:?}");
        return None;
    }
    let now = decode_as(after, xcp_protocol);
    assert_eq!(
        expected(before, after, editor, &seen, &now),
        after,
        "{seen:?}: {now:?}"
    );
    if seen.header.is_none() {
        check_checksum(before, after, &seen);
    }
    let asked = seen.forward.expect("a forward header has its fields");
    let granted = now.forward.expect("still there").delta_Bps;
    assert!(
        granted <= asked.delta_Bps,
        "granted {granted}, more than the {} asked for",
        asked.delta_Bps
    );
    Some(granted)
}

/// `before` with all that a router may change, as it is in `after` where the
/// router chooses.
fn expected(before: &[u8], after: &[u8], editor: Editor, seen: &Decoded, now: &Decoded) -> Vec<u8> {
    let mut frame = before.to_vec();
    let mut chosen = |at: usize, length: usize| {
        let range = at..at + length;
        frame[range.clone()].copy_from_slice(&after[range]);
    };
    let asked = seen.forward.expect("a forward header has its fields");
    let ttl_at = match seen.wire.expect("in some format") {
        Wire::Option => {
            let option = option(seen);
            chosen(option + 14, 4);
            chosen(check_field(seen), 2);
            if editor.cloud.is_none() {
                let hops = asked.xcp_hops.expect("in this format") + 1;
                frame[option + 4] = before[option + 4] & 0xf0 | hops.min(15);
            }
            if let Some(edge) = editor.edge {
                frame[option + 18..][..4].copy_from_slice(&id(edge).to_be_bytes());
            }
            option + 5
        }
        Wire::Option2005 => {
            // the return option, RTT and window are the same
            chosen(option(seen) + 2, 2);
            chosen(check_field(seen), 2);
            return frame;
        }
        Wire::Header => {
            chosen(header(seen) + 16, 4);
            header(seen) + 3
        }
        Wire::HeaderV2 | Wire::Header2004 => {
            chosen(header(seen) + 12, 4);
            header(seen) + 3
        }
    };
    assert_eq!(seen.checksum_valid, now.checksum_valid);
    if let Some(edge) = editor.edge.filter(|_| seen.header.is_some()) {
        write_router(&mut frame, seen, edge);
    }
    if let Some(other_hops @ 1..) = asked.other_hops {
        let spoken_for = other_hops.min(editor.cloud.unwrap_or(1).into());
        frame[ttl_at] = asked.xcp_ttl.expect("in this format") - spoken_for as u8;
    }
    frame
}

/// Writes last_xcp_router behind a header, if there is room for it.
pub fn write_router(frame: &mut [u8], seen: &Decoded, router: IpAddr) {
    let length = seen.header.as_ref().map_or(0, |h| h.length);
    let appended = header(seen) + 20;
    let mapped = match router {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    match length {
        24 => frame[appended..][..4].copy_from_slice(&id(router).to_be_bytes()),
        36 => frame[appended..][..16].copy_from_slice(&mapped.octets()),
        _ => {}
    }
}

/// Writes there that no router was passed.
pub fn clear_router(frame: &mut [u8], seen: &Decoded) {
    let length = seen.header.as_ref().map_or(20, |h| h.length);
    frame[header(seen)..][20..length.into()].fill(0);
}

fn option(seen: &Decoded) -> usize {
    seen.option_offset.expect("an option has a place")
}

fn header(seen: &Decoded) -> usize {
    seen.header_offset.expect("a header has a place")
}

fn check_field(seen: &Decoded) -> usize {
    seen.tcp_offset.expect("in TCP") + 16
}

/// TCP's checksum is as right or wrong as it was.
fn check_checksum(before: &[u8], after: &[u8], seen: &Decoded) {
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
}

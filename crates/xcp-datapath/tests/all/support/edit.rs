// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Checks the changes that a router makes to a frame.

use std::net::IpAddr;

use crate::wire::checksum;
use crate::wire::decode::{decode_as, segment, Decoded, Wire};
use crate::wire::frame::{TCP, XCP};
use xcp_datapath::cloud::id;

/// The router that edits a frame.
#[derive(Clone, Copy)]
struct Editor {
    /// The IP protocol number of XCP headers.
    xcp_protocol: u8,
    /// The address that it writes into last_xcp_router.
    edge: Option<IpAddr>,
    /// For a virtual router: the number of routers in its cloud.
    cloud: Option<u8>,
}

const ROUTER: Editor = Editor {
    xcp_protocol: XCP,
    edge: None,
    cloud: None,
};

/// Fails unless `after` differs from `before` only as a router may change it. Returns the
/// delta that was written, if the frame carries a forward header.
pub fn check(before: &[u8], after: &[u8]) -> Option<i32> {
    check_of(before, after, ROUTER)
}

/// Does the same with another IP protocol number for XCP headers.
pub fn check_as(before: &[u8], after: &[u8], xcp_protocol: u8) -> Option<i32> {
    let editor = Editor {
        xcp_protocol,
        ..ROUTER
    };
    check_of(before, after, editor)
}

/// Does the same for a router at the edge of a cloud.
pub fn check_edge(before: &[u8], after: &[u8], edge: Option<IpAddr>) -> Option<i32> {
    check_of(before, after, Editor { edge, ..ROUTER })
}

/// Does the same for a virtual router.
pub fn check_cloud(before: &[u8], after: &[u8], routers: u8) -> Option<i32> {
    let cloud = Some(routers);
    check_of(before, after, Editor { cloud, ..ROUTER })
}

fn check_of(before: &[u8], after: &[u8], editor: Editor) -> Option<i32> {
    let xcp_protocol = editor.xcp_protocol;
    let seen = decode_as(before, xcp_protocol);
    if !seen.is_forward() {
        assert!(
            before == after,
            "a frame without a forward header was changed: {seen:?}"
        );
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
    let granted = now
        .forward
        .expect("the forward header is still there")
        .delta_Bps;
    assert!(
        granted <= asked.delta_Bps,
        "granted {granted}, more than the requested {}",
        asked.delta_Bps
    );
    Some(granted)
}

/// Returns `before` with the changes that a router must make. Values that the router chooses
/// are copied from `after`.
fn expected(before: &[u8], after: &[u8], editor: Editor, seen: &Decoded, now: &Decoded) -> Vec<u8> {
    let mut frame = before.to_vec();
    let mut chosen = |at: usize, length: usize| {
        let range = at..at + length;
        frame[range.clone()].copy_from_slice(&after[range]);
    };
    let asked = seen.forward.expect("a forward header has its fields");
    let ttl_at = match seen.wire.expect("a forward header has a format") {
        Wire::Option => {
            let option = option(seen);
            chosen(option + 14, 4);
            chosen(check_field(seen), 2);
            if editor.cloud.is_none() {
                let hops = asked.xcp_hops.expect("this format has the field") + 1;
                frame[option + 4] = before[option + 4] & 0xf0 | hops.min(15);
            }
            if let Some(edge) = editor.edge {
                frame[option + 18..][..4].copy_from_slice(&id(edge).to_be_bytes());
            }
            option + 5
        }
        Wire::Option2005 => {
            // the return option, RTT and window must not change
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
        frame[ttl_at] = asked.xcp_ttl.expect("this format has the field") - spoken_for as u8;
    }
    frame
}

/// Writes last_xcp_router behind a header, if the header has room for it.
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

/// Clears last_xcp_router behind a header: no router was passed.
pub fn clear_router(frame: &mut [u8], seen: &Decoded) {
    let length = seen.header.as_ref().map_or(20, |h| h.length);
    frame[header(seen)..][20..length.into()].fill(0);
}

fn option(seen: &Decoded) -> usize {
    seen.option_offset.expect("an option has an offset")
}

fn header(seen: &Decoded) -> usize {
    seen.header_offset.expect("a header has an offset")
}

fn check_field(seen: &Decoded) -> usize {
    seen.tcp_offset.expect("an option is in TCP") + 16
}

/// Checks that a correct TCP checksum stays correct, and that a wrong one keeps its error.
fn check_checksum(before: &[u8], after: &[u8], seen: &Decoded) {
    let (old, new) = (segment(before).unwrap(), segment(after).unwrap());
    assert_eq!(
        old.checksum_error(),
        new.checksum_error(),
        "the error of the checksum has changed: {seen:?}"
    );
    if seen.checksum_valid == Some(true) {
        let mut zeroed = new.bytes.to_vec();
        zeroed[16..18].fill(0);
        let full = checksum::of(new.addresses, TCP, &zeroed);
        let field = u16::from_be_bytes([new.bytes[16], new.bytes[17]]);
        assert_eq!(full % 0xffff, field % 0xffff, "full recomputation");
    }
}

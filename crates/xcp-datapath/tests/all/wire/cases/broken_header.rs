// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Golden packets with headers of the draft that routers must not change.

use std::net::{IpAddr, Ipv6Addr};

use super::header::{frame, WISH, WISH_2004, WISH_V2};
use super::{opaque, Case};
use crate::wire::frame::Frame;
use crate::wire::header::Header;

pub fn broken() -> Vec<Case> {
    let bad = |name, about, header: Header| opaque(name, about, &frame(header), true);
    let mut cases = cut();
    cases.extend([
        bad(
            "header-version-0",
            "version 0",
            Header { version: 0, ..WISH },
        ),
        bad(
            "header-version-4",
            "version 4",
            Header { version: 4, ..WISH },
        ),
        bad("header-format-0", "format 0", Header { format: 0, ..WISH }),
        bad("header-format-3", "format 3", Header { format: 3, ..WISH }),
        bad(
            "header-v2-format-3",
            "version 2, format 3",
            Header {
                format: 3,
                ..WISH_V2
            },
        ),
        bad(
            "header-2004-format-3",
            "version 1, format 3",
            Header {
                format: 3,
                ..WISH_2004
            },
        ),
        bad(
            "header-wrong-length",
            "a length of 21",
            Header {
                length: Some(21),
                ..WISH
            },
        ),
        bad(
            "header-length-40",
            "version 3 with a length of 0x28, which only version 1 may have",
            Header {
                length: Some(0x28),
                ..WISH
            },
        ),
        bad(
            "header-2004-wrong-length",
            "version 1 with a length of 16",
            Header {
                length: Some(16),
                ..WISH_2004
            },
        ),
    ]);
    cases
}

/// Packets that end within the header.
fn cut() -> Vec<Case> {
    let to = |name, about, header: Header, length: usize| {
        let mut cut = Frame {
            xcp_header: header.bytes(),
            ..Frame::default()
        };
        cut.xcp_header.truncate(length);
        let mut case = opaque(name, about, &cut, true);
        case.layers = cut.without_segment();
        case
    };
    let v6 = Header {
        last_xcp_router: Some(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        ..WISH
    };
    vec![
        to("header-cut-1", "1 byte of a header", WISH, 1),
        to("header-cut-19", "19 bytes of a header", WISH, 19),
        to("header-cut-ipv6", "24 of a header's 36 bytes", v6, 24),
    ]
}

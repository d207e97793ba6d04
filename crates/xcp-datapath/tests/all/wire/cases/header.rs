// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Golden packets of the draft's header: its versions, formats and values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::header_seen::seen;
use super::{Case, RTT_TICKS, TTL, X_TICKS};
use crate::wire::frame::{Frame, TCP, UDP};
use crate::wire::header::{Header, MINIMAL, STANDARD};
use crate::wire::option::TIMESTAMPS;

/// A request for 4 kB/s more, and a returned feedback of -500 B/s: the draft's example.
pub const WISH: Header = Header {
    version: 3,
    format: STANDARD,
    protocol: TCP,
    length: None,
    fourth: TTL,
    rtt: RTT_TICKS,
    pace: X_TICKS,
    feedback_Bps: -500,
    delta_Bps: 4_000,
    last_xcp_router: None,
};

/// Version 2 has the same fields in another order.
pub const WISH_V2: Header = Header { version: 2, ..WISH };

/// An RTT of 100.0000015 ms is rounded up to 101 ms; 134 bytes in 2 ms are 67 B/ms.
pub const WISH_2004: Header = Header {
    version: 1,
    rtt: 101,
    pace: 67,
    ..WISH
};

/// A header that a receiver returns: it received xcp_ttl 61 (61 mod 15 = 1) and an IP TTL
/// of 59.
pub const ANSWER: Header = Header {
    format: MINIMAL,
    fourth: 0x22,
    rtt: 0,
    pace: 0,
    delta_Bps: 0,
    ..WISH
};

/// Returns a data segment behind this header, 134 bytes without VLAN tags.
pub fn frame(header: Header) -> Frame {
    Frame {
        xcp_header: header.bytes(),
        protocol: header.protocol,
        options: if header.protocol == TCP {
            TIMESTAMPS.to_vec()
        } else {
            vec![]
        },
        payload: 48,
        ..Frame::default()
    }
}

pub fn plain(name: &'static str, about: &'static str, header: Header) -> Case {
    seen(name, about, &frame(header), header)
}

pub fn versions() -> Vec<Case> {
    let full = |header| Frame {
        payload: 1500 - 20 - 20 - 32,
        ..frame(header)
    };
    let example = Header { fourth: 0, ..WISH };
    vec![
        seen(
            "header-standard",
            "version 3 on 1500 bytes of IPv4",
            &full(WISH),
            WISH,
        ),
        plain(
            "header-draft-example",
            "version 3 with the numbers of the draft's example; no xcp_ttl",
            example,
        ),
        plain("header-minimal", "version 3, only feedback", ANSWER),
        seen(
            "header-v2-standard",
            "version 2 on 1500 bytes of IPv4",
            &full(WISH_V2),
            WISH_V2,
        ),
        plain(
            "header-v2-minimal",
            "version 2, only feedback",
            Header {
                version: 2,
                ..ANSWER
            },
        ),
        plain(
            "header-2004-standard",
            "version 1: RTT in ms, throughput",
            WISH_2004,
        ),
        plain(
            "header-2004-minimal",
            "version 1, only feedback",
            Header {
                version: 1,
                ..ANSWER
            },
        ),
        plain(
            "header-2004-length-40",
            "version 1, with draft -00's length of 0x28",
            Header {
                length: Some(0x28),
                ..WISH_2004
            },
        ),
    ]
}

/// Headers with an appended last_xcp_router.
pub fn last_routers() -> Vec<Case> {
    let v4 = Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)));
    let v6 = Some(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 7)));
    let with = |name, about, header: Header, last_xcp_router| {
        plain(
            name,
            about,
            Header {
                last_xcp_router,
                ..header
            },
        )
    };
    vec![
        with(
            "header-last-router",
            "version 3 of 24 bytes: the last XCP router's IPv4 address",
            WISH,
            v4,
        ),
        with(
            "header-last-router-ipv6",
            "version 3 of 36 bytes: the last XCP router's IPv6 address",
            WISH,
            v6,
        ),
        with(
            "header-v2-last-router",
            "version 2 of 24 bytes",
            WISH_V2,
            v4,
        ),
        with(
            "header-2004-last-router",
            "version 1 of 24 bytes",
            WISH_2004,
            v4,
        ),
        with(
            "header-2004-last-router-ipv6",
            "version 1 of 36 bytes",
            WISH_2004,
            v6,
        ),
    ]
}

/// Routers ignore what follows the header, and never take its protocol number for a version.
pub fn next_protocols() -> Vec<Case> {
    let before =
        |name, about, header: Header, protocol| plain(name, about, Header { protocol, ..header });
    vec![
        before("header-udp", "version 3 before UDP", WISH, UDP),
        before("header-v2-udp", "version 2 before UDP", WISH_V2, UDP),
        before("header-2004-udp", "version 1 before UDP", WISH_2004, UDP),
        before(
            "header-v2-dccp",
            "version 2, standard, before DCCP, whose protocol number is also 0x21",
            WISH_V2,
            0x21,
        ),
        before(
            "header-minimal-esp",
            "version 3, minimal, before ESP, whose protocol number is also 0x32",
            ANSWER,
            0x32,
        ),
        before(
            "header-protocol-17",
            "version 3 before the protocol whose number equals the first byte of version 1",
            WISH,
            0x11,
        ),
    ]
}

/// Values at the limits of their ranges.
pub fn values() -> Vec<Case> {
    let mut cases = ways();
    cases.extend([
        plain(
            "header-rtt-unknown",
            "RTT 0, requests an increase",
            Header { rtt: 0, ..WISH },
        ),
        plain(
            "header-rtt-unknown-less",
            "RTT 0, requests a decrease",
            Header {
                rtt: 0,
                delta_Bps: -4_000,
                ..WISH
            },
        ),
        plain(
            "header-most",
            "RTT, X and delta at their largest, feedback at its smallest",
            Header {
                rtt: u32::MAX,
                pace: u32::MAX,
                feedback_Bps: i32::MIN,
                delta_Bps: i32::MAX,
                ..WISH
            },
        ),
        plain(
            "header-less",
            "the smallest delta",
            Header {
                delta_Bps: i32::MIN,
                ..WISH
            },
        ),
        plain(
            "header-v2-less",
            "version 2, the smallest delta",
            Header {
                delta_Bps: i32::MIN,
                ..WISH_V2
            },
        ),
        plain(
            "header-2004-most",
            "version 1: RTT saturates, X is the smallest",
            Header {
                rtt: u32::MAX,
                pace: u32::MAX,
                ..WISH_2004
            },
        ),
        plain(
            "header-2004-least",
            "version 1: RTT of 1 ms, 1 B/ms",
            Header {
                rtt: 1,
                pace: 1,
                ..WISH_2004
            },
        ),
        plain(
            "header-2004-unknown",
            "version 1: RTT and throughput unknown",
            Header {
                rtt: 0,
                pace: 0,
                ..WISH_2004
            },
        ),
        plain(
            "header-2004-less",
            "version 1: requests a decrease",
            Header {
                delta_Bps: -4_000,
                ..WISH_2004
            },
        ),
    ]);
    cases
}

/// Values of the fourth byte, which reports the hops of the path.
fn ways() -> Vec<Case> {
    let of = |name, about, header: Header, fourth| plain(name, about, Header { fourth, ..header });
    vec![
        of(
            "header-xcp-ttl-ahead",
            "xcp_ttl 3 above the TTL: 3 other routers on the path",
            WISH,
            TTL + 3,
        ),
        of(
            "header-2004-xcp-ttl-ahead",
            "version 1, xcp_ttl 3 above the TTL",
            WISH_2004,
            TTL + 3,
        ),
        of(
            "header-xcp-ttl-behind",
            "xcp_ttl below the TTL, which no router can produce",
            WISH,
            TTL - 1,
        ),
        of(
            "header-way-unknown",
            "minimal format; the receiver does not know the hop counts",
            ANSWER,
            0,
        ),
        of(
            "header-way-many",
            "minimal format; xcp_ttl mod 15 = 14, 15 or more other routers",
            ANSWER,
            0xff,
        ),
    ]
}

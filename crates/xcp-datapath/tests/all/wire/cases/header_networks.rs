// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Golden packets with various link and network headers before the draft's header.

use super::header::{frame, ANSWER, WISH, WISH_2004, WISH_V2};
use super::header_seen::seen;
use super::{opaque, Case, SERVICE_VLAN, VLAN};
use crate::wire::frame::{Frame, Ip};
use crate::wire::header::Header;

pub fn networks() -> Vec<Case> {
    let v6 = |name, about, header: Header| {
        let frame = Frame {
            ip: Ip::v6(),
            ..frame(header)
        };
        seen(name, about, &frame, header)
    };
    let tagged = |name, about, tags, header: Header| {
        let frame = Frame {
            tags,
            ..frame(header)
        };
        seen(name, about, &frame, header)
    };
    let through = |name, about, ip, header: Header| {
        let frame = Frame {
            ip,
            ..frame(header)
        };
        seen(name, about, &frame, header)
    };
    let router_alert = || Ip::V4 {
        options: vec![0x94, 4, 0, 0],
        fragment: 0x4000,
    };
    let extended = || Ip::V6 {
        extensions: vec![
            (0, vec![0, 0, 5, 2, 0, 0, 1, 0]),
            (60, vec![0, 0, 1, 4, 0, 0, 0, 0]),
        ],
    };
    let padded = Frame {
        payload: 0,
        options: vec![],
        padding: 4,
        ..frame(WISH)
    };
    vec![
        v6("header-ipv6", "version 3, IPv6", WISH),
        v6("header-v2-ipv6", "version 2, IPv6", WISH_V2),
        v6("header-2004-ipv6", "version 1, IPv6", WISH_2004),
        v6("header-minimal-ipv6", "version 3, minimal, IPv6", ANSWER),
        through(
            "header-ipv4-options",
            "version 3, IPv4 with options (router alert)",
            router_alert(),
            WISH,
        ),
        through(
            "header-2004-ipv4-options",
            "version 1, IPv4 with options (router alert)",
            router_alert(),
            WISH_2004,
        ),
        through(
            "header-ipv6-extensions",
            "version 3, IPv6 with hop-by-hop and destination options",
            extended(),
            WISH,
        ),
        through(
            "header-v2-ipv6-extensions",
            "version 2, IPv6 with hop-by-hop and destination options",
            extended(),
            WISH_V2,
        ),
        tagged(
            "header-vlan",
            "version 3, an 802.1Q tag before IPv4",
            vec![VLAN],
            WISH,
        ),
        tagged(
            "header-2004-vlan",
            "version 1, an 802.1Q tag before IPv4",
            vec![VLAN],
            WISH_2004,
        ),
        tagged(
            "header-qinq",
            "version 3, 802.1ad and 802.1Q tags before IPv4",
            vec![SERVICE_VLAN, VLAN],
            WISH,
        ),
        seen(
            "header-padded",
            "version 3 on a short packet with Ethernet padding behind it",
            &padded,
            WISH,
        ),
    ]
}

/// Packets that routers do not parse: fragments and other protocol numbers.
pub fn fragments() -> Vec<Case> {
    let with = |name, about, ip| {
        let frame = Frame { ip, ..frame(WISH) };
        opaque(name, about, &frame, false)
    };
    let v4 = |fragment| Ip::V4 {
        options: vec![],
        fragment,
    };
    let other = Frame {
        xcp_protocol: 200,
        ..frame(WISH)
    };
    vec![
        with(
            "none-header-fragment-first",
            "version 3 in the first fragment of an IPv4 packet",
            v4(0x2000),
        ),
        with(
            "none-header-fragment-later",
            "a later fragment of an IPv4 packet that looks like version 3",
            v4(0x0010),
        ),
        with(
            "none-header-fragment-ipv6",
            "version 3 in the first fragment of an IPv6 packet",
            Ip::V6 {
                extensions: vec![(44, vec![0, 0, 0, 1, 0, 0, 0x12, 0x34])],
            },
        ),
        opaque(
            "none-protocol-200",
            "version 3 as IP protocol 200, which must be configured at routers",
            &other,
            false,
        ),
    ]
}

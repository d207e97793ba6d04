// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Golden packets with various link and network headers before TCP.

use super::{case, default_request, forward, opaque, usual_frame, Case, SERVICE_VLAN, VLAN};
use crate::wire::frame::{Frame, Ip};

pub fn networks() -> Vec<Case> {
    let hop_by_hop = (0, vec![0, 0, 5, 2, 0, 0, 1, 0]); // router alert
    let destination = (60, vec![0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let later = |name, about, frame: &Frame| {
        case(name, about, frame, forward(frame, 32, default_request()))
    };
    vec![
        later(
            "forward-ipv6",
            "IPv6, a forward option behind timestamps",
            &Frame {
                ip: Ip::v6(),
                ..usual_frame()
            },
        ),
        later(
            "forward-vlan",
            "an 802.1Q tag before IPv4",
            &Frame {
                tags: vec![VLAN],
                ..usual_frame()
            },
        ),
        later(
            "forward-vlan-ipv6",
            "an 802.1Q tag before IPv6",
            &Frame {
                tags: vec![VLAN],
                ip: Ip::v6(),
                ..usual_frame()
            },
        ),
        later(
            "forward-qinq",
            "802.1ad and 802.1Q tags before IPv4",
            &Frame {
                tags: vec![SERVICE_VLAN, VLAN],
                ..usual_frame()
            },
        ),
        later(
            "forward-ipv6-extensions",
            "IPv6 with hop-by-hop and destination options",
            &Frame {
                ip: Ip::V6 {
                    extensions: vec![hop_by_hop, destination],
                },
                ..usual_frame()
            },
        ),
        later(
            "forward-ipv4-options",
            "IPv4 with options (router alert)",
            &Frame {
                ip: Ip::V4 {
                    options: vec![0x94, 4, 0, 0],
                    fragment: 0x4000,
                },
                ..usual_frame()
            },
        ),
        later(
            "forward-padded",
            "a short packet with Ethernet padding behind it",
            &Frame {
                payload: 1,
                padding: 4,
                ..usual_frame()
            },
        ),
        opaque(
            "fragment-first",
            "the first fragment of an IPv4 packet, with a whole TCP header",
            &Frame {
                ip: Ip::V4 {
                    options: vec![],
                    fragment: 0x2000,
                },
                ..usual_frame()
            },
            false,
        ),
        opaque(
            "fragment-later",
            "a later fragment of an IPv4 packet that looks like a TCP header",
            &Frame {
                ip: Ip::V4 {
                    options: vec![],
                    fragment: 0x0010,
                },
                ..usual_frame()
            },
            false,
        ),
        opaque(
            "fragment-ipv6",
            "the first fragment of an IPv6 packet",
            &Frame {
                ip: Ip::V6 {
                    extensions: vec![(44, vec![0, 0, 0, 1, 0, 0, 0x12, 0x34])],
                },
                ..usual_frame()
            },
            false,
        ),
    ]
}

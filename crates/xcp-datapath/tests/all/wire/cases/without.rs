// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Golden packets without XCP.

use super::{behind_timestamps, case, default_request, opaque, Case, ACK};
use crate::wire::decode::Decoded;
use crate::wire::frame::{Frame, UDP};
use crate::wire::option::{self, TIMESTAMPS};

pub fn without() -> Vec<Case> {
    let mut arp = vec![0xff; 6];
    arp.extend([2, 0, 0, 0, 0, 1, 0x08, 0x06]);
    let ethernet = arp.clone();
    let request = vec![
        0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2,
    ];
    let mut other_experiment = option::forward(default_request());
    other_experiment[3] = b'D';
    vec![
        case(
            "none-timestamps",
            "timestamps, no XCP",
            &Frame {
                options: TIMESTAMPS.to_vec(),
                ..Frame::default()
            },
            Decoded::default(),
        ),
        case(
            "none-bare",
            "a pure ACK without options, padded to Ethernet's minimum",
            &Frame {
                flags: ACK,
                payload: 0,
                padding: 6,
                ..Frame::default()
            },
            Decoded::default(),
        ),
        case(
            "none-other-experiment",
            "an option of kind 254 with another experiment's identifier",
            &Frame {
                options: behind_timestamps(other_experiment),
                ..Frame::default()
            },
            Decoded::default(),
        ),
        case(
            "none-after-end",
            "a forward option behind the end of options",
            &Frame {
                options: [vec![0, 1], option::forward(default_request())].concat(),
                ..Frame::default()
            },
            Decoded::default(),
        ),
        opaque(
            "none-udp",
            "a UDP datagram",
            &Frame {
                protocol: UDP,
                ..Frame::default()
            },
            false,
        ),
        Case {
            name: "none-arp",
            about: "an ARP request",
            layers: vec![("Ethernet", ethernet), ("ARP", request)],
            expect: Decoded::default(),
        },
    ]
}

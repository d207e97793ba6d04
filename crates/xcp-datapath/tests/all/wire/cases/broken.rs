// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Golden packets with malformed options, and malformed headers around correct options.

use super::{
    answer, behind_timestamps, case, default_request, forward, malformed, opaque, usual_frame,
    Case, ACK,
};
use crate::wire::frame::{Frame, Ip};
use crate::wire::option::{self, TIMESTAMPS};

pub fn broken_options() -> Vec<Case> {
    let spoilt = |mut option: Vec<u8>, at: usize, value: u8| {
        option[at] = value;
        Frame {
            options: behind_timestamps(option),
            ..Frame::default()
        }
    };
    let with = |at, value| spoilt(option::forward(default_request()), at, value);
    let bad = |name, about, frame: &Frame| case(name, about, frame, malformed());
    vec![
        bad("option-length-0", "an option of length 0", &with(1, 0)),
        bad("option-length-1", "an option of length 1", &with(1, 1)),
        bad(
            "option-too-long",
            "an option that ends behind the TCP header",
            &with(1, 28),
        ),
        bad(
            "option-wrong-length",
            "an option with a length that no kind has (23)",
            &with(1, 23),
        ),
        bad(
            "option-cut",
            "an option with only its kind byte inside the TCP header",
            &Frame {
                options: [TIMESTAMPS.to_vec(), vec![1, 1, 1, option::KIND]].concat(),
                ..Frame::default()
            },
        ),
        bad("option-version", "an option of version 2", &with(4, 0x20)),
        bad(
            "return-version-3",
            "a return option of version 3",
            &Frame {
                flags: ACK,
                payload: 0,
                ..spoilt(option::back(answer()), 4, 0x31)
            },
        ),
    ]
}

pub fn broken_headers() -> Vec<Case> {
    let spoilt = Frame {
        spoil_checksum: true,
        ..usual_frame()
    };
    vec![
        case(
            "forward-bad-checksum",
            "a TCP checksum that is wrong by 0x0bad",
            &spoilt,
            forward(&spoilt, 32, default_request()),
        )
        .with_checksum(false),
        opaque(
            "tcp-header-short",
            "a TCP data offset of 4 words",
            &Frame {
                doff: Some(4),
                ..usual_frame()
            },
            true,
        ),
        opaque(
            "tcp-header-long",
            "a TCP data offset behind the end of the packet",
            &Frame {
                doff: Some(15),
                payload: 0,
                ..usual_frame()
            },
            true,
        ),
        opaque(
            "ipv4-too-long",
            "an IPv4 total length behind the end of the frame",
            &Frame {
                excess: 1,
                ..usual_frame()
            },
            true,
        ),
        opaque(
            "ipv6-too-long",
            "an IPv6 payload length behind the end of the frame",
            &Frame {
                ip: Ip::v6(),
                excess: 1,
                ..usual_frame()
            },
            true,
        ),
    ]
}

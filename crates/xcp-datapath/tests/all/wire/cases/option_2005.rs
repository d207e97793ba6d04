// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Golden packets of the format `option-2005`: its kinds and positions.

use super::{behind_timestamps, case, opaque, Case, ACK, SYN_FLAG, VLAN};
use crate::wire::decode::{Decoded, Kind, Wire};
use crate::wire::frame::{Frame, Ip};
use crate::wire::option::{seconds, Forward, SYN, TIMESTAMPS};
use crate::wire::option_2005::{
    back, feedback, forward, Feedback2005, Forward2005, Option2005, FORWARD_KIND, RETURN_KIND,
};

/// An RTT of 100 ms, a window of 50 packets, and a request for 0.75 packets more.
pub fn default_request() -> Forward2005 {
    Forward2005 {
        feedback: feedback(3072, 0),
        rtt_ms: 100,
        cwnd: 50,
    }
}

/// Returns how routers read [`default_request`]. The delta is given in packets, so its value in B/s depends
/// on the packet size.
pub fn meaning(delta_Bps: i32) -> Forward {
    told(26_843_545, 536_871, delta_Bps)
}

/// Returns the forward fields that this format can carry.
pub fn told(rtt_ticks: u32, x_ticks: u32, delta_Bps: i32) -> Forward {
    Forward {
        rtt_ticks,
        rtt_s: seconds(rtt_ticks),
        x_ticks,
        x_s: seconds(x_ticks),
        delta_Bps,
        last_xcp_router: None,
        xcp_ttl: None,
        xcp_hops: None,
        other_hops: None,
    }
}

/// The feedback -1/8 packet.
fn answer() -> Feedback2005 {
    feedback(-512, 0)
}

/// Returns the expected values of a forward option at byte `at` of the TCP header.
pub fn seen(frame: &Frame, at: usize, raw: Forward2005, means: Forward) -> Decoded {
    Decoded {
        kind: Kind::Forward,
        wire: Some(Wire::Option2005),
        option_offset: Some(frame.tcp_offset() + at),
        forward: Some(means),
        option_2005: Some(Option2005 {
            forward: Some(raw),
            back: None,
        }),
        ..Decoded::default()
    }
}

fn seen_return(frame: &Frame, at: usize) -> Decoded {
    Decoded {
        kind: Kind::Return,
        wire: Some(Wire::Option2005),
        option_offset: Some(frame.tcp_offset() + at),
        option_2005: Some(Option2005 {
            forward: None,
            back: Some(answer()),
        }),
        ..Decoded::default()
    }
}

fn seen_both(frame: &Frame, at: usize, delta_Bps: i32) -> Decoded {
    Decoded {
        kind: Kind::Both,
        option_2005: Some(Option2005 {
            forward: Some(default_request()),
            back: Some(answer()),
        }),
        ..seen(frame, at, default_request(), meaning(delta_Bps))
    }
}

/// Returns a data segment with [`default_request`] behind timestamps.
pub fn usual_frame() -> Frame {
    Frame {
        options: behind_timestamps(forward(default_request())),
        ..Frame::default()
    }
}

/// Returns NOP, NOP and a SACK option with this number of blocks.
fn sack(blocks: u8) -> Vec<u8> {
    let mut option = vec![1, 1, 5, 2 + 8 * blocks];
    for block in 1..=blocks {
        option.extend([0, 0, block * 32, 0, 0, 0, block * 32 + 11, 80]);
    }
    option
}

pub fn usual() -> Vec<Case> {
    let data = Frame {
        payload: 1500 - 20 - 40,
        ..usual_frame()
    };
    let two_way = Frame {
        options: behind_timestamps([forward(default_request()), back(answer())].concat()),
        payload: 1500 - 20 - 44,
        ..Frame::default()
    };
    let ack = |options| Frame {
        flags: ACK,
        options,
        payload: 0,
        ..Frame::default()
    };
    let returns = ack(behind_timestamps(back(answer())));
    let crowded = ack(behind_timestamps([sack(2), back(answer())].concat()));
    let full = ack(behind_timestamps(sack(3)));
    vec![
        case(
            "2005-forward",
            "1500 bytes of IPv4, a forward option behind timestamps",
            &data,
            seen(&data, 32, default_request(), meaning(11_355)),
        ),
        case(
            "2005-both",
            "1500 bytes of IPv4, forward and return options behind timestamps",
            &two_way,
            seen_both(&two_way, 32, 11_355),
        ),
        case(
            "2005-return",
            "a pure ACK with a return option",
            &returns,
            seen_return(&returns, 32),
        ),
        case(
            "2005-return-sack",
            "a pure ACK with a return option behind timestamps and two SACK blocks",
            &crowded,
            seen_return(&crowded, 52),
        ),
        case(
            "2005-none-sack",
            "timestamps and three SACK blocks fill the 40 bytes of TCP options: no return option",
            &full,
            Decoded::default(),
        ),
        handshake("2005-syn", "a SYN: RTT unknown, the smallest request", 0),
        handshake(
            "2005-syn-ack",
            "a SYN-ACK: RTT unknown, the smallest request",
            ACK,
        ),
    ]
}

fn handshake(name: &'static str, about: &'static str, more: u8) -> Case {
    let probe = Forward2005 {
        feedback: feedback(1, 0),
        rtt_ms: 0,
        cwnd: 0,
    };
    let frame = Frame {
        flags: SYN_FLAG | more,
        options: [SYN.to_vec(), forward(probe)].concat(),
        payload: 0,
        ..Frame::default()
    };
    // 2^-12 of 82 bytes per 1 ms, the smallest RTT
    case(name, about, &frame, seen(&frame, 40, probe, told(0, 0, 20)))
}

/// Options at other positions in the TCP header.
pub fn places() -> Vec<Case> {
    let first = Frame {
        options: forward(default_request()),
        ..Frame::default()
    };
    let odd = Frame {
        options: [vec![1], forward(default_request())].concat(),
        payload: 41,
        ..Frame::default()
    };
    let odd_both = Frame {
        options: [vec![1], back(answer()), forward(default_request())].concat(),
        payload: 41,
        ..Frame::default()
    };
    let odd_return = Frame {
        options: [vec![1], back(answer())].concat(),
        payload: 41,
        ..Frame::default()
    };
    vec![
        case(
            "2005-forward-first",
            "a forward option without timestamps before it",
            &first,
            seen(&first, 20, default_request(), meaning(765)),
        ),
        case(
            "2005-forward-odd",
            "a forward option at an odd offset, and an odd length",
            &odd,
            seen(&odd, 21, default_request(), meaning(802)),
        ),
        case(
            "2005-both-odd",
            "the return option before the forward option, both at odd offsets",
            &odd_both,
            seen_both(&odd_both, 25, 832),
        ),
        case(
            "2005-return-odd",
            "a return option at an odd offset",
            &odd_return,
            seen_return(&odd_return, 21),
        ),
    ]
}

pub fn networks() -> Vec<Case> {
    let v6 = Frame {
        ip: Ip::v6(),
        ..usual_frame()
    };
    let vlan = Frame {
        tags: vec![VLAN],
        ..usual_frame()
    };
    let spoilt = Frame {
        spoil_checksum: true,
        ..usual_frame()
    };
    vec![
        case(
            "2005-forward-ipv6",
            "IPv6, a forward option behind timestamps",
            &v6,
            seen(&v6, 32, default_request(), meaning(1005)),
        ),
        case(
            "2005-forward-vlan",
            "an 802.1Q tag before IPv4",
            &vlan,
            seen(&vlan, 32, default_request(), meaning(885)),
        ),
        case(
            "2005-forward-bad-checksum",
            "a TCP checksum that is wrong by 0x0bad",
            &spoilt,
            seen(&spoilt, 32, default_request(), meaning(855)),
        )
        .with_checksum(false),
    ]
}

/// Other options with the same kind numbers, and a cut option.
pub fn others() -> Vec<Case> {
    let with = |option: Vec<u8>| Frame {
        options: behind_timestamps(option),
        ..Frame::default()
    };
    let other = |name, about, option| case(name, about, &with(option), Decoded::default());
    let cut = Frame {
        options: [TIMESTAMPS.to_vec(), vec![1, 1, FORWARD_KIND, 8]].concat(),
        ..Frame::default()
    };
    vec![
        other(
            "2005-none-checksum-request",
            "kind 14 of length 3: an alternate checksum request (RFC 1146)",
            vec![FORWARD_KIND, 3, 1],
        ),
        other(
            "2005-none-checksum-data",
            "kind 15 of length 8: alternate checksum data (RFC 1146)",
            vec![RETURN_KIND, 8, 0, 1, 2, 3, 4, 5],
        ),
        other(
            "2005-none-lengths",
            "kinds 14 and 15, each with the length of the other",
            [
                vec![FORWARD_KIND, 4, 0x60, 0],
                vec![RETURN_KIND, 8, 0x60, 0, 0, 100, 0, 50],
            ]
            .concat(),
        ),
        opaque(
            "tcp-header-long-2005",
            "a forward option at its usual position, a data offset behind the end of the packet",
            &Frame {
                doff: Some(15),
                payload: 10,
                ..usual_frame()
            },
            true,
        ),
        case(
            "option-2005-cut",
            "a forward option that ends behind the TCP header",
            &cut,
            super::malformed(),
        ),
    ]
}

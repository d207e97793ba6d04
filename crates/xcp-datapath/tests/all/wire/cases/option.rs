// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Golden packets of the format `option`: its kinds, positions and values.

use super::{
    answer, behind_timestamps, both, case, default_request, forward, returns, usual_frame, Case,
    ACK, DELTA_BPS, SYN_FLAG, TTL,
};
use crate::wire::decode::{Decoded, Kind, Wire};
use crate::wire::frame::Frame;
use crate::wire::option::{self, seconds, Feedback, Forward, Return, SYN};

fn two_way_frame(r: Return) -> Frame {
    Frame {
        options: behind_timestamps(option::both(default_request(), r)),
        payload: 1500 - 20 - 60,
        ..Frame::default()
    }
}

fn ack_frame(r: Return) -> Frame {
    Frame {
        flags: ACK,
        options: behind_timestamps(option::back(r)),
        payload: 0,
        ..Frame::default()
    }
}

fn syn_frame(flags: u8, handshake: Vec<u8>) -> Frame {
    Frame {
        flags,
        options: [SYN.to_vec(), handshake].concat(),
        payload: 0,
        ..Frame::default()
    }
}

fn handshake(frame: &Frame) -> Decoded {
    Decoded {
        kind: Kind::Handshake,
        wire: Some(Wire::Option),
        option_offset: Some(frame.tcp_offset() + 40),
        ..Decoded::default()
    }
}

pub fn usual() -> Vec<Case> {
    let data = Frame {
        payload: 1500 - 20 - 56,
        ..usual_frame()
    };
    let two_way = two_way_frame(answer());
    let ack = ack_frame(answer());
    let syn = |flags| syn_frame(flags, option::handshake());
    vec![
        case(
            "forward",
            "1500 bytes of IPv4, a forward option behind timestamps",
            &data,
            forward(&data, 32, default_request()),
        ),
        case(
            "both",
            "1500 bytes of IPv4, a forward and return option behind timestamps",
            &two_way,
            both(&two_way, 32, default_request(), answer()),
        ),
        case(
            "return",
            "a pure ACK with a return option",
            &ack,
            returns(&ack, 32, answer()),
        ),
        case(
            "syn",
            "a SYN with the handshake option",
            &syn(SYN_FLAG),
            handshake(&syn(SYN_FLAG)),
        ),
        case(
            "syn-ack",
            "a SYN-ACK with the handshake option",
            &syn(SYN_FLAG | ACK),
            handshake(&syn(SYN_FLAG | ACK)),
        ),
    ]
}

/// Options at other positions in the TCP header.
pub fn places() -> Vec<Case> {
    let first = Frame {
        options: option::forward(default_request()),
        ..Frame::default()
    };
    let odd = Frame {
        options: [vec![1], option::forward(default_request())].concat(),
        payload: 41,
        ..Frame::default()
    };
    let odd_both = Frame {
        options: [vec![1], option::both(default_request(), answer())].concat(),
        payload: 41,
        ..Frame::default()
    };
    vec![
        case(
            "forward-first",
            "a forward option without timestamps before it",
            &first,
            forward(&first, 20, default_request()),
        ),
        case(
            "forward-odd",
            "a forward option at an odd offset, and an odd length",
            &odd,
            forward(&odd, 21, default_request()),
        ),
        case(
            "both-odd",
            "a forward and return option at an odd offset, and an odd length",
            &odd_both,
            both(&odd_both, 21, default_request(), answer()),
        ),
    ]
}

/// Values at the limits of their ranges.
pub fn extremes() -> Vec<Case> {
    let with = |name, about, f: Forward| {
        let frame = Frame {
            options: behind_timestamps(option::forward(f)),
            ..Frame::default()
        };
        case(name, about, &frame, forward(&frame, 32, f))
    };
    let unknown = Forward {
        rtt_ticks: 0,
        rtt_s: 0.0,
        ..default_request()
    };
    vec![
        with("rtt-unknown", "RTT 0, requests an increase", unknown),
        with(
            "rtt-unknown-less",
            "RTT 0, requests a decrease",
            Forward {
                delta_Bps: -DELTA_BPS,
                ..unknown
            },
        ),
        with(
            "rtt-most",
            "RTT and X at their largest, and a last XCP router",
            Forward {
                rtt_ticks: u32::MAX,
                rtt_s: seconds(u32::MAX),
                x_ticks: u32::MAX,
                x_s: seconds(u32::MAX),
                last_xcp_router: Some(0xc000_0201),
                ..default_request()
            },
        ),
        with(
            "delta-least",
            "the smallest delta",
            Forward {
                delta_Bps: i32::MIN,
                ..default_request()
            },
        ),
        with(
            "delta-most",
            "the largest delta",
            Forward {
                delta_Bps: i32::MAX,
                ..default_request()
            },
        ),
        with(
            "xcp-ttl-ahead",
            "xcp_ttl 3 above the TTL: 3 other routers on the path",
            Forward {
                xcp_ttl: Some(TTL + 3),
                other_hops: Some(3),
                ..default_request()
            },
        ),
        with(
            "hops-saturated",
            "15 XCP hops: the field is full",
            Forward {
                xcp_hops: Some(15),
                ..default_request()
            },
        ),
    ]
}

/// Return headers of version 2, and the handshakes that negotiate them.
pub fn totals() -> Vec<Case> {
    let total = |units| Return {
        feedback: Feedback::Total(units),
        ..answer()
    };
    let less = ack_frame(total(-500));
    let most = ack_frame(total(i32::MAX));
    let two_way = two_way_frame(total(-500));
    let syn = |name, about, flags| {
        let frame = syn_frame(flags, option::handshake_with_totals());
        let expect = Decoded {
            totals: true,
            ..handshake(&frame)
        };
        case(name, about, &frame, expect)
    };
    vec![
        case(
            "return-total",
            "a pure ACK with a return option of version 2: a running total",
            &less,
            returns(&less, 32, total(-500)),
        ),
        case(
            "return-total-most",
            "the largest running total",
            &most,
            returns(&most, 32, total(i32::MAX)),
        ),
        case(
            "both-total",
            "1500 bytes of IPv4, a forward header and a return header of version 2",
            &two_way,
            both(&two_way, 32, default_request(), total(-500)),
        ),
        syn(
            "syn-totals",
            "a SYN of a host that supports running totals",
            SYN_FLAG,
        ),
        syn(
            "syn-ack-totals",
            "a SYN-ACK that agrees to running totals",
            SYN_FLAG | ACK,
        ),
    ]
}

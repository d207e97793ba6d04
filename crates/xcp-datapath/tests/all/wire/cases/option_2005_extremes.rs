// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Golden packets of the format `option-2005` with values at the limits of their ranges.
//! The decoded values are computed by hand, for packets of 114 bytes.

use super::option_2005::{default_request, meaning, seen, told};
use super::{behind_timestamps, case, Case};
use crate::wire::frame::Frame;
use crate::wire::option::Forward;
use crate::wire::option_2005::{feedback, forward, Forward2005};

/// 100 ms.
const RTT_TICKS: u32 = 26_843_545;
/// The delta of [`default_request`]: 0.75 packets per 100 ms.
const DELTA_BPS: i32 = 855;

pub fn extremes() -> Vec<Case> {
    let mut cases = feedbacks();
    cases.extend(rtts());
    cases.extend(windows());
    cases
}

fn with(name: &'static str, about: &'static str, raw: Forward2005, means: Forward) -> Case {
    let frame = Frame {
        options: behind_timestamps(forward(raw)),
        ..Frame::default()
    };
    case(name, about, &frame, seen(&frame, 32, raw, means))
}

fn feedbacks() -> Vec<Case> {
    let of = |name, about, mantissa, exponent, delta_Bps| {
        let raw = Forward2005 {
            feedback: feedback(mantissa, exponent),
            ..default_request()
        };
        with(name, about, raw, meaning(delta_Bps))
    };
    vec![
        of("2005-less", "0.75 packets less", -3072, 0, -DELTA_BPS),
        of(
            "2005-mantissa-least",
            "0x8000: the smallest mantissa, the smallest exponent",
            -4096,
            0,
            -1140,
        ),
        of(
            "2005-feedback-least",
            "0x8007: the smallest feedback, below the range of the B/s field",
            -4096,
            7,
            -i32::MAX,
        ),
        of(
            "2005-mantissa-most",
            "0x7ff8: the largest mantissa, the smallest exponent",
            4095,
            0,
            1139,
        ),
        of(
            "2005-feedback-most",
            "0x7fff: the largest feedback, above the range of the B/s field",
            4095,
            7,
            i32::MAX,
        ),
        of(
            "2005-exponent-most-less",
            "0xffff: the mantissa -1, the largest exponent",
            -1,
            7,
            -74_711_040,
        ),
        of(
            "2005-least-less",
            "0xfff8: 2^-12 packets less, which is less than 1 B/s",
            -1,
            0,
            0,
        ),
        of(
            "2005-zero-exponent-most",
            "0x0007: zero, with the largest exponent",
            0,
            7,
            0,
        ),
    ]
}

fn rtts() -> Vec<Case> {
    let of = |name, about, rtt_ms, mantissa, means| {
        let raw = Forward2005 {
            feedback: feedback(mantissa, 0),
            rtt_ms,
            ..default_request()
        };
        with(name, about, raw, means)
    };
    vec![
        of(
            "2005-rtt-unknown",
            "H_rtt 0, requests an increase",
            0,
            3072,
            told(0, 0, 85_500),
        ),
        of(
            "2005-rtt-unknown-less",
            "H_rtt 0, requests a decrease",
            0,
            -3072,
            told(0, 0, -85_500),
        ),
        of(
            "2005-rtt-least",
            "H_rtt 1",
            1,
            3072,
            told(268_435, 5_369, 85_500),
        ),
        of(
            "2005-rtt-most",
            "H_rtt 65535: 65 s, but ticks can hold only 16 s; X is exact",
            0xffff,
            3072,
            told(u32::MAX, 351_838_352, 1),
        ),
    ]
}

fn windows() -> Vec<Case> {
    let of = |name, about, cwnd, x_ticks| {
        let raw = Forward2005 {
            cwnd,
            ..default_request()
        };
        with(name, about, raw, told(RTT_TICKS, x_ticks, DELTA_BPS))
    };
    vec![
        of("2005-cwnd-zero", "H_cwnd 0 counts as 1", 0, RTT_TICKS),
        of("2005-cwnd-one", "H_cwnd 1", 1, RTT_TICKS),
        of("2005-cwnd-most", "H_cwnd 65535", 0xffff, 410),
    ]
}

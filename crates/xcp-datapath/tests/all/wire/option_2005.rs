// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Builds the wire format `option-2005`: TCP options 14 and 15.

use serde::Serialize;

pub const FORWARD_KIND: u8 = 14;
pub const RETURN_KIND: u8 = 15;
pub const FORWARD_LEN: usize = 8;
pub const RETURN_LEN: usize = 4;

/// The raw fields of both options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Option2005 {
    pub forward: Option<Forward2005>,
    #[serde(rename = "return")]
    pub back: Option<Feedback2005>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Forward2005 {
    #[serde(flatten)]
    pub feedback: Feedback2005,
    pub rtt_ms: u16,
    pub cwnd: u16,
}

/// H_feedback as a code on the wire, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Feedback2005 {
    pub feedback_code: u16,
    pub feedback_packets: f64,
}

/// Returns H_feedback with a mantissa of 13 bits and an exponent of 3 bits.
pub fn feedback(mantissa: i16, exponent: u8) -> Feedback2005 {
    Feedback2005 {
        feedback_code: (mantissa << 3) as u16 | u16::from(exponent),
        feedback_packets: f64::from(mantissa) * 16f64.powi(i32::from(exponent) - 3),
    }
}

pub fn forward(f: Forward2005) -> Vec<u8> {
    let mut o = vec![FORWARD_KIND, FORWARD_LEN as u8];
    for field in [f.feedback.feedback_code, f.rtt_ms, f.cwnd] {
        o.extend(field.to_be_bytes());
    }
    o
}

pub fn back(r: Feedback2005) -> Vec<u8> {
    let mut o = vec![RETURN_KIND, RETURN_LEN as u8];
    o.extend(r.feedback_code.to_be_bytes());
    o
}

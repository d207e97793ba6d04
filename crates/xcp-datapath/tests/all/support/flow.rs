// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The same flow in each of the wire formats.

use super::Router;
use crate::wire::cases;
use crate::wire::frame::{Frame, TCP};
use crate::wire::header::{self, Header};
use crate::wire::option::{self, seconds, Forward, TIMESTAMPS};
use crate::wire::option_2005::{self, Feedback2005, Forward2005};

/// The size of the IP packets.
const SIZE_B: usize = 1500;
pub const FRAME_B: f64 = 1514.0;

/// The header values of a greedy flow.
#[derive(Clone, Copy)]
pub struct Flow {
    pub rtt_ms: u16,
    pub cwnd: u16,
    pub rtt_ticks: u32,
    pub x_ticks: u32,
    pub throughput_B_per_ms: u32,
}

impl Flow {
    pub fn option(&self) -> Vec<u8> {
        let told = Forward {
            rtt_ticks: self.rtt_ticks,
            rtt_s: seconds(self.rtt_ticks),
            x_ticks: self.x_ticks,
            x_s: seconds(self.x_ticks),
            delta_Bps: i32::MAX,
            ..cases::default_request()
        };
        full(
            [TIMESTAMPS.to_vec(), option::forward(told)].concat(),
            vec![],
        )
    }

    pub fn option_2005(&self) -> Vec<u8> {
        let told = Forward2005 {
            feedback: most(),
            rtt_ms: self.rtt_ms,
            cwnd: self.cwnd,
        };
        let option = option_2005::forward(told);
        full([TIMESTAMPS.to_vec(), option].concat(), vec![])
    }

    pub fn header(&self, version: u8) -> Vec<u8> {
        let old = version == 1;
        let header = Header {
            version,
            format: header::STANDARD,
            protocol: TCP,
            length: None,
            fourth: 64,
            rtt: if old {
                self.rtt_ms.into()
            } else {
                self.rtt_ticks
            },
            pace: if old {
                self.throughput_B_per_ms
            } else {
                self.x_ticks
            },
            feedback_Bps: 0,
            delta_Bps: i32::MAX,
            last_xcp_router: None,
        };
        full(TIMESTAMPS.to_vec(), header.bytes())
    }
}

/// The largest request.
fn most() -> Feedback2005 {
    option_2005::feedback(4095, 7)
}

/// Builds an IPv4 packet of [`SIZE_B`] with these options and this XCP header.
fn full(options: Vec<u8>, xcp_header: Vec<u8>) -> Vec<u8> {
    let headers = 20 + xcp_header.len() + 20 + options.len().next_multiple_of(4);
    let frame = Frame {
        options,
        xcp_header,
        payload: SIZE_B - headers,
        ..Frame::default()
    };
    frame.bytes()
}

/// A fast flow with an RTT of 1 ms; for it, option-2005's unit of 1/4096 packet is 370 B/s.
pub const FAST: Flow = Flow {
    rtt_ms: 1,
    cwnd: 1000,
    rtt_ticks: 268_435,
    x_ticks: 268,
    throughput_B_per_ms: 1_514_000,
};
/// The rate of 1/4096 packet per RTT of [`FAST`].
pub const RESOLUTION_BPS: f64 = FRAME_B / 4096.0 * 1000.0;

/// Sends packets of flows with an RTT of 1 s. They make up most of the sum of X, so that
/// each packet of the fast flow gets about 20 B/s.
pub fn send_slow(router: &Router) {
    let flow = Forward {
        rtt_ticks: 1 << 28,
        x_ticks: 1 << 28,
        delta_Bps: 0,
        ..cases::default_request()
    };
    for _ in 0..3 {
        router.send(&cases::data(flow, 1448));
    }
}

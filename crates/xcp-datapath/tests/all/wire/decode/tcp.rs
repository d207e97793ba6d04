// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Decodes the TCP options of both option formats.

use super::{be16, be32, saturate, Decoded, Kind, Malformed, Segment, Wire};
use crate::wire::option::{
    seconds, Feedback, Forward, Return, ID, KIND, TOTALS, TOTAL_VERSION, VERSION,
};
use crate::wire::option_2005::{
    self as o2005, Feedback2005, Forward2005, Option2005, FORWARD_KIND, RETURN_KIND,
};

/// Decodes a segment's XCP options, if it has any.
pub fn decode(tcp: &Segment, seen: &mut Decoded) -> Result<(), Malformed> {
    if tcp.bytes.len() < 20 {
        return Err(Malformed);
    }
    let header = usize::from(tcp.bytes[12] >> 4) * 4;
    if header < 20 || header > tcp.bytes.len() {
        return Err(Malformed);
    }
    seen.ttl = Some(tcp.ttl);
    seen.tcp_offset = Some(tcp.offset);
    seen.checksum_valid = Some(tcp.checksum_error() == 0);
    let mut walk = Walk {
        tcp: &tcp.bytes[..header],
        at: 20,
    };
    let mut back = None;
    while let Some((at, o)) = walk.next()? {
        match (o[0], o.len()) {
            (KIND, 4..) if o[2..4] == ID => {
                experiment(o, tcp.ttl, seen)?;
                seen.option_offset = Some(tcp.offset + at);
                let behind = &walk.tcp[walk.at..];
                seen.totals = seen.kind == Kind::Handshake && behind.starts_with(&TOTALS);
                return Ok(());
            }
            (FORWARD_KIND, o2005::FORWARD_LEN) => {
                // malformed options behind this one do not concern routers
                while let Ok(Some(next)) = walk.next() {
                    back = back.or(returns(next.1).then_some(next));
                }
                return old(Some((at, o)), back, tcp, seen);
            }
            // the first return option counts
            _ if returns(o) => back = back.or(Some((at, o))),
            _ => {}
        }
    }
    old(None, back, tcp, seen)
}

/// The offset of an option in the header, and its bytes.
type Found<'a> = (usize, &'a [u8]);

struct Walk<'a> {
    tcp: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    /// Returns the next option that is longer than one byte.
    fn next(&mut self) -> Result<Option<Found<'a>>, Malformed> {
        while self.at < self.tcp.len() {
            let at = self.at;
            match self.tcp[at] {
                0 => break,
                1 => self.at += 1,
                _ => {
                    let length = usize::from(*self.tcp.get(at + 1).ok_or(Malformed)?);
                    let option = self.tcp.get(at..at + length).ok_or(Malformed)?;
                    if length < 2 {
                        return Err(Malformed);
                    }
                    self.at += length;
                    return Ok(Some((at, option)));
                }
            }
        }
        Ok(None)
    }
}

fn returns(option: &[u8]) -> bool {
    option[0] == RETURN_KIND && option.len() == o2005::RETURN_LEN
}

/// Decodes the format `option`.
fn experiment(o: &[u8], ttl: u8, seen: &mut Decoded) -> Result<(), Malformed> {
    let (kind, ahead, returned) = match o.len() {
        4 => (Kind::Handshake, None, None),
        10 => (Kind::Return, None, Some(back(o[5], o[4], &o[6..])?)),
        22 => (Kind::Forward, Some(forward(o, ttl)?), None),
        28 => (
            Kind::Both,
            Some(forward(o, ttl)?),
            // routers ignore a return header of an unknown version
            back(o[22], o[23], &o[24..]).ok(),
        ),
        _ => return Err(Malformed),
    };
    seen.kind = kind;
    seen.wire = Some(Wire::Option);
    seen.forward = ahead;
    seen.back = returned;
    Ok(())
}

fn forward(o: &[u8], ttl: u8) -> Result<Forward, Malformed> {
    if o[4] >> 4 != VERSION {
        return Err(Malformed);
    }
    let (rtt_ticks, x_ticks) = (be32(&o[6..]), be32(&o[10..]));
    Ok(Forward {
        rtt_ticks,
        rtt_s: seconds(rtt_ticks),
        x_ticks,
        x_s: seconds(x_ticks),
        delta_Bps: be32(&o[14..]) as i32,
        last_xcp_router: Some(be32(&o[18..])),
        xcp_ttl: Some(o[5]),
        xcp_hops: Some(o[4] & 15),
        other_hops: Some(i16::from(o[5]) - i16::from(ttl)),
    })
}

fn back(xcp_hops: u8, flags: u8, feedback: &[u8]) -> Result<Return, Malformed> {
    let value = be32(feedback) as i32;
    Ok(Return {
        feedback: match flags >> 4 {
            VERSION => Feedback::Change(value),
            TOTAL_VERSION => Feedback::Total(value),
            _ => return Err(Malformed),
        },
        xcp_hops: Some(xcp_hops),
        other_hops: Some(flags & 15),
    })
}

/// Decodes the format `option-2005`.
fn old(
    ahead: Option<Found>,
    back: Option<Found>,
    tcp: &Segment,
    seen: &mut Decoded,
) -> Result<(), Malformed> {
    let Some((at, _)) = ahead.or(back) else {
        return Ok(());
    };
    let mut raw = Option2005 {
        forward: None,
        back: match back {
            Some((_, o)) => Some(feedback(be16(o, 2)?)),
            None => None,
        },
    };
    if let Some((_, o)) = ahead {
        let told = Forward2005 {
            feedback: feedback(be16(o, 2)?),
            rtt_ms: be16(o, 4)?,
            cwnd: be16(o, 6)?,
        };
        raw.forward = Some(told);
        seen.forward = Some(meaning(&told, tcp.frame_B));
    }
    seen.kind = match (ahead, back) {
        (Some(_), Some(_)) => Kind::Both,
        (Some(_), None) => Kind::Forward,
        (None, _) => Kind::Return,
    };
    seen.wire = Some(Wire::Option2005);
    seen.option_offset = Some(tcp.offset + at);
    seen.option_2005 = Some(raw);
    Ok(())
}

/// Returns the value of a code in 2^-12 packets.
fn value(code: u16) -> i64 {
    i64::from(code as i16 >> 3) << (4 * (code & 7))
}

fn feedback(code: u16) -> Feedback2005 {
    Feedback2005 {
        feedback_code: code,
        feedback_packets: value(code) as f64 / 4096.0,
    }
}

/// Returns how a router reads the option in a packet of `size_B`.
fn meaning(told: &Forward2005, size_B: usize) -> Forward {
    let rtt_ms = i128::from(told.rtt_ms);
    let rtt = (rtt_ms << 28) / 1000;
    let cwnd = i128::from(told.cwnd.max(1));
    let packets = i128::from(value(told.feedback.feedback_code));
    let delta_Bps = packets * size_B as i128 * 1000 / (4096 * rtt_ms.max(1));
    let (rtt_ticks, x_ticks) = (saturate(rtt), saturate((rtt + cwnd / 2) / cwnd));
    Forward {
        rtt_ticks,
        rtt_s: seconds(rtt_ticks),
        x_ticks,
        x_s: seconds(x_ticks),
        delta_Bps: delta_Bps.clamp(-i128::from(i32::MAX), i32::MAX.into()) as i32,
        last_xcp_router: None,
        xcp_ttl: None,
        xcp_hops: None,
        other_hops: None,
    }
}

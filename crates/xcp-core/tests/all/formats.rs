// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Properties of the formats option-2005, header and header-2004: how exactly they carry
//! values, and that rounding errors are carried over instead of lost.
//! In test builds undefined behaviour in core/ aborts (UBSan).

#![allow(non_snake_case)] // units in names

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xcp_core::wire::header::{self, Version};
use xcp_core::*;

const TICK: f64 = TICKS_PER_SEC as f64;
/// The feedback value that stands for one packet in option-2005.
const PACKET: f64 = 4096.0;

/// Uses a fixed seed, so that a failure can be reproduced.
fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        cases: count,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

fn near(what: &str, got: f64, want: f64, tolerance: f64) -> Result<(), TestCaseError> {
    prop_assert!(
        (got - want).abs() <= tolerance,
        "{what}: {got:e}, not {want:e} within {tolerance:e}"
    );
    Ok(())
}

/// Values of either sign; small values are as likely as large ones.
fn any_size() -> impl Strategy<Value = i64> {
    let shifted = (any::<i64>(), 0..64u32).prop_map(|(v, smaller)| v >> smaller);
    prop_oneof![18 => shifted, 1 => Just(i64::MIN), 1 => Just(i64::MAX)]
}

/// The largest value that `H_feedback` can carry, in 2^-12 packets.
const XCP_2005_VALUE_MAX: i64 = (XCP_2005_MANTISSA_MAX as i64) << 28;

/// Times in ticks, with a log-uniform distribution between two limits in seconds.
fn ticks(low_s: f64, high_s: f64) -> impl Strategy<Value = u64> {
    (low_s.ln()..=high_s.ln()).prop_map(|v| (v.exp() * TICK) as u64)
}

/// A sender with up to 65,535 packets in flight, which may request a larger window.
fn sender() -> impl Strategy<Value = xcp_sender> {
    (
        40..=9_000u32,
        1..=65_535u64,
        ticks(100e-6, 15.0),
        any_size(),
    )
        .prop_map(|(wire_B, packets, rtt, spare_B)| {
            let limit_B = packets * u64::from(wire_B) + (spare_B.unsigned_abs() >> 20);
            new_sender(wire_B, packets, limit_B, rtt)
        })
}

/// H_rtt as routers read it, in ticks.
fn told(h: &xcp_2005) -> u64 {
    (u64::from(h.rtt_ms) << 28) / 1000
}

/// Checks every 16-bit code. Negative mantissas have one value more than positive ones;
/// that value is never written.
#[test]
fn option_2005_codes_round_trip() {
    for c in 0..=u16::MAX {
        let v = xcp_2005_value(c);
        assert_eq!(v, i64::from(c as i16 >> 3) << (4 * (c & 7)), "{c:#x}");
        assert_eq!(
            xcp_2005_value(xcp_2005_code(v, false)),
            v.max(-XCP_2005_VALUE_MAX),
            "{c:#x}"
        );
    }
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// The carried value is at most the exact one, and more than 255/256 of it, up to the
    /// largest value that the format can carry.
    #[test]
    fn option_2005_values_are_rounded_towards_zero(v in any_size()) {
        let told = xcp_2005_value(xcp_2005_code(v, false));
        prop_assert_eq!(told.signum(), v.signum());
        prop_assert!(told.unsigned_abs() <= v.unsigned_abs(), "{told}");
        let lost = (v.clamp(-XCP_2005_VALUE_MAX, XCP_2005_VALUE_MAX) - told).unsigned_abs();
        prop_assert!(256 * lost < v.unsigned_abs().max(1), "{told}");
        let whole = xcp_2005_value(xcp_2005_code(v, true));
        prop_assert_eq!(whole, xcp_2005_value(xcp_2005_code(v / 4096 * 4096, false)));
        prop_assert!(whole % 4096 == 0 && whole.unsigned_abs() <= told.unsigned_abs());
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    /// The requests sent plus the rest equal the requests intended, and the rest is small.
    #[test]
    fn option_2005_sender_requests_its_full_delta(
        senders in prop::collection::vec((sender(), any::<bool>(), 40..=9_000u32, 1..20usize), 1..10),
    ) {
        let (mut meant, mut asked, mut rest) = (0, 0, 0);
        for (mut s, ends, size_B, packets) in senders {
            s.ends = ends.into();
            xcp_sender_update(&mut s);
            for _ in 0..packets {
                let h = xcp_2005_request(&s, size_B, &mut rest, false);
                let full = xcp_2005_of_Bps(
                    i64::from(s.request_Bps),
                    u32::from(h.rtt_ms),
                    s.wire_B,
                );
                let part = i128::from(size_B.min(s.wire_B));
                let request = (i128::from(full) * part / i128::from(s.wire_B)) as i64;
                // skip requests that one packet cannot carry
                prop_assume!(rest + request <= XCP_2005_VALUE_MAX);
                meant += request;
                asked += xcp_2005_value(h.feedback);
                prop_assert_eq!(meant, asked + rest);
                prop_assert!(rest.abs() <= xcp_2005_value(h.feedback).abs() / 255, "{rest}");
            }
        }
    }

    /// Granted deltas that cannot be written are carried to the next packets, and no packet
    /// gets more than it requested.
    #[test]
    fn option_2005_router_carries_what_it_cannot_write(
        packets in prop::collection::vec(
            (any::<u16>(), 1..=u16::MAX, any::<u16>(), 40..=65_535u32, any_size(), 1..=64u32),
            1..100,
        ),
    ) {
        let (mut granted, mut written, mut carry) = (0i64, 0i64, 0i64);
        for (feedback, rtt_ms, cwnd, size_B, grant, n) in packets {
            let h = xcp_2005 { feedback, rtt_ms, cwnd };
            let asked = xcp_2005_forward(&h, size_B).delta;
            let grant = (grant >> 32).min(i64::from(asked)) as i32;
            let target = i64::from(grant) + carry / i64::from(n);
            granted += i64::from(grant) * i64::from(n);
            let mut wrote = grant;
            let answer = xcp_2005_grant(&h, size_B, n, &mut wrote, &mut carry, false);
            written += i64::from(wrote) * i64::from(n);
            prop_assert_eq!(granted, written + carry);
            prop_assert!(xcp_2005_value(answer) <= xcp_2005_value(feedback) && wrote <= asked);
            if (0..i64::from(asked)).contains(&target) {
                // rounding: 1/256 of the target, 2^-12 packets, and whole B/s
                let unit_Bps = f64::from(size_B) / PACKET * 1000.0 / f64::from(rtt_ms);
                let most_Bps = (target as f64 / 256.0 + unit_Bps + 2.0) * f64::from(n);
                // the remainder of the division by n stays in the carry
                prop_assert!((-f64::from(n)..=most_Bps).contains(&(carry as f64)), "{carry}");
            }
        }
    }

    /// Feedback returned plus feedback pending equals feedback received.
    #[test]
    fn option_2005_receiver_returns_all_feedback(
        steps in prop::collection::vec((any::<u16>(), 1..=1_024u32, 0..=3u8, 1..=64u32), 1..100),
    ) {
        let mut receiver = xcp_receiver::default();
        let (mut came, mut went) = (0i64, 0i64);
        for (feedback, n, takes, copies) in steps {
            xcp_receiver_add_2005(&mut receiver, feedback, n);
            came += xcp_2005_value(feedback) * i64::from(n);
            for _ in 0..takes {
                let before = receiver.pending;
                let each = xcp_2005_value(xcp_receiver_take_2005(&mut receiver, copies));
                went += each * i64::from(copies);
                let left = receiver.pending.abs();
                prop_assert!(each.abs() == XCP_2005_VALUE_MAX || left < before.abs() / 256 + i64::from(copies));
            }
            prop_assert_eq!(came, went + receiver.pending);
        }
    }

    /// Feedback changes the window by feedback in packets * RTT / H_rtt, exact to 2^-12
    /// packets.
    #[test]
    fn option_2005_feedback_moves_the_window(
        wire_B in 40..=65_535u32,
        rtt in ticks(10e-6, 60.0),
        feedback in prop::collection::vec(any_size(), 1..50),
    ) {
        let mut s = new_sender(wire_B, 1, u64::MAX >> 18, rtt);
        s.cwnd_B = XCP_CWND_MAX_B / 2;
        let h = xcp_2005_request(&s, wire_B, &mut 0, false);
        prop_assert!(told(&h) >= rtt && told(&h) <= rtt + TICKS_PER_SEC / 1000 + 1);
        let exact = |s: &xcp_sender| (i128::from(s.cwnd_B) << 28) + i128::from(s.cwnd_frac);
        for v in feedback {
            let v = v >> 36; // up to 32,768 packets
            let unit = i128::from(wire_B) << 16; // 2^-12 packets, 2^-28 B
            let before = exact(&s);
            xcp_2005_feedback(&mut s, v);
            let want = i128::from(v) * unit * i128::from(rtt) / i128::from(told(&h));
            let error = exact(&s) - before - want;
            prop_assert!(error.abs() <= unit, "{v}: {error} of {unit}");
        }
    }

    /// Every format carries the throughput: option and header exact to a tick of X,
    /// header-2004 rounded up to B/ms, option-2005 exact to half a packet per H_rtt.
    #[test]
    fn every_format_carries_the_throughput(mut s in sender(), protocol in any::<u8>()) {
        let size_B = s.wire_B;
        let window_B = s.window_B as f64;
        let rate_Bps = window_B / s.rtt as f64 * TICK;
        let x = f64::from(size_B) / rate_Bps * TICK;
        let rtt = s.rtt as u32;
        let f = xcp_forward { rtt, x: xcp_sender_next_x(&mut s) as u32, ..xcp_forward::default() };
        near("X", f64::from(f.x), x, 1.0 + 1e-9 * x)?;
        prop_assert_eq!(wire::parse_forward(&wire::build_forward(&f)), Some(f));

        let h = header::build(Version::V2007, protocol, &f, 0, size_B);
        prop_assert_eq!(header::forward(&h, 3, size_B), f);

        let h = header::build(Version::V2004, protocol, &f, 0, size_B);
        let word = u32::from_be_bytes(h[8..12].try_into().expect("4 bytes"));
        let exact = f64::from(size_B) * TICK / f64::from(f.x) / 1000.0;
        prop_assert_eq!(f64::from(word), exact.ceil().min(f64::from(u32::MAX)));
        let read = header::forward(&h, 1, size_B);
        let by_word = f64::from(size_B) * TICK / 1000.0 / f64::from(word);
        prop_assert_eq!(f64::from(read.x), by_word.floor());
        let ms_of = |rtt: u32| (u64::from(rtt) * 1000).div_ceil(TICKS_PER_SEC);
        prop_assert!(read.rtt >= rtt && ms_of(read.rtt) == ms_of(rtt));

        let h = xcp_2005_request(&s, size_B, &mut 0, false);
        prop_assert_eq!(u64::from(h.rtt_ms), ms_of(rtt));
        let read = xcp_2005_forward(&h, size_B);
        prop_assert_eq!(u64::from(read.rtt), told(&h));
        let packets = told(&h) as f64 / x;
        let most = f64::from(u16::MAX);
        near("packets", f64::from(h.cwnd), packets.min(most), 0.5 + 1e-6 * packets)?;
        near("X", f64::from(read.x), told(&h) as f64 / f64::from(h.cwnd), 0.501)?;
        if packets < most {
            let relative = 0.501 / packets.floor() + 0.501 / f64::from(read.x) + 1e-6;
            near("X", f64::from(read.x) / x, 1.0, 2.0 * relative)?;
        }
    }

    /// A header carries the given values for any next protocol, also for protocol numbers
    /// that look like a version and format byte.
    #[test]
    fn headers_round_trip(
        (rtt, x, delta, xcp_ttl) in any::<(u32, u32, i32, u8)>(),
        feedback in any::<i32>(),
        protocol in prop_oneof![any::<u8>(), prop::sample::select(vec![0x11u8, 0x12, 0x31, 0x32])],
        way in any::<u8>(),
    ) {
        let f = xcp_forward { rtt, x, delta, xcp_ttl, ..xcp_forward::default() };
        for version in [Version::V2004, Version::V2007] {
            let h = header::build(version, protocol, &f, feedback, 1500);
            let (kind, head) = header::read(&h);
            prop_assert_eq!(kind, XCP_BOTH);
            prop_assert_eq!((head.version, head.format), (version as u8, 1));
            prop_assert_eq!((head.protocol, head.length), (protocol, 20));
            prop_assert_eq!(header::feedback(&h, head.version), feedback);
            let read = header::forward(&h, head.version, 1500);
            prop_assert_eq!((read.delta, read.xcp_ttl), (delta, xcp_ttl));
            if version == Version::V2007 {
                prop_assert_eq!(read, f);
            }

            let h = header::build_return(version, protocol, feedback, way);
            let (kind, head) = header::read(&h);
            prop_assert_eq!(kind, XCP_RETURN);
            prop_assert_eq!((head.version, head.format), (version as u8, 2));
            prop_assert_eq!((head.protocol, h[3]), (protocol, way));
            prop_assert_eq!(header::feedback(&h, head.version), feedback);
        }
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// A sender whose requests are granted in full reaches its window limit, up to the
    /// resolution of a request: 2^-12 packets, or 1 B/s.
    #[test]
    fn option_2005_sender_reaches_its_limit(
        wire_B in 576..=9_000u32,
        (start, limit) in (1..5_000u64, 1..5_000u64),
        rtt in ticks(100e-6, 10.0),
    ) {
        let limit_B = limit * u64::from(wire_B);
        let mut s = new_sender(wire_B, start.min(limit), limit_B, rtt);
        let (mut receiver, mut rest) = (xcp_receiver::default(), 0);
        let mut idle = 0;
        for _ in 0..40 * limit + 10_000 {
            let h = xcp_2005_request(&s, wire_B, &mut rest, false);
            xcp_receiver_add_2005(&mut receiver, h.feedback, 1);
            xcp_2005_feedback(&mut s, xcp_2005_value(xcp_receiver_take_2005(&mut receiver, 1)));
            xcp_sender_update(&mut s);
            idle = if h.feedback == 0 { idle + 1 } else { 0 };
            if idle > 10 {
                break;
            }
        }
        let window = s.window_B as f64 / f64::from(wire_B);
        let unsaid_B = s.window_B as f64 / PACKET + window * (rtt as f64 / TICK) + 1.0;
        near("window", s.window_B as f64, limit_B as f64, unsaid_B)?;
    }
}

/// The hop report gives the sender the number of XCP routers, whatever its TTL was, and the
/// number of other routers.
#[test]
fn hop_report_gives_the_number_of_xcp_and_other_routers() {
    for ttl in 1..=u8::MAX {
        for hops in 0..ttl.min(15) {
            let xcp_ttl = ttl - hops;
            for others in 0..xcp_ttl {
                let way = xcp_header_hop_report(xcp_ttl, xcp_ttl - others);
                assert_eq!(header::hops(way, ttl), Some(u32::from(hops)));
                assert_eq!(way & 15, others.min(15));
            }
            // a TTL that no router can produce: unknown, so counted as one
            for above in (xcp_ttl..=u8::MAX).skip(1) {
                assert_eq!(xcp_header_hop_report(xcp_ttl, above) & 15, 1);
            }
        }
        assert_eq!(header::hops(xcp_header_hop_report(0, ttl), ttl), None);
    }
}

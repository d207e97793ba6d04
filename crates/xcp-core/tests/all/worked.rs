// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Three control intervals computed by hand, compared with the model and with core/.
//! C = 1.25e6 B/s, interval and RTT 0.1 s, alpha 0.4, beta 0.226, gamma 0.1.

#![allow(non_snake_case)] // units in names

use xcp_core::*;

const RTT: u64 = 26_843_546; // 0.1 s

struct Worked {
    queue_B: u64,
    size_B: u64,
    /// Number of packets, X in ms, change that each packet gets in B/s.
    groups: &'static [(usize, f64, f64)],
    y: f64,
    f: f64,
    pos: f64,
    neg: f64,
    cp: f64,
    cn: f64,
}

#[track_caller]
fn near(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "{what}: {got}, not {want}");
}

fn check(w: &Worked) {
    let mut m = model::Model::new(model::Params::core(1.25e6), 0.0);
    let mut r = Router::new(
        xcp_router_params {
            capacity_Bps: 1_250_000,
            min_interval_ns: 1_000_000,
            without: PUBLISHED,
            ..xcp_router_params::default()
        },
        0,
    );
    m.queue_B = w.queue_B as f64;
    r.set_queue(w.queue_B);
    let packet = |x_ms: f64| model::Packet {
        n: 1.0,
        size_B: w.size_B as f64,
        x_s: x_ms / 1e3,
        rtt_s: 0.1,
        delta_Bps: 1e24,
    };
    let ticks = |x_ms: f64| (x_ms / 1e3 * 268_435_456.0).round() as u64;
    for &(count, x_ms, _) in w.groups {
        for _ in 0..count {
            m.arrival(w.size_B as f64);
            m.arrival_xcp(&packet(x_ms));
            r.arrival(w.size_B);
            r.arrival_xcp(1, w.size_B, ticks(x_ms), RTT);
        }
    }
    assert!(m.interval_end(0.1));
    assert!(r.interval_end(100_000_000));

    for (what, got, want) in [
        ("d", m.d_s, 0.1),
        ("y", m.y_Bps, w.y),
        ("F", m.f_Bps, w.f),
        ("pos", m.pos_Bps, w.pos),
        ("neg", m.neg_Bps, w.neg),
        ("Cp", m.cp, w.cp),
        ("Cn", m.cn, w.cn),
    ] {
        near(what, got, want, 1e-9 * want.abs().max(1.0));
    }
    near("core d", r.d_s(), 0.1, 1e-8);
    near("core y", r.y_Bps() as f64, w.y, 1.0);
    near("core F", r.f_Bps() as f64, w.f, 1.0);
    near("core pos", r.pos_Bps(), w.pos, 1e-3);
    near("core neg", r.neg_Bps(), w.neg, 1e-3);

    let (mut sum, mut want_sum) = (0i64, 0.0);
    for &(count, x_ms, change) in w.groups {
        for _ in 0..count {
            let g = m.departure(&packet(x_ms));
            assert!(g.rewritten);
            near("delta", g.delta_Bps, change, 1e-6);
            // core/ writes whole B/s and carries the rest; X is in whole ticks
            let carried = pool_Bps(r.pool().carry, r.pool().shift);
            let g = r.departure(1, w.size_B, ticks(x_ms), RTT, i32::MAX);
            let rest = pool_Bps(r.pool().carry, r.pool().shift) - carried;
            near(
                "core delta",
                f64::from(g) + rest,
                change,
                1e-5 * change.abs(),
            );
            sum += i64::from(g);
            want_sum += change;
        }
    }
    near("core sum", sum as f64, want_sum, 1.01);
}

#[test]
fn light_load_gets_positive_feedback() {
    check(&Worked {
        queue_B: 0,
        size_B: 1500,
        groups: &[(50, 2.0, 4000.0)],
        y: 750_000.0,
        f: 200_000.0,
        pos: 200_000.0,
        neg: 0.0,
        cp: 2.0e6,
        cn: 0.0,
    });
}

#[test]
fn overload_with_a_queue_gets_negative_feedback_and_shuffling() {
    check(&Worked {
        queue_B: 10_000,
        size_B: 1000,
        groups: &[(80, 1.25, -453.75), (50, 2.0, -126.0)],
        y: 1.3e6,
        f: -42_600.0,
        pos: 87_400.0,
        neg: 130_000.0,
        cp: 437_000.0,
        cn: 1.0,
    });
}

#[test]
fn full_load_without_a_queue_gets_only_shuffling() {
    check(&Worked {
        queue_B: 0,
        size_B: 1000,
        groups: &[(100, 1.0, -375.0), (25, 4.0, 1500.0)],
        y: 1.25e6,
        f: 0.0,
        pos: 125_000.0,
        neg: 125_000.0,
        cp: 625_000.0,
        cn: 1.0,
    });
}

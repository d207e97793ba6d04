// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! testdata/router-1.csv contains what ns-2.35's router computed, in double precision,
//! for 6,218 scripted packets. The model reproduces it to 1e-9; core/ follows
//! it to 1e-5, except that the wire format carries whole B/s. Its rows:
//!
//! - `P,capacity_Bps,queue_limit`
//! - `A,t,id,size_B,kind,rtt_s,x_s,delta_in_Bps,queue_packets_before`: arrival;
//!   kind 1 is a forward packet, 2 a return packet
//! - `D,t,id,delta_out_Bps,rewritten`: departure
//! - `E,t,next_interval_s,d_s,pos_Bps,neg_Bps,Cp,Cn,Q_B`: end of a control interval,
//!   with the values after it
//! - `Q,t,next_Tq_s,Q_B,backlog_B`: end of a queue estimate, with the values after it

#![allow(non_snake_case)] // units in names

use std::collections::HashMap;
use xcp_core::model::Model;
use xcp_core::*;

const VECTORS: &str = include_str!("../../testdata/router-1.csv");
const TICK: f64 = 268_435_456.0;

#[derive(Clone, Copy)]
struct Arrived {
    size_B: u64,
    forward: bool,
    rtt_s: f64,
    x_s: f64,
    delta_Bps: f64,
}

/// A router under test: it takes the events and checks the expected values.
trait Subject {
    fn arrival(&mut self, p: &Arrived);
    fn departure(&mut self, p: &Arrived, delta_Bps: f64, rewritten: bool);
    fn backlog(&mut self, backlog_B: u64);
    /// next_interval_s, d_s, pos, neg, Cp, Cn, Q
    fn interval_end(&mut self, t: f64, want: &[f64]);
    /// next Tq, Q, backlog
    fn queue_end(&mut self, t: f64, want: &[f64]);
}

/// Replays the rows; returns the number of D, E and Q rows.
fn play(subject: &mut impl Subject) -> [usize; 3] {
    let mut packets: HashMap<&str, Arrived> = HashMap::new();
    let (mut backlog_B, mut queued, mut idle_at) = (0u64, 0u64, f64::INFINITY);
    let mut seen = [0; 3];
    let capacity = capacity();
    for line in rows().skip(1) {
        let field: Vec<&str> = line.split(',').collect();
        let number = |i: usize| -> f64 { field[i].parse().expect("a number") };
        let t = number(1);
        if t >= idle_at && backlog_B == 0 {
            // the link asked for a packet and got none
            subject.backlog(0);
            idle_at = f64::INFINITY;
        }
        match field[0] {
            "A" => {
                let p = Arrived {
                    size_B: number(3) as u64,
                    forward: field[4] == "1",
                    rtt_s: number(5),
                    x_s: number(6),
                    delta_Bps: number(7),
                };
                assert_eq!(queued, number(8) as u64, "{line}");
                subject.arrival(&p);
                packets.insert(field[2], p);
                backlog_B += p.size_B;
                queued += 1;
            }
            "D" => {
                let p = packets[field[2]];
                subject.backlog(backlog_B);
                backlog_B -= p.size_B;
                queued -= 1;
                idle_at = t + p.size_B as f64 / capacity;
                subject.departure(&p, number(3), field[4] == "1");
                seen[0] += 1;
            }
            "E" => {
                let want: Vec<f64> = (2..9).map(number).collect();
                subject.interval_end(t, &want);
                seen[1] += 1;
            }
            "Q" => {
                let want: Vec<f64> = (2..5).map(number).collect();
                assert_eq!(backlog_B, want[2] as u64, "{line}");
                subject.queue_end(t, &want);
                seen[2] += 1;
            }
            other => panic!("row {other}"),
        }
    }
    seen
}

fn rows() -> impl Iterator<Item = &'static str> {
    VECTORS.lines().filter(|line| !line.starts_with('#'))
}

fn capacity() -> f64 {
    let first = rows().next().expect("not empty");
    first
        .split(',')
        .nth(1)
        .expect("P row")
        .parse()
        .expect("a number")
}

#[track_caller]
fn near(what: &str, got: f64, want: f64, relative: f64, absolute: f64) {
    assert!(
        (got - want).abs() <= relative * want.abs() + absolute,
        "{what}: {got:e}, not {want:e}"
    );
}

struct ModelSubject(Model);

fn packet(p: &Arrived) -> model::Packet {
    model::Packet {
        n: 1.0,
        size_B: p.size_B as f64,
        x_s: p.x_s,
        rtt_s: p.rtt_s,
        delta_Bps: p.delta_Bps,
    }
}

impl Subject for ModelSubject {
    fn arrival(&mut self, p: &Arrived) {
        self.0.arrival(p.size_B as f64);
        if p.forward {
            self.0.arrival_xcp(&packet(p));
        }
    }

    fn departure(&mut self, p: &Arrived, delta_Bps: f64, rewritten: bool) {
        let got = if p.forward {
            self.0.departure(&packet(p))
        } else {
            model::Grant {
                delta_Bps: p.delta_Bps,
                rewritten: false,
            }
        };
        near("delta", got.delta_Bps, delta_Bps, 1e-9, 0.0);
        assert_eq!(got.rewritten, rewritten);
    }

    fn backlog(&mut self, backlog_B: u64) {
        self.0.backlog(backlog_B as f64);
    }

    fn interval_end(&mut self, t: f64, want: &[f64]) {
        assert!(self.0.interval_end(t));
        let m = &self.0;
        let got = [
            m.interval_s,
            m.d_s,
            m.pos_Bps,
            m.neg_Bps,
            m.cp,
            m.cn,
            m.queue_B,
        ];
        let names = ["interval", "d", "pos", "neg", "Cp", "Cn", "Q"];
        for (what, (got, want)) in names.iter().zip(got.iter().zip(want)) {
            near(what, *got, *want, 1e-9, 0.0);
        }
    }

    fn queue_end(&mut self, _t: f64, want: &[f64]) {
        self.0.queue_end(want[2]);
        near("Tq", self.0.tq_s, want[0], 1e-9, 0.0);
        near("Q", self.0.queue_B, want[1], 1e-9, 0.0);
    }
}

#[test]
fn model_reproduces_ns2() {
    let mut subject = ModelSubject(Model::new(model::Params::ns2(capacity()), 0.0));
    assert_eq!(play(&mut subject), [6204, 41, 86]);
}

struct CoreSubject {
    router: Router,
    intervals: usize,
    /// The rounding of this interval's requests, B/s: the tolerance of the pools.
    rounded_Bps: f64,
}

fn ticks(s: f64) -> u64 {
    (s * TICK).round() as u64
}

fn ns(s: f64) -> u64 {
    (s * 1e9).round() as u64
}

impl Subject for CoreSubject {
    fn arrival(&mut self, p: &Arrived) {
        self.router.arrival(p.size_B);
        if p.forward && p.rtt_s > 0.0 {
            self.router
                .arrival_xcp(1, p.size_B, ticks(p.x_s), ticks(p.rtt_s));
        }
    }

    fn departure(&mut self, p: &Arrived, delta_Bps: f64, rewritten: bool) {
        if !p.forward {
            return;
        }
        let asked = p.delta_Bps.round() as i32; // saturates
        let before = *self.router.pool();
        let got = self
            .router
            .departure(1, p.size_B, ticks(p.x_s), ticks(p.rtt_s), asked);
        if !rewritten {
            self.rounded_Bps += (f64::from(asked) - p.delta_Bps).abs();
        }
        // The tolerance covers rounding to whole B/s, requests so close to the grant that
        // rounding decides, and, where a pool becomes empty, all earlier rounding.
        let pool = self.router.pool();
        let dry = before.pos + before.neg > 0 && (pool.pos == 0 || pool.neg == 0);
        let slack = 1.0 + if dry { self.rounded_Bps + 1.0 } else { 0.0 };
        near("core delta", f64::from(got), delta_Bps, 1e-5, slack);
    }

    fn backlog(&mut self, backlog_B: u64) {
        self.router.backlog(backlog_B);
    }

    fn interval_end(&mut self, t: f64, want: &[f64]) {
        assert!(self.router.interval_end(ns(t)));
        self.intervals += 1;
        self.rounded_Bps = 0.0;
        near(
            "core interval",
            self.router.interval_ns() as f64 / 1e9,
            want[0],
            1e-5,
            0.0,
        );
        near("core d", self.router.d_s(), want[1], 1e-5, 0.0);
        let total = 1e-5 * (want[2] + want[3]);
        near("core pos", self.router.pos_Bps(), want[2], 0.0, total);
        near("core neg", self.router.neg_Bps(), want[3], 0.0, total);
        near("core Q", self.router.queue_B() as f64, want[6], 1e-5, 0.0);
    }

    fn queue_end(&mut self, t: f64, want: &[f64]) {
        self.router.queue_end(want[2] as u64, ns(t));
        // core/ also counts the present backlog; ns-2 only saw the one before
        // the last packet was dequeued
        near(
            "core Q",
            self.router.queue_B() as f64,
            want[1].min(want[2]),
            1e-5,
            0.0,
        );
        self.router.set_queue(want[1] as u64);
        if self.intervals > 0 {
            // before the first interval, the two use different values of d
            near(
                "core Tq",
                self.router.tq_ns() as f64 / 1e9,
                want[0],
                1e-5,
                1e-9,
            );
        }
    }
}

#[test]
fn core_follows_ns2() {
    let params = xcp_router_params {
        capacity_Bps: capacity() as u64,
        min_interval_ns: 1_000_000,
        without: PUBLISHED,
        ..xcp_router_params::default()
    };
    let mut subject = CoreSubject {
        router: Router::new(params, 0),
        intervals: 0,
        rounded_Bps: 0.0,
    };
    assert_eq!(play(&mut subject), [6204, 41, 86]);
}

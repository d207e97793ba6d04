// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Properties of the shaper and of the two-queue scheduler, for any packets and rates.

#![allow(non_snake_case)] // units in names

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xcp_core::*;

/// One of two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// The queue whose weight is configured.
    A,
    /// The queue that has the remaining weight.
    B,
}

/// A scheduler that serves two queues by weight.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    /// What A may send before B, in 2^-16 B.
    deficit: i64,
}

impl Service {
    fn next(&self, a_has: bool, b_has: bool) -> Option<Queue> {
        match (xcp_service_a_next(self.deficit, a_has, b_has), b_has) {
            (true, _) => Some(Queue::A),
            (false, true) => Some(Queue::B),
            (false, false) => None,
        }
    }

    fn sent(&mut self, weight: u32, queue: Queue, other_has: bool, bytes: u64) {
        self.deficit = xcp_service_sent(self.deficit, weight, queue == Queue::A, other_has, bytes);
    }
}

const LATE_NS: u64 = 1_000_000;
const LOOK_NS: u64 = 20_000_000;
const ONE: u32 = 65_536;

/// Uses a fixed seed, so that a failure can be reproduced.
fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: 500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

fn rate() -> impl Strategy<Value = u64> {
    (1e3f64.ln()..=1.25e11f64.ln()).prop_map(|v| v.exp() as u64)
}

/// The size of a wire packet or of a GSO packet.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 40..=1_538u64, 1 => 1_539..=524_288u64]
}

proptest! {
    #![proptest_config(cases())]

    /// Timers that are late by at most LATE_NS cost no rate, and no packet is dequeued
    /// early: the clock is exactly the sum of the times of all packets.
    #[test]
    fn a_backlog_is_dequeued_exactly_at_the_rate(
        rate in rate(),
        packets in prop::collection::vec((size(), 0..=LATE_NS), 1..100),
    ) {
        let (mut shaper, mut free) = (xcp_shaper::default(), 0);
        let start = 5_000_000_000;
        let mut now: u64 = start;
        let mut sent_B = 0;
        xcp_shaper_take(&mut shaper, &mut free, now, 0, false);
        for (bytes, late) in packets {
            let due = start + (u128::from(sent_B) * 1_000_000_000 / u128::from(rate)) as u64;
            prop_assert_eq!(shaper.slot_ns, due);
            now = now.max(due) + late.min(LATE_NS - now.saturating_sub(due).min(LATE_NS));
            xcp_shaper_begin(&mut shaper, &mut free, rate, bytes);
            sent_B += bytes;
            xcp_shaper_take(&mut shaper, &mut free, now, 0, true);
        }
    }

    /// Lateness beyond the limit is lost, and an idle queue collects no credit.
    #[test]
    fn late_timers_cost_no_rate_up_to_a_limit(
        rate in rate(),
        bytes in size(),
        late in 0..10 * LATE_NS,
        waited: bool,
    ) {
        let (mut shaper, mut free) = (xcp_shaper::default(), 0);
        let start = 5_000_000_000;
        xcp_shaper_take(&mut shaper, &mut free, start, 0, false);
        xcp_shaper_begin(&mut shaper, &mut free, rate, bytes);
        let end = start + xcp_shaper_time(rate, bytes);
        let now = end + late;
        xcp_shaper_take(&mut shaper, &mut free, now, 0, waited);
        let wanted = if waited { end.max(now - LATE_NS) } else { now };
        prop_assert_eq!(shaper.slot_ns, wanted);
    }

    /// If the rate rises while a packet is being sent, the packet takes no longer than at
    /// the new rate. Polling changes nothing while the rate stays the same.
    #[test]
    fn a_higher_rate_applies_at_once(
        rate in rate(),
        bytes in size(),
        times in 2..1000u64,
        elapsed in 0.0..1.0f64,
    ) {
        let (mut shaper, mut free) = (xcp_shaper::default(), 0);
        let start = 5_000_000_000;
        xcp_shaper_take(&mut shaper, &mut free, start, 0, false);
        xcp_shaper_begin(&mut shaper, &mut free, rate, bytes);
        xcp_shaper_take(&mut shaper, &mut free, start, 0, true);
        let end = shaper.slot_ns;
        let now = start + ((end - start) as f64 * elapsed) as u64;
        prop_assert!(xcp_shaper_next_check(&mut shaper, &mut free, now, rate) <= end);
        prop_assert_eq!(shaper.slot_ns, end);
        let look = xcp_shaper_next_check(&mut shaper, &mut free, now, rate.saturating_mul(times));
        let new_end = now + xcp_shaper_time(rate.saturating_mul(times), bytes) + 1;
        let far = end > now + LOOK_NS;
        prop_assert_eq!(shaper.slot_ns, if far { end.min(new_end) } else { end });
        prop_assert_eq!(free, shaper.slot_ns);
        prop_assert!(look <= shaper.slot_ns && look <= now.max(end.min(now + LOOK_NS)));
    }

    /// Queues on one medium together never send more than it carries, whatever they paid
    /// for their slots. Queues that always have packets alternate.
    #[test]
    fn queues_of_one_medium_alternate(
        rate in rate(),
        count in 2..6usize,
        packets in prop::collection::vec((size(), size()), 50..200),
    ) {
        let start = 5_000_000_000u64;
        let mut free = 0;
        let mut now = start;
        let mut waiting: VecDeque<xcp_shaper> = (0..count).map(|_| {
            let mut shaper = xcp_shaper::default();
            xcp_shaper_take(&mut shaper, &mut free, start, xcp_shaper_time(rate, 1_000), false);
            shaper
        }).collect();
        let mut sent_B = 0u64;
        for (waits, bytes) in packets {
            let mut shaper = waiting.pop_front().unwrap();
            // the queue that took its slot first has the earliest slot
            prop_assert!(waiting.iter().all(|other| shaper.slot_ns <= other.slot_ns));
            prop_assert!(shaper.has_slot != 0);
            now = now.max(shaper.slot_ns);
            xcp_shaper_begin(&mut shaper, &mut free, rate, bytes);
            prop_assert!(!shaper.has_slot != 0);
            xcp_shaper_take(&mut shaper, &mut free, now, xcp_shaper_time(rate, waits), true);
            waiting.push_back(shaper);
            sent_B += bytes;
        }
        let carried = u128::from(sent_B) * 1_000_000_000 / u128::from(rate);
        let rounded = count as u128;
        prop_assert!(u128::from(free - start) + rounded >= carried);
    }

    /// Two queues that always have packets share the link by weight. Neither is ever ahead
    /// by more than one packet.
    #[test]
    fn queues_with_packets_share_by_weight(
        weight in 1..ONE,
        a in prop::collection::vec(size(), 1..20),
        b in prop::collection::vec(size(), 1..20),
    ) {
        let mut service = Service::default();
        let longest = *a.iter().chain(&b).max().unwrap() as f64;
        let (mut a, mut b) = (a.iter().cycle(), b.iter().cycle());
        let (mut a_B, mut b_B) = (0, 0);
        for _ in 0..500 {
            let queue = service.next(true, true).unwrap();
            let bytes = match queue {
                Queue::A => *a.next().unwrap(),
                Queue::B => *b.next().unwrap(),
            };
            match queue {
                Queue::A => a_B += bytes,
                Queue::B => b_B += bytes,
            }
            service.sent(weight, queue, true, bytes);
            let w = f64::from(weight) / f64::from(ONE);
            let ahead = a_B as f64 - (a_B + b_B) as f64 * w;
            prop_assert!(ahead.abs() <= longest, "{ahead}");
        }
    }

    /// A queue that sends no more than its weight allows waits for at most one packet of
    /// the other queue, which always has packets.
    #[test]
    fn a_queue_within_its_weight_waits_for_at_most_one_packet(
        weight in ONE / 100..ONE - ONE / 100,
        packets in prop::collection::vec((size(), 0..5_000u64), 1..100),
        b in prop::collection::vec(size(), 1..20),
    ) {
        let mut service = Service::default();
        let longest = *b.iter().max().unwrap() as f64;
        let mut b = b.iter().cycle();
        let w = f64::from(weight) / f64::from(ONE);
        // the link carries one byte per unit of time
        let mut arrivals: VecDeque<(f64, u64)> = VecDeque::new();
        let mut at = 0.0;
        for (bytes, pause) in packets {
            arrivals.push_back((at, bytes));
            at += bytes as f64 / w + pause as f64;
        }
        let mut now = 0.0;
        while let Some((arrived, bytes)) = arrivals.front().copied() {
            let queue = service.next(arrived <= now, true).unwrap();
            let length = match queue {
                Queue::A => {
                    prop_assert!(now - arrived <= longest + 1.0, "waited {}", now - arrived);
                    arrivals.pop_front();
                    service.sent(weight, queue, true, bytes);
                    bytes
                }
                Queue::B => {
                    let length = *b.next().unwrap();
                    service.sent(weight, queue, arrived <= now, length);
                    length
                }
            };
            now += length as f64;
        }
    }
}

/// Weight 0 means not configured and gives half of the link. The full weight gives all of it.
#[test]
fn weight_0_gives_half_and_full_weight_gives_all() {
    let mut service = Service::default();
    service.sent(0, Queue::A, true, 1_000);
    assert_eq!(service.deficit, -1_000 << 15);
    service.sent(0, Queue::B, true, 1_000);
    assert_eq!(service.deficit, 0);
    service.sent(ONE, Queue::A, true, 1_000);
    assert_eq!(service.next(true, true), Some(Queue::A));
    assert_eq!(service.next(false, true), Some(Queue::B));
    assert_eq!(service.next(false, false), None);
}

/// Unused capacity is not saved: if B sends alone for a long time, A gets no credit for it.
#[test]
fn unused_capacity_is_not_saved() {
    let mut service = Service::default();
    for _ in 0..100 {
        service.sent(0, Queue::B, false, 1_500);
    }
    assert_eq!(service.deficit, 1_500 << 15);
    for _ in 0..100 {
        service.sent(0, Queue::A, false, 500);
    }
    assert_eq!(service.deficit, -500 << 15);
}

/// A queue that is ahead pays later, also if it was empty in between.
#[test]
fn a_queue_that_is_ahead_pays_later() {
    let mut service = Service::default();
    service.sent(0, Queue::A, true, 1_500);
    service.sent(0, Queue::B, false, 300);
    assert_eq!(service.deficit, -1_200 << 15);
    let mut service = Service::default();
    service.sent(0, Queue::B, true, 1_500);
    service.sent(0, Queue::A, false, 300);
    assert_eq!(service.deficit, 1_200 << 15);
}

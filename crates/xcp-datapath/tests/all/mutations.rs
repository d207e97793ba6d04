// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs the router program on randomly damaged packets: it must agree with the reference
//! decoder about every packet, and change only what a router may change.

#![allow(non_snake_case)] // units in names: Bps are bytes per second

use crate::support::{edit, Router};
use crate::wire::decode::Wire;
use crate::wire::random::Random;
use crate::wire::{cases, decode};

const ROUNDS: usize = 100_000;
const SEED: u64 = 0x5843;
const CAPACITY_BPS: u64 = 1_250_000;
/// An Ethernet header: the shortest frame that BPF_PROG_TEST_RUN accepts.
const SHORTEST: usize = 14;
const FORMATS: [Wire; 5] = [
    Wire::Option,
    Wire::Option2005,
    Wire::Header,
    Wire::HeaderV2,
    Wire::Header2004,
];
/// The length of the headers, in bytes; most damage is done there.
const HEADERS: usize = 140;

/// Damages a frame in one to four random ways.
pub fn damage(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let headers = HEADERS.min(frame.len());
        match random.below(8) {
            0 => frame.truncate(SHORTEST + random.below(frame.len() - SHORTEST + 1)),
            1 => frame.extend(vec![0; random.below(8)]),
            2 | 3 => {
                let at = random.below(headers);
                frame[at] = random.next() as u8;
            }
            4 => {
                let at = random.below(frame.len());
                frame[at] ^= 1 << random.below(8);
            }
            _ => {
                let at = random.below(headers);
                frame[at] ^= 1 << random.below(8);
            }
        }
    }
}

#[test]
fn router_agrees_with_the_reference_decoder_on_damaged_packets() {
    let Some(router) = Router::new(CAPACITY_BPS) else {
        return;
    };
    let goldens: Vec<Vec<u8>> = cases::all().iter().map(cases::Case::bytes).collect();
    let mut random = Random(SEED);
    let (mut sent, mut forward, mut malformed, mut granted_Bps) = (0, 0, 0, 0);
    let mut forward_in = FORMATS.map(|wire| (wire, 0));
    for round in 0..ROUNDS {
        let mut frame = goldens[random.below(goldens.len())].clone();
        damage(&mut frame, &mut random);
        let seen = decode::decode(&frame);
        let Some(out) = router.try_send(&frame) else {
            continue;
        };
        sent += 1;
        if let Some(delta_Bps) = edit::check(&frame, &out) {
            forward += 1;
            for (wire, count) in &mut forward_in {
                *count += u32::from(seen.wire == Some(*wire));
            }
            granted_Bps += i64::from(delta_Bps);
        }
        malformed += u64::from(seen.malformed);

        let counted = router.counters();
        let context = || format!("round {round}: {seen:?}\n{frame:02x?}");
        assert_eq!(counted.xcp_packets, forward, "{}", context());
        assert_eq!(counted.malformed, malformed, "{}", context());
        assert_eq!(counted.granted_Bps, granted_Bps, "{}", context());
        assert_eq!(counted.xcp_packets + counted.other_packets, sent);
    }
    println!("{sent} packets: {malformed} malformed, forward headers: {forward_in:?}");
    assert!(
        malformed > 1000 && forward_in.iter().all(|f| f.1 > 1000),
        "the damaged packets cover all formats"
    );
}

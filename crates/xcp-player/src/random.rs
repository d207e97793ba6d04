// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Pseudo-random numbers from a seed.

/// SplitMix64: a few well-spread numbers from a seed.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number from 0 to 1, 1 excluded.
pub(crate) fn uniform(state: &mut u64) -> f64 {
    (split_mix(state) >> 11) as f64 / 53f64.exp2()
}

/// A size; the logarithms of sizes are uniformly distributed.
pub(crate) fn log_uniform(state: &mut u64, [least, most]: [u64; 2]) -> u64 {
    let [least, most] = [least, most].map(|bytes| bytes as f64);
    (least * (most / least).powf(uniform(state))) as u64
}

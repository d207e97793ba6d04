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

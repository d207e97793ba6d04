// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Pseudo-random numbers for generated traces and networks, the same on every machine.

/// SplitMix64 (Steele et al. 2014), with its seed.
pub(crate) struct Random(pub u64);

impl Random {
    /// Returns a number from 0 to below 1.
    pub fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.part()
    }
}

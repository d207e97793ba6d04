// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Random numbers from a seed.

use xcp_edge::message::Key;

/// The splitmix64 generator.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let a = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        b ^ b >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    pub fn key(&mut self) -> Key {
        let bytes: Vec<u8> = (0..4).flat_map(|_| self.next().to_be_bytes()).collect();
        Key::new(&bytes).unwrap()
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Waits for what must happen.

use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for what must happen. It only bounds a test that
/// fails: on a busy machine everything takes longer, but not that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds; false if it does not within [`PATIENCE`].
pub fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        // read first: a thread that did not run for long looks once more
        let over = Instant::now() >= end;
        if holds() {
            return true;
        }
        if over {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

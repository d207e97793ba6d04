// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Waits for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for a condition. The value only matters for failing tests, so it
/// leaves enough time for busy machines.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds; false if it does not within [`PATIENCE`].
pub fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        // the time is read first: a thread that did not run for long checks once more
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

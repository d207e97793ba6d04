// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Ctrl-C: noticed, so that everything is cleaned up on the way out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Error;

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Notices interrupts from now on.
pub fn watch() {
    notice(&[SIGINT, SIGTERM, SIGHUP]);
}

/// The same for a command that reads keys: when its terminal goes, it ends at once
/// (crossterm 0.29 reads on from a terminal that is gone, for ever).
pub fn watch_on_terminal() {
    notice(&[SIGINT, SIGTERM]);
}

fn notice(signals: &[i32]) {
    REQUESTED.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in signals {
            // a signal that cannot be watched ends the process as it always does
            let _ = signal_hook::flag::register(*signal, flag.clone());
        }
        flag
    });
}

/// Whether the user asked to stop.
pub fn requested() -> bool {
    REQUESTED
        .get()
        .is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// What an interrupted run ends with.
pub fn error() -> Error {
    Error::new("run", "interrupted", "everything was cleaned up")
}

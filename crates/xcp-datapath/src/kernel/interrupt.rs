// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Handles Ctrl-C and other signals, so that commands clean up before they end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Error;

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Starts to watch for interrupts.
pub fn watch() {
    notice(&[SIGINT, SIGTERM, SIGHUP]);
}

/// Like [`watch`], for a command that reads keys. It ends at once when its terminal is closed
/// (crossterm 0.29 would go on reading from a closed terminal forever).
pub fn watch_on_terminal() {
    notice(&[SIGINT, SIGTERM]);
}

fn notice(signals: &[i32]) {
    REQUESTED.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in signals {
            // if this fails, the signal ends the process as usual
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

/// The error of an interrupted run.
pub fn error() -> Error {
    Error::new("run", "interrupted", "everything was cleaned up")
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `--watch`: prints lines of text, or a line of JSON, at each refresh until Ctrl-C.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use xcp_datapath::interrupt;

use xcp_cli::failure::{Failure, INTERRUPTED};
use xcp_cli::out::Out;

/// Time between two refreshes (5 Hz).
const PERIOD: Duration = Duration::from_millis(200);
/// Number of lines between two heads.
const HEAD_EVERY: usize = 20;

/// Calls `read` 5 times a second and prints the result with `lines`, below the head.
pub fn watch<T: Serialize>(
    out: &Out,
    read: impl Fn() -> Result<T, Failure>,
    head: &str,
    lines: impl Fn(&T) -> Vec<String>,
) -> Result<ExitCode, Failure> {
    let mut value = read()?;
    interrupt::watch();
    let (mut next, mut since_head) = (Instant::now(), HEAD_EVERY);
    while !interrupt::requested() {
        let there = out.next(&value, |style| {
            let mut text = String::new();
            for line in lines(&value) {
                if since_head == HEAD_EVERY {
                    text += &format!("{}\n", style.bold(head));
                    since_head = 0;
                }
                text += &format!("{line}\n");
                since_head += 1;
            }
            text
        })?;
        if !there {
            return Ok(ExitCode::SUCCESS);
        }
        // after a pause, such as Ctrl-Z, missed refreshes are not made up for
        next = (next + PERIOD).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
        value = read()?;
    }
    Ok(ExitCode::from(INTERRUPTED))
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What repeats until Ctrl-C: a page that redraws itself on a terminal, else
//! one block or line of JSON after the other.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use xcp_datapath::interrupt;

use crate::screen::Screen;
use xcp_cli::failure::{tell, Failure, INTERRUPTED};
use xcp_cli::out::{Out, Style};

/// 5 Hz.
const PERIOD: Duration = Duration::from_millis(200);

/// Shows what `read` returns, as `text` describes it, 5 times a second.
pub fn watch<T: Serialize>(
    out: &Out,
    read: impl Fn() -> Result<T, Failure>,
    text: impl Fn(&T, &Style) -> String,
) -> Result<ExitCode, Failure> {
    let mut value = read()?;
    interrupt::watch();
    let screen = if out.is_json() { None } else { Screen::open()? };
    if screen.is_none() && !out.is_json() {
        tell("xcp: standard output is no terminal: one block for each update");
    }
    let mut next = Instant::now();
    while !interrupt::requested() {
        let there = match &screen {
            Some(screen) => screen.draw(&text(&value, &out.style()))?,
            None => out.next(&value, |style| format!("{}\n", text(&value, style)))?,
        };
        if !there {
            return Ok(ExitCode::SUCCESS);
        }
        next += PERIOD;
        thread::sleep(next.saturating_duration_since(Instant::now()));
        value = read()?;
    }
    Ok(ExitCode::from(INTERRUPTED))
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A page that is redrawn in place on a terminal, which is as it was before
//! when the page is dropped.

use std::io::{self, IsTerminal, Write};

use xcp_cli::failure::Failure;
use xcp_cli::out;

/// The alternate screen, without cursor and without wrapped lines; back.
const OPEN: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const CLOSE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

const USUAL_ROWS: usize = 24;

pub struct Screen(());

impl Screen {
    /// None where standard output is no terminal that can do it.
    pub fn open() -> Result<Option<Self>, Failure> {
        if !io::stdout().is_terminal() || out::is_dumb() {
            return Ok(None);
        }
        let screen = Self(());
        out::write(OPEN)?;
        Ok(Some(screen))
    }

    /// Shows this text instead; as much of it as there is room for. False once
    /// the reader has gone.
    pub fn draw(&self, text: &str) -> Result<bool, Failure> {
        out::write(page(text, rows()).as_bytes())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut stdout = io::stdout().lock();
        // the terminal may have gone
        let _ = stdout.write_all(CLOSE).and_then(|()| stdout.flush());
    }
}

/// Each line over the one before, and nothing of what was below.
fn page(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().take(rows).collect();
    format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n"))
}

/// The lines that the terminal has room for.
fn rows() -> usize {
    // SAFETY: the call fills the record that it is given.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        match libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) {
            0 => size.ws_row,
            _ => 0,
        }
    };
    match size {
        0 => USUAL_ROWS,
        rows => rows.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn lines_are_overwritten_in_place() {
        assert_eq!(
            page("eth0\n  queue\n", 24),
            "\x1b[Heth0\x1b[K\r\n  queue\x1b[K\x1b[J"
        );
    }

    #[test]
    fn a_small_terminal_gets_the_first_lines() {
        assert_eq!(page("a\nb\nc\n", 2), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
    }
}

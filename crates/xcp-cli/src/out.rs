// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Standard output: text or JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::terminal::wants_colour;

/// Writes results to standard output as text or JSON.
pub struct Out {
    json: bool,
    colour: bool,
}

impl Out {
    pub fn new(json: bool) -> Self {
        Self {
            json,
            colour: wants_colour(&io::stdout()),
        }
    }

    /// Prints `value` as JSON, or the text that `text` returns.
    pub fn print<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&Style) -> String,
    ) -> Result<(), Failure> {
        self.raw(&self.page(|| serde_json::to_string_pretty(value), text)?)
    }

    /// Prints one of many values: `value` as a line of JSON, or the text that `text`
    /// returns. Returns false once the reader has closed the pipe.
    pub fn next<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&Style) -> String,
    ) -> Result<bool, Failure> {
        write(&self.page(|| serde_json::to_string(value), text)?)
    }

    /// Returns JSON or text, which ends with a line feed.
    fn page(
        &self,
        json: impl FnOnce() -> serde_json::Result<String>,
        text: impl FnOnce(&Style) -> String,
    ) -> Result<Vec<u8>, Failure> {
        let mut page = match self.json {
            true => json().map_err(|e| Failure::output(&e.into()))?,
            false => text(&Style(self.colour)),
        };
        if !page.ends_with('\n') {
            page.push('\n');
        }
        Ok(page.into_bytes())
    }

    /// Prints bytes unchanged. A closed pipe is not a failure.
    pub fn raw(&self, bytes: &[u8]) -> Result<(), Failure> {
        write(bytes).map(|_| ())
    }

    pub fn is_json(&self) -> bool {
        self.json
    }
}

/// Writes to standard output. Returns false if the reader has closed the pipe.
pub fn write(bytes: &[u8]) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Failure::output(&e)),
    }
}

/// Adds colours to text, if they are enabled.
pub struct Style(pub bool);

impl Style {
    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }

    pub fn bad(&self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub fn weak(&self, text: &str) -> String {
        self.paint("33", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

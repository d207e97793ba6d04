// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Capabilities of a terminal.

use std::io::IsTerminal;

/// Whether a stream is a terminal that should show colours.
pub fn wants_colour(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    stream.is_terminal() && !set("NO_COLOR") && !is_dumb()
}

/// Whether the terminal cannot move its cursor.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}

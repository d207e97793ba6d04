// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Prints the progress of a lab run to standard error: on a terminal a line per
//! variant that is updated in place, otherwise a plain line now and then.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

use xcp_lab::Progress as News;

use xcp_cli::terminal;

const BAR_WIDTH: usize = 30;
/// At most so many lines are updated, because the cursor cannot move above the screen.
const LINES: usize = 16;
/// A plain line is printed at each multiple.
const PLAIN_STEP_PERCENT: u32 = 25;

/// A line that is wider than the terminal is cut, since the cursor moves up by lines.
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";

/// Prints the progress of each variant.
pub struct Progress {
    live: bool,
    /// There are many variants: outside of a terminal, only their ends are printed.
    many: bool,
    variants: Mutex<Vec<Variant>>,
}

struct Variant {
    name: String,
    percent: u32,
}

impl Variant {
    fn line(&self) -> String {
        let full = self.percent as usize * BAR_WIDTH / 100;
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR_WIDTH - full));
        let line = format!("{:>3} %  [{bar}]  {}", self.percent, self.name);
        format!("{WRAP_OFF}{line}{WRAP_ON}")
    }
}

/// The variants whose lines are updated in place: those that are not complete.
fn live(variants: &[Variant]) -> impl Iterator<Item = &Variant> {
    variants.iter().filter(|v| v.percent < 100).take(LINES)
}

impl Progress {
    pub fn new() -> Self {
        Self {
            live: io::stderr().is_terminal() && !terminal::is_dumb(),
            many: false,
            variants: Mutex::new(Vec::new()),
        }
    }

    /// Progress of many variants.
    pub fn of_many() -> Self {
        Self {
            many: true,
            ..Self::new()
        }
    }

    /// Prints news; may be called from any thread.
    pub fn on_progress(&self, news: News<'_>) {
        // the list stays usable if another thread panics
        let mut variants = self.variants.lock().unwrap_or_else(|e| e.into_inner());
        let text = match news {
            News::Step(step) if self.live => in_place_of(live(&variants).count(), step, &variants),
            News::Step(step) => format!("{step}\n"),
            News::Kept { names, of } => kept(names, of),
            News::Variant { name, done } => {
                let drawn = live(&variants).count();
                let Some(before) = update(&mut variants, name, done) else {
                    return;
                };
                let complete = variants.iter().find(|v| v.name == name && v.percent == 100);
                match (self.live, self.many, complete) {
                    (true, false, Some(variant)) => in_place_of(drawn, &variant.line(), &variants),
                    (true, ..) => redraw(drawn, &variants),
                    (false, true, _) => String::new(),
                    (false, false, _) => plain(name, before, (done * 100.0) as u32),
                }
            }
            News::Ended { name, said } => {
                let drawn = live(&variants).count();
                variants.retain(|v| v.name != name);
                if self.live {
                    in_place_of(drawn, said, &variants)
                } else {
                    format!("{said}\n")
                }
            }
        };
        let _ = io::stderr().write_all(text.as_bytes()); // write errors are ignored
    }
}

/// Updates a variant. Returns its previous percentage if that has changed.
fn update(variants: &mut Vec<Variant>, name: &str, done: f64) -> Option<Option<u32>> {
    let percent = (done.clamp(0.0, 1.0) * 100.0) as u32;
    match variants.iter_mut().find(|v| v.name == name) {
        Some(variant) if variant.percent == percent => None,
        Some(variant) => Some(Some(std::mem::replace(&mut variant.percent, percent))),
        None => {
            variants.push(Variant {
                name: name.to_owned(),
                percent,
            });
            Some(None)
        }
    }
}

/// Draws the lines of all variants over the `drawn` previous lines.
fn redraw(drawn: usize, variants: &[Variant]) -> String {
    let up = if drawn > 0 {
        format!("\x1b[{drawn}A")
    } else {
        String::new()
    };
    let lines: String = live(variants)
        .map(|v| format!("\r\x1b[K{}\n", v.line()))
        .collect();
    up + &lines + "\x1b[J"
}

/// Replaces the `drawn` previous lines by `line` and, below it, the lines of all
/// variants.
fn in_place_of(drawn: usize, line: &str, variants: &[Variant]) -> String {
    if drawn == 0 {
        return format!("{line}\n");
    }
    format!("\x1b[{drawn}A\r\x1b[K{line}\n{}", redraw(0, variants))
}

/// Lists the variants that are not run again. Called before the others run.
fn kept(names: &[&str], of: usize) -> String {
    let lines: String = names
        .iter()
        .map(|name| format!("{name}: cached\n"))
        .collect();
    let count = names.len();
    format!("{lines}xcp: {count} of {of} variants cached (--fresh runs them again)\n")
}

fn plain(name: &str, before: Option<u32>, percent: u32) -> String {
    let step = |percent: u32| percent / PLAIN_STEP_PERCENT;
    match before {
        Some(before) if step(before) >= step(percent) => String::new(),
        _ => format!("{name}: {} %\n", step(percent) * PLAIN_STEP_PERCENT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_are_printed_at_every_quarter() {
        let mut variants = Vec::new();
        let mut text = String::new();
        for percent in 0..=100 {
            let done = f64::from(percent) / 100.0 + 1e-9;
            if let Some(before) = update(&mut variants, "XCP", done) {
                text += &plain("XCP", before, (done * 100.0) as u32);
            }
        }
        assert_eq!(
            text,
            "XCP: 0 %\nXCP: 25 %\nXCP: 50 %\nXCP: 75 %\nXCP: 100 %\n"
        );
    }

    #[test]
    fn cached_variants_are_listed() {
        assert_eq!(
            kept(&["xcp", "bbr"], 3),
            "xcp: cached\nbbr: cached\n\
             xcp: 2 of 3 variants cached (--fresh runs them again)\n"
        );
    }

    #[test]
    fn same_percentage_is_not_printed_again() {
        let mut variants = Vec::new();
        assert_eq!(update(&mut variants, "XCP", 0.5), Some(None));
        assert_eq!(update(&mut variants, "XCP", 0.501), None);
        assert_eq!(update(&mut variants, "XCP", 1.5), Some(Some(50)));
    }

    #[test]
    fn complete_variants_are_not_drawn_again() {
        let named = |n: u32| Variant {
            name: format!("loss-{n}"),
            percent: if n < 50 { 100 } else { n },
        };
        let variants: Vec<Variant> = (0..90).map(named).collect();
        let text = redraw(live(&variants).count(), &variants);
        assert!(text.starts_with("\x1b[16A"), "{text:?}");
        assert_eq!(text.matches("loss-").count(), LINES);
        assert!(
            !text.contains("100 %") && text.contains("loss-50"),
            "{text:?}"
        );
    }

    #[test]
    fn live_lines_are_updated_in_place() {
        let variants = [("XCP", 50), ("CUBIC", 0)].map(|(name, percent)| Variant {
            name: name.into(),
            percent,
        });
        let ended = in_place_of(3, "BBR: ok", &variants);
        assert!(ended.starts_with("\x1b[3A\r\x1b[KBBR: ok\n\r\x1b[K\x1b[?7l 50 %  [#"));
        assert!(ended.ends_with("\n\x1b[J") && ended.lines().count() == 4);
        let text = redraw(1, &variants);
        let bar = "###############...............";
        let first = format!("\x1b[1A\r\x1b[K\x1b[?7l 50 %  [{bar}]  XCP\x1b[?7h\n");
        assert!(text.starts_with(&first), "{text:?}");
        assert_eq!(text.matches('\n').count(), 2);
    }
}

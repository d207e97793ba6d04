// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp top`: shows links and connections live on a terminal.

mod connections;
mod links;
mod table;
mod view;

use std::fs;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use xcp_cli::cli::Top;
use xcp_cli::failure::{Failure, INTERRUPTED};
use xcp_cli::out::Out;
use xcp_cli::terminal;
use xcp_datapath::meter::Meter;
use xcp_datapath::{host, interrupt};

use connections::{ConnectionRow, Counts};
use links::LinkRow;
use table::Table;

/// Time between two refreshes of the list of routers and of the devices' queues.
const ROUTERS_EVERY: Duration = Duration::from_secs(1);
/// How often a wait for a key looks for signals.
const SIGNAL_CHECK: Duration = Duration::from_millis(200);
/// After a refresh of the list of connections, the next one waits this many times as long
/// as it took, so that reading a long list uses at most 0.5 % of a processor.
const CONNECTIONS_REST: u32 = 200;
/// The longest wait, for a refresh that something else has delayed.
const CONNECTIONS_REST_MOST: Duration = Duration::from_secs(60);

pub fn act(asked: &Top, out: &Out) -> Result<ExitCode, Failure> {
    let is_terminal = io::stdout().is_terminal() && !terminal::is_dumb();
    if out.is_json() || !is_terminal {
        return Err(Failure::new(
            "xcp top",
            "standard output is not a terminal that can show it",
            "for programs, use xcp metrics, xcp status --json or xcp router show --watch --json",
        ));
    }
    let mut meter = Meter::new("xcp top")?;
    let mut live = Live::new(asked.filter.as_deref().unwrap_or_default());
    live.refresh(&mut meter, Duration::ZERO)?;
    interrupt::watch_on_terminal();
    let mut terminal = ratatui::try_init().map_err(|e| Failure::output(&e))?;
    let done = run(&mut live, &mut meter, asked.interval, &mut terminal);
    let restored = ratatui::try_restore().map_err(|e| Failure::output(&e));
    done.and_then(|status| restored.map(|()| status))
}

/// Shows the tables until the user quits.
fn run(
    live: &mut Live,
    meter: &mut Meter,
    interval: Duration,
    terminal: &mut DefaultTerminal,
) -> Result<ExitCode, Failure> {
    let colour = terminal::wants_colour(&io::stdout());
    let (begun, mut next) = (Instant::now(), interval);
    loop {
        let draw = |frame: &mut Frame| view::draw(live, colour, frame.area(), frame.buffer_mut());
        let drawn = terminal.draw(draw).map_err(|e| Failure::output(&e))?;
        let width = drawn.area.width;
        let rest = next.saturating_sub(begun.elapsed());
        if interrupt::requested() {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        match key(rest) {
            Ok(Some(key)) => match live.press(key, width) {
                Pressed::Quit => return Ok(ExitCode::SUCCESS),
                Pressed::Interrupt => return Ok(ExitCode::from(INTERRUPTED)),
                Pressed::Stay => continue,
            },
            Ok(None) => {}
            Err(e) => return Err(Failure::io("terminal", &e)),
        }
        let now = begun.elapsed();
        if now >= next {
            next = now + interval;
            if !live.is_paused {
                live.problem = live.refresh(meter, now).err().map(|e| format!("xcp: {e}"));
            }
        }
    }
}

/// Waits for a key. Returns None after another event, a signal or a timeout.
fn key(most: Duration) -> io::Result<Option<KeyEvent>> {
    let begun = Instant::now();
    // crossterm 0.29 goes on waiting after a signal
    while !event::poll(SIGNAL_CHECK.min(most.saturating_sub(begun.elapsed())))? {
        if interrupt::requested() || begun.elapsed() >= most {
            return Ok(None);
        }
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind == KeyEventKind::Press => Some(key),
        _ => None,
    })
}

/// The table that receives the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Focus {
    Links,
    Connections,
}

/// What to do after a key.
#[derive(Debug, PartialEq, Eq)]
enum Pressed {
    Stay,
    Quit,
    Interrupt,
}

/// The state of the screen.
struct Live {
    host_name: String,
    links: Table<LinkRow>,
    connections: Table<ConnectionRow>,
    /// Counted once per list, not once per refresh.
    counts: Counts,
    is_host_on: bool,
    focus: Focus,
    /// Keys edit the filter.
    typing: bool,
    is_paused: bool,
    /// Why the last refresh failed.
    problem: Option<String>,
    routers_at: Option<Duration>,
    connections_at: Option<Duration>,
    /// Time until the list of connections is read again.
    connections_rest: Duration,
}

impl Live {
    fn new(filter: &str) -> Self {
        let host_name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut links = Table::new("LINKS", links::COLUMNS, "USE", links::searched);
        let mut connections = Table::new(
            "CONNECTIONS",
            connections::COLUMNS,
            "RATE",
            connections::searched,
        );
        filter.clone_into(&mut links.filter);
        filter.clone_into(&mut connections.filter);
        Self {
            host_name: host_name.trim().to_owned(),
            links,
            connections,
            counts: Counts::default(),
            is_host_on: false,
            focus: Focus::Connections,
            typing: false,
            is_paused: false,
            problem: None,
            routers_at: None,
            connections_at: None,
            connections_rest: Duration::ZERO,
        }
    }

    /// Reads the values that are due at this time since start.
    fn refresh(&mut self, meter: &mut Meter, now: Duration) -> Result<(), Failure> {
        let since = |then: Option<Duration>| then.map(|then| now.saturating_sub(then));
        if since(self.routers_at).is_none_or(|age| age >= ROUTERS_EVERY) {
            meter.refresh()?;
            self.routers_at = Some(now);
        }
        links::update(&mut self.links.rows, now, &meter.links()?);
        self.links.arrange();
        self.is_host_on = host::is_on();
        let age = since(self.connections_at);
        if age.is_none_or(|age| age >= self.connections_rest) {
            let start = Instant::now();
            let list = xcp_datapath::connections::of_xcp()?;
            connections::update(&mut self.connections.rows, age.unwrap_or_default(), list);
            self.counts = Counts::of(&self.connections.rows);
            self.connections.arrange();
            self.connections_at = Some(now);
            self.connections_rest = (start.elapsed() * CONNECTIONS_REST).min(CONNECTIONS_REST_MOST);
        }
        Ok(())
    }

    /// Handles a key on a terminal of this width.
    fn press(&mut self, key: KeyEvent, width: u16) -> Pressed {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Pressed::Interrupt;
        }
        if self.typing {
            self.typing = match self.focus {
                Focus::Links => type_in(&mut self.links, key.code),
                Focus::Connections => type_in(&mut self.connections, key.code),
            };
            return Pressed::Stay;
        }
        match key.code {
            KeyCode::Char('q') => return Pressed::Quit,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = match self.focus {
                    Focus::Links => Focus::Connections,
                    Focus::Connections => Focus::Links,
                };
            }
            code => match self.focus {
                Focus::Links => move_in(&mut self.links, code, width),
                Focus::Connections => move_in(&mut self.connections, code, width),
            },
        }
        Pressed::Stay
    }

    /// The filter of the table that receives the keys.
    fn filter(&self) -> &str {
        match self.focus {
            Focus::Links => &self.links.filter,
            Focus::Connections => &self.connections.filter,
        }
    }
}

/// Handles a key while the filter is edited. Returns false after the last key.
fn type_in<T>(table: &mut Table<T>, code: KeyCode) -> bool {
    match code {
        KeyCode::Char(c) => table.filter.push(c),
        KeyCode::Backspace => drop(table.filter.pop()),
        KeyCode::Esc => table.filter.clear(),
        _ => {}
    }
    table.arrange();
    !matches!(code, KeyCode::Esc | KeyCode::Enter)
}

/// Handles the keys that are the same in all tables.
fn move_in<T>(table: &mut Table<T>, code: KeyCode, width: u16) {
    const PAGE: isize = 10;
    match code {
        KeyCode::Char('s') => table.sort_by_next(width),
        KeyCode::Char('r') => table.reverse(),
        KeyCode::Down | KeyCode::Char('j') => table.scroll(1),
        KeyCode::Up | KeyCode::Char('k') => table.scroll(-1),
        KeyCode::PageDown => table.scroll(PAGE),
        KeyCode::PageUp => table.scroll(-PAGE),
        KeyCode::Home => table.scroll(isize::MIN),
        KeyCode::End => table.scroll(isize::MAX),
        KeyCode::Esc => {
            table.filter.clear();
            table.arrange();
        }
        _ => {}
    }
}

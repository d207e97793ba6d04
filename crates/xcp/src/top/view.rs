// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Draws the screen: a line about the host, two tables and a line about keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use xcp_datapath::connections::State;

use super::connections::ConnectionRow;
use super::links::LinkRow;
use super::table::Table;
use super::{Focus, Live};

/// Rows for the title and the head of a table.
const TITLE_ROWS: u16 = 2;
const KEYS: &str = "q quit  Tab other table  s sort  r reverse  / filter  arrows scroll  p pause";

/// Draws the screen, with or without colours.
pub fn draw(live: &Live, colour: bool, area: Rect, buffer: &mut Buffer) {
    let [top, links, connections, bottom] = rows(live, area);
    line(buffer, top, &summary(live), bold());
    let style = |wanted: Option<Color>| {
        let wanted = wanted.filter(|_| colour);
        wanted.map_or(Style::new(), |wanted| Style::new().fg(wanted))
    };
    let is_focused = live.focus == Focus::Links;
    table(buffer, links, &live.links, is_focused, |row| {
        style(link_colour(row))
    });
    if live.links.rows.is_empty() {
        let text = "No XCP router here. Add one: xcp router add DEV --capacity 10mbit";
        line(buffer, below_title(links), text, Style::new());
    }
    let is_focused = live.focus == Focus::Connections;
    table(buffer, connections, &live.connections, is_focused, |row| {
        style(connection_colour(row))
    });
    if !live.is_host_on {
        let text = "XCP is off for this host's sockets. Switch it on: xcp host on";
        line(buffer, below_title(connections), text, Style::new());
    }
    line(buffer, bottom, &last_line(live), Style::new());
}

/// Divides the screen. Links get the rows that they need, but at most half of the screen
/// if connections need the other half.
fn rows(live: &Live, area: Rect) -> [Rect; 4] {
    let inner = area.height.saturating_sub(2);
    let needed = |count: usize| u16::try_from(count.max(1)).unwrap_or(u16::MAX);
    let links = needed(live.links.count()).saturating_add(TITLE_ROWS);
    let others = needed(live.connections.count()).saturating_add(TITLE_ROWS);
    let most = inner.saturating_sub(others).max(inner / 2);
    let links = links.min(most);
    let at = |y: u16, height: u16| {
        Rect {
            y: area.y + y,
            height,
            ..area
        }
        .intersection(area)
    };
    [
        at(0, 1),
        at(1, links),
        at(1 + links, inner.saturating_sub(links)),
        at(area.height.saturating_sub(1), 1),
    ]
}

fn below_title(area: Rect) -> Rect {
    let rows = TITLE_ROWS.min(area.height);
    Rect {
        y: area.y + rows,
        height: area.height - rows,
        ..area
    }
}

fn line(buffer: &mut Buffer, area: Rect, text: &str, style: Style) {
    if area.height > 0 {
        buffer.set_stringn(area.x, area.y, text, area.width.into(), style);
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn summary(live: &Live) -> String {
    format!(
        "xcp top  {}  links {}  connections {}: {} XCP, {} probing, {} fell back",
        live.host_name,
        live.links.rows.len(),
        live.connections.rows.len(),
        live.counts.xcp,
        live.counts.probing,
        live.counts.fell_back,
    )
}

/// The filter being typed, an error, or the list of keys.
fn last_line(live: &Live) -> String {
    match (&live.typing, &live.problem) {
        (true, _) => format!("filter: {}_  (Enter: apply, Esc: clear)", live.filter()),
        (false, Some(problem)) => problem.clone(),
        (false, None) if live.is_paused => format!("PAUSED  {KEYS}"),
        (false, None) => KEYS.into(),
    }
}

fn link_colour(row: &LinkRow) -> Option<Color> {
    (row.drops_lately).then_some(Color::Red)
}

fn connection_colour(row: &ConnectionRow) -> Option<Color> {
    match row.connection.state {
        State::Xcp => Some(Color::Green),
        State::Probing => Some(Color::Yellow),
        State::FellBack => Some(Color::Red),
        State::NotXcp => None,
    }
}

/// Draws a title, a head and as many rows as fit.
fn table<T>(
    buffer: &mut Buffer,
    area: Rect,
    table: &Table<T>,
    is_focused: bool,
    style: impl Fn(&T) -> Style,
) {
    let title = match table.filter.as_str() {
        "" => format!("{} ({})", table.title, table.count()),
        filter => format!(
            "{} ({} of {} with '{filter}')",
            table.title,
            table.count(),
            table.rows.len()
        ),
    };
    let title_style = match is_focused {
        true => bold().add_modifier(Modifier::REVERSED),
        false => bold(),
    };
    line(
        buffer,
        area,
        &format!("{title:<width$}", width = usize::from(area.width)),
        title_style,
    );
    let columns = table.layout(area.width);
    let sorted_by = table.columns[table.sorted_by].head;
    let head = columns.iter().map(|(column, width)| {
        let arrow = match (column.head == sorted_by, table.reversed) {
            (false, _) => "",
            (true, false) => "▼",
            (true, true) => "▲",
        };
        cell(&format!("{}{arrow}", column.head), *width, column.number)
    });
    let second = Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(1),
        ..area
    };
    line(buffer, second, &head.collect::<Vec<_>>().join(" "), bold());
    let body = below_title(area);
    let page = table.page(body.height.into());
    for (y, row) in (body.y..body.bottom()).zip(page) {
        let cells = columns.iter().map(|(column, width)| {
            cell(&(column.text)(row, (*width).into()), *width, column.number)
        });
        let text = cells.collect::<Vec<_>>().join(" ");
        line(
            buffer,
            Rect {
                y,
                height: 1,
                ..body
            },
            &text,
            style(row),
        );
    }
}

/// Formats the text of a cell, right- or left-aligned. Long text ends with an ellipsis.
fn cell(text: &str, width: u16, is_number: bool) -> String {
    let width = usize::from(width);
    if text.chars().count() > width {
        let kept: String = text.chars().take(width.saturating_sub(1)).collect();
        return kept + "…";
    }
    match is_number {
        true => format!("{text:>width$}"),
        false => format!("{text:<width$}"),
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The table of connections that use XCP or fell back.

use std::collections::HashMap;
use std::time::Duration;

use xcp_cli::units;
use xcp_datapath::connections::{Connection, State};

use super::table::{Column, Key};

/// A connection and its rate.
pub struct ConnectionRow {
    pub connection: Connection,
    /// Rate of both directions since the previous list; None if it was not in that list.
    pub rate_bps: Option<f64>,
}

/// The number of connections in each state.
#[derive(Default)]
pub struct Counts {
    pub xcp: usize,
    pub probing: usize,
    pub fell_back: usize,
}

impl Counts {
    pub fn of(rows: &[ConnectionRow]) -> Self {
        let in_state = |state: State| {
            rows.iter()
                .filter(|row| row.connection.state == state)
                .count()
        };
        Self {
            xcp: in_state(State::Xcp),
            probing: in_state(State::Probing),
            fell_back: in_state(State::FellBack),
        }
    }
}

fn bytes(connection: &Connection) -> u64 {
    connection.tcp.sent_bytes + connection.tcp.received_bytes
}

/// Replaces the rows by a new list. `elapsed` is the time since the previous list.
pub fn update(rows: &mut Vec<ConnectionRow>, elapsed: Duration, list: Vec<Connection>) {
    let ends = |c: &Connection| (c.local, c.peer);
    let before: HashMap<_, u64> = rows
        .drain(..)
        .map(|row| (ends(&row.connection), bytes(&row.connection)))
        .collect();
    rows.extend(list.into_iter().map(|connection| {
        let then = before.get(&ends(&connection));
        let since = then.and_then(|then| bytes(&connection).checked_sub(*then));
        let rate = |bytes| bytes as f64 * 8.0 / elapsed.as_secs_f64().max(1e-3);
        ConnectionRow {
            rate_bps: since.map(rate),
            connection,
        }
    }));
}

/// The state of a connection, with the reason if it fell back.
pub fn state(row: &ConnectionRow) -> String {
    let c = &row.connection;
    let why = || c.fallback.map(|why| format!(": {why}")).unwrap_or_default();
    match c.state {
        State::Xcp if c.distrusts_path => "XCP, reacts to losses".into(),
        State::Xcp => "XCP".into(),
        State::Probing => format!("probing{}", why()),
        State::FellBack => format!("fell back{}", why()),
        State::NotXcp => "not XCP".into(),
    }
}

/// The text that the filter searches.
pub fn searched(row: &ConnectionRow) -> String {
    let c = &row.connection;
    format!("{} {} {} {}", c.peer, c.local, c.control, state(row))
}

/// Formats an RTT in 8 characters.
fn rtt(us: u32) -> String {
    match us {
        0..1_000_000 => units::milliseconds(f64::from(us) / 1e3),
        _ => format!("{:.2} s", f64::from(us) / 1e6),
    }
}

fn hops(row: &ConnectionRow) -> String {
    let c = &row.connection;
    let known = |n: Option<u8>| n.map_or_else(|| "-".into(), |n| n.to_string());
    format!("{}+{}", known(c.xcp_hops), known(c.other_hops))
}

const TEXT: Column<ConnectionRow> = Column {
    head: "",
    width: 21,
    grows: 1,
    wide: false,
    number: false,
    text: |_, _| String::new(),
    key: None,
};

const NUMBER: Column<ConnectionRow> = Column {
    width: 10,
    grows: 0,
    number: true,
    ..TEXT
};

pub const COLUMNS: &[Column<ConnectionRow>] = &[
    Column {
        head: "PEER",
        text: |row, _| row.connection.peer.to_string(),
        key: Some(|row| Key::Text(row.connection.peer.to_string())),
        ..TEXT
    },
    Column {
        head: "LOCAL",
        wide: true,
        text: |row, _| row.connection.local.to_string(),
        ..TEXT
    },
    Column {
        head: "RATE",
        text: |row, _| row.rate_bps.map_or_else(|| "-".into(), units::rate),
        key: Some(|row| Key::Number(row.rate_bps.unwrap_or(-1.0))),
        ..NUMBER
    },
    Column {
        head: "RTT",
        width: 8,
        text: |row, _| rtt(row.connection.tcp.rtt_us),
        key: Some(|row| Key::Number(row.connection.tcp.rtt_us.into())),
        ..NUMBER
    },
    Column {
        head: "CWND",
        wide: true,
        text: |row, _| units::bytes(row.connection.tcp.cwnd_bytes),
        key: Some(|row| Key::Number(row.connection.tcp.cwnd_bytes as f64)),
        ..NUMBER
    },
    Column {
        head: "FORMAT",
        width: 11,
        grows: 0,
        wide: true,
        text: |row, _| row.connection.wire.map_or("-", |wire| wire.name()).into(),
        ..TEXT
    },
    Column {
        head: "XCP+OTHER HOPS",
        width: 14,
        wide: true,
        text: |row, _| hops(row),
        ..NUMBER
    },
    Column {
        head: "CONTROL",
        grows: 0,
        width: 8,
        wide: true,
        text: |row, _| row.connection.control.clone(),
        ..TEXT
    },
    Column {
        head: "STATE",
        width: 38,
        text: |row, _| state(row),
        key: Some(|row| Key::Text(state(row))),
        ..TEXT
    },
];

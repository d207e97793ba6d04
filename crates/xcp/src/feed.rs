// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp router set` and `xcp router feed`: set a new capacity, and read capacity hints
//! from a modem.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use xcp_datapath::capacity_hint::{self, Feed};
use xcp_datapath::interrupt;
use xcp_datapath::router::Change;
use xcp_datapath::Error;

use xcp_cli::capacity::Rate;
use xcp_cli::cli::{RouterFeed, RouterSet};
use xcp_cli::failure::{print_error, Failure, INTERRUPTED};
use xcp_cli::out::Out;
use xcp_cli::units;

/// The longest time until an interrupt is noticed.
const PATIENCE: Duration = Duration::from_millis(200);
/// Maximum length of a line with a rate.
const LINE_BYTES: u64 = 64;
/// Lines that are read before the value is used, if they arrive faster than they are parsed.
const BATCH: usize = 1024;
/// Bad lines that are printed; further ones are only counted.
const PRINTED_BAD: u64 = 5;

pub fn set(asked: &RouterSet, out: &Out) -> Result<(), Failure> {
    let bytes_per_s = asked.capacity.bytes_per_s();
    let change = capacity_hint::set_capacity(&asked.device, bytes_per_s)?;
    let value = json!({
        "device": asked.device,
        "change": change,
        "capacity_bps": (bytes_per_s > 0).then_some(bytes_per_s * 8),
    });
    out.print(&value, |_| {
        let capacity = match bytes_per_s {
            0 => "the measured capacity".to_owned(),
            _ => units::rate(bytes_per_s as f64 * 8.0),
        };
        let already = match change {
            Change::Unchanged => " already",
            _ => "",
        };
        format!("{}: hands out {capacity}{already}", asked.device)
    })
}

/// Totals of the lines read.
#[derive(Default, Serialize)]
struct Seen {
    device: String,
    values: u64,
    bad_lines: u64,
}

pub fn feed(asked: &RouterFeed, out: &Out) -> Result<ExitCode, Failure> {
    let feed = Feed::open(&asked.device)?;
    interrupt::watch();
    let (sender, lines) = mpsc::sync_channel(1024);
    let from = asked.from.clone();
    // opening a pipe blocks until it has a writer
    thread::spawn(move || match open(from.as_deref()) {
        Ok(mut source) => send_lines(&mut source, &sender),
        Err(e) => drop(sender.send(Err(e))),
    });
    let mut seen = Seen {
        device: asked.device.clone(),
        ..Seen::default()
    };
    let ended = loop {
        if interrupt::requested() {
            break ExitCode::from(INTERRUPTED);
        }
        let first = match lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break ExitCode::SUCCESS,
        };
        let mut newest = None;
        // of all lines that have arrived, only the newest value is used
        for line in std::iter::once(first).chain(lines.try_iter().take(BATCH)) {
            let line = line.map_err(|e| io_failure(asked.from.as_deref(), &e))?;
            match rate(&line) {
                Ok(Some(bytes_per_s)) => {
                    seen.values += 1;
                    newest = Some(bytes_per_s);
                }
                Ok(None) => {}
                Err(reason) => {
                    seen.bad_lines += 1;
                    if seen.bad_lines <= PRINTED_BAD {
                        print_error(&format!("xcp: {line:?}: {reason}"));
                    }
                }
            }
        }
        if let Some(bytes_per_s) = newest {
            feed.set_hint(bytes_per_s, asked.expires)?;
        }
    };
    drop(feed);
    out.print(&seen, |_| {
        format!(
            "{}: valid lines: {}, invalid lines: {}",
            seen.device, seen.values, seen.bad_lines
        )
    })?;
    Ok(ended)
}

fn io_failure(from: Option<&Path>, e: &io::Error) -> Error {
    let name = from.map_or("standard input".into(), |path| path.display().to_string());
    Error::io(name, e)
}

/// Opens a pipe or file, connects to a Unix socket, or uses standard input.
fn open(from: Option<&Path>) -> io::Result<Box<dyn BufRead>> {
    let Some(path) = from else {
        return Ok(Box::new(BufReader::new(io::stdin())));
    };
    if path.metadata()?.file_type().is_socket() {
        return Ok(Box::new(BufReader::new(UnixStream::connect(path)?)));
    }
    Ok(Box::new(BufReader::new(File::open(path)?)))
}

/// Sends each line until the source or the receiver ends. Lines that are too long are
/// cut, and end with dots, so that they are not taken for rates.
fn send_lines(source: &mut dyn BufRead, lines: &SyncSender<io::Result<String>>) {
    loop {
        let mut line = Vec::new();
        let read = source.take(LINE_BYTES).read_until(b'\n', &mut line);
        let is_cut = line.len() as u64 == LINE_BYTES && !line.ends_with(b"\n");
        let skipped = match is_cut {
            true => {
                line.extend(b"...");
                skip_line(source)
            }
            false => Ok(()),
        };
        let text = read
            .and(skipped)
            .map(|()| String::from_utf8_lossy(&line).trim().to_owned());
        let ends = line.is_empty();
        if ends && text.is_ok() {
            return;
        }
        let failed = text.is_err();
        if lines.send(text).is_err() || failed {
            return;
        }
    }
}

fn skip_line(source: &mut dyn BufRead) -> io::Result<()> {
    loop {
        let mut part = Vec::new();
        let read = source.take(4096).read_until(b'\n', &mut part)?;
        if read == 0 || part.last() == Some(&b'\n') {
            return Ok(());
        }
    }
}

/// Parses a line, bits per second or a number with a unit, to bytes per second. Blank
/// lines and comments give none.
fn rate(line: &str) -> Result<Option<u64>, String> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if let Ok(bps) = line.parse::<f64>() {
        return match bps.is_finite() && bps >= 0.0 {
            true => Ok(Some((bps / 8.0) as u64)),
            false => Err("not a rate".into()),
        };
    }
    Rate::or_zero(line)
        .map(Some)
        .map_err(|bad| format!("{}: {}", bad.reason, bad.remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_rates_comments_or_blank() {
        for (line, want) in [
            ("8000", Ok(Some(1000))),
            ("1.6e6", Ok(Some(200_000))),
            ("0", Ok(Some(0))),
            ("10mbit", Ok(Some(1_250_000))),
            ("0mbit", Ok(Some(0))),
            ("", Ok(None)),
            ("# the modem has started", Ok(None)),
            (
                "10\u{fffd}",
                Err("not a number with a unit: give the link's rate, e.g. 10mbit".into()),
            ),
        ] {
            assert_eq!(rate(line), want, "{line}");
        }
        for line in ["-1", "nan", "inf", "10mbyte", "ten", "10 20"] {
            assert!(rate(line).is_err(), "{line}");
        }
    }

    #[test]
    fn long_lines_and_invalid_utf8_are_accepted() {
        let mut source = vec![b'9'; 100_000];
        source.extend(b"\n\xff\xfe\n1mbit\n\n2mbit");
        let (sender, lines) = mpsc::sync_channel(10);
        send_lines(&mut &source[..], &sender);
        drop(sender);
        let lines: Vec<String> = lines.into_iter().flatten().collect();
        assert_eq!(lines[0].len(), LINE_BYTES as usize + 3);
        assert!(rate(&lines[0]).is_err(), "a part of a number");
        assert_eq!(lines[2..], ["1mbit", "", "2mbit"]);
    }
}

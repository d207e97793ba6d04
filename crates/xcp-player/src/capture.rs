// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Captures packets at points of a topology, with one clock for all. A point is
//! a direction of a link: `r-d` is the traffic that r sends to d, as it leaves
//! r's device.

use std::thread;
use std::time::Duration;

use crate::checksum;
use crate::pcap::{Pcap, RECORD_HEADER_BYTES, SNAP_BYTES};
use crate::tap::{Tap, SETTLE};
use crate::topology::Topology;
use crate::{Error, Result};

/// The limit of all files of a run together: they are kept in memory.
pub const ROOM_BYTES: usize = 1 << 29;

/// The capture of one point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    pub point: String,
    pub packets: u64,
    /// Packets that were not recorded for lack of space.
    pub missing: u64,
    /// The pcap file's content.
    pub file: Vec<u8>,
}

/// All captures of a run.
pub struct Captures {
    points: Vec<Point>,
    /// Time 0 of the files, on the real-time clock.
    begin: Duration,
}

struct Point {
    name: String,
    tap: Tap,
    file: Pcap,
    packets: u64,
    missing: u64,
    room: usize,
}

impl Captures {
    /// Opens a tap at each point. Packets sent before [`Captures::begin`] are
    /// not kept.
    pub fn open(stage: &Topology, points: &[String]) -> Result<Self> {
        let open = |name: &String| {
            let node = name.split('-').next().unwrap_or_default();
            Ok(Point {
                name: name.clone(),
                tap: stage.within(node, || Tap::open(name))??,
                file: Pcap::new(),
                packets: 0,
                missing: 0,
                room: ROOM_BYTES / points.len(),
            })
        };
        Ok(Self {
            points: points.iter().map(open).collect::<Result<_>>()?,
            begin: Duration::MAX,
        })
    }

    /// Sets the beginning of the run to now.
    pub fn begin(&mut self) -> Result<()> {
        self.begin = now()?;
        Ok(())
    }

    /// Reads all captured packets from the rings.
    pub fn collect(&mut self) {
        self.collect_until(Duration::MAX);
    }

    fn collect_until(&mut self, end: Duration) {
        for point in &mut self.points {
            point.collect(self.begin, end);
        }
    }

    /// Sets the end of the run to now, and returns the files.
    pub fn finish(mut self) -> Result<Vec<Recording>> {
        if self.points.is_empty() {
            return Ok(Vec::new());
        }
        let end = now()?;
        thread::sleep(SETTLE);
        self.collect_until(end);
        self.points.into_iter().map(Point::finish).collect()
    }
}

impl Point {
    fn collect(&mut self, begin: Duration, end: Duration) {
        self.tap.read(|frame| {
            let Some(time) = frame.time.checked_sub(begin).filter(|_| frame.time <= end) else {
                return;
            };
            if self.file.bytes().len() + RECORD_HEADER_BYTES + SNAP_BYTES > self.room {
                self.missing += 1;
                return;
            }
            if frame.no_checksum {
                checksum::complete(frame.bytes);
            }
            self.packets += 1;
            self.file.add(time, frame.bytes, frame.length);
        });
    }

    fn finish(self) -> Result<Recording> {
        Ok(Recording {
            missing: self.missing + self.tap.lost()?,
            point: self.name,
            packets: self.packets,
            file: self.file.into_bytes(),
        })
    }
}

/// The time on the clock that the taps use.
fn now() -> Result<Duration> {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|e| Error::new("clock", e.to_string(), "set the system clock"))
}

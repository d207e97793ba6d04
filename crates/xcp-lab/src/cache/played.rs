// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The values that are kept: the result of a variant, as a line of JSON and its pcap files,
//! or all answers of a machine to another task.

use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use xcp_checks::Answer;

use super::entry::{CacheValue, Label};
use crate::capture::Recording;
use crate::guest::Request;
use crate::machine::Played;
use crate::result::{Series, VariantResult};

impl Label {
    /// The label of a variant's result.
    pub fn of_play(request: &Request, played: &Played) -> Self {
        Self {
            experiment: request.experiment.name.clone(),
            variant: played.result.name.clone(),
            seed: request.seed,
            kernel: played.kernel.clone(),
        }
    }
}

/// A recording without its file, which follows later.
#[derive(Serialize, Deserialize)]
struct Recorded {
    point: String,
    packets: u64,
    missing: u64,
    file_bytes: u64,
}

impl CacheValue for Played {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let recorded = |r: &Recording| Recorded {
            point: r.point.clone(),
            packets: r.packets,
            missing: r.missing,
            file_bytes: r.file.len() as u64,
        };
        let recordings: Vec<Recorded> = self.recordings.iter().map(recorded).collect();
        let line = (&self.kernel, &self.result, &self.series, recordings);
        serde_json::to_writer(&mut *to, &line)?;
        to.write_all(b"\n")?;
        for recording in &self.recordings {
            to.write_all(&recording.file)?;
        }
        Ok(())
    }

    fn read(from: &mut dyn BufRead) -> Option<Self> {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line).ok()?;
        let (kernel, result, series, recorded): (String, VariantResult, Series, Vec<Recorded>) =
            serde_json::from_slice(&line).ok()?;
        let recordings = recorded.into_iter().map(|r| {
            let mut file = Vec::new();
            let mut piece = Read::take(&mut *from, r.file_bytes);
            let read = piece.read_to_end(&mut file).ok()?;
            (read as u64 == r.file_bytes).then_some(Recording {
                point: r.point,
                packets: r.packets,
                missing: r.missing,
                file,
            })
        });
        Some(Self {
            kernel,
            result,
            series,
            recordings: recordings.collect::<Option<_>>()?,
        })
    }
}

impl CacheValue for Vec<Answer> {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(to, self)?)
    }

    fn read(from: &mut dyn BufRead) -> Option<Self> {
        serde_json::from_reader(from).ok()
    }
}

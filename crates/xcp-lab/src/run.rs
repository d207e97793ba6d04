// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs an experiment by name.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::experiment::{Experiment, Link};
use crate::machine::Played;
use crate::report::{self, ReportInput};
use crate::result::{CaptureFile, RunResult, Series};

use crate::options::{Options, Tell};
use crate::{catalog, csv, interrupt, machines, metrics, native, Error, Result};

/// An experiment that `xcp lab list` shows.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    pub name: String,
    /// Paper and figure.
    pub source: String,
    pub about: String,
    /// Number of checks that are marked as known gaps.
    pub known_gaps: usize,
}

impl From<Experiment> for Entry {
    fn from(experiment: Experiment) -> Self {
        Self {
            known_gaps: experiment.known_gaps(),
            name: experiment.name,
            source: experiment.source,
            about: experiment.about,
        }
    }
}

/// The result of a run and the path of its report.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub result: RunResult,
    /// The HTML report.
    pub report: PathBuf,
}

/// Lists all built-in experiments.
pub fn list() -> Vec<Entry> {
    catalog::all().flatten().map(Entry::from).collect()
}

/// Runs an experiment with all its variants, and writes its report.
///
/// # Errors
/// The experiment is unknown, a file is invalid, there is no kernel, the machine does not
/// boot, or an interrupt: see [`interrupted`].
pub fn run(options: &Options, progress: Tell) -> Result<Outcome> {
    interrupt::watch();
    let mut experiment = catalog::find(&options.experiment)?;
    if !options.variants.is_empty() {
        experiment = experiment.keep(&options.variants)?;
    }
    let points = experiment.choose_points(&options.points)?;
    if let Some(wire) = options.wire {
        experiment = experiment.with_wire(wire);
    }
    if let Some(ip) = options.ip {
        experiment = experiment.over(ip);
    }
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| Path::new("report").join(&experiment.name));
    require_writable(&out, "--out DIR")?;
    let mut played = if options.native {
        native::play_all(&experiment, options.seed, &points, progress)?
    } else {
        machines::play_all(&experiment, options, &points, progress)?
    };
    for variant in &mut played {
        variant.result.checks = metrics::checks(&experiment, &variant.result, &variant.kernel);
    }
    let result = RunResult {
        experiment: experiment.name.clone(),
        seed: options.seed,
        wire: options.wire,
        ip: options.ip,
        kernel: played.first().map(|p| p.kernel.clone()).unwrap_or_default(),
        ok: played.iter().all(|p| p.result.checks.iter().all(|c| c.ok)),
        variants: played.iter().map(|p| p.result.clone()).collect(),
        varies: experiment.bottleneck_link().is_some_and(Link::varies),
        captures: write_captures(&played, &out)?,
    };
    let series = played
        .into_iter()
        .map(|p| (p.result.name, p.series))
        .collect();
    let report = write(&experiment, &result, series, &out)?;
    Ok(Outcome { result, report })
}

/// Whether the user interrupted the last run.
pub fn interrupted() -> bool {
    interrupt::requested()
}

/// Fails before the run if the folder cannot be created or written. `option` is the option that
/// names it.
pub(crate) fn require_writable(folder: &Path, option: &str) -> Result<()> {
    let absolute = std::path::absolute(folder).map_err(|e| Error::io(option, &e))?;
    let there = absolute.ancestors().find(|p| p.exists()).unwrap_or(folder);
    let describe = |reason: String| {
        let name = there.display().to_string();
        Error::new(name, reason, format!("give a writable folder: {option}"))
    };
    if !there.is_dir() {
        return Err(describe("not a folder".into()));
    }
    let path = CString::new(there.as_os_str().as_bytes()).map_err(|e| describe(e.to_string()))?;
    // SAFETY: a C string that lives through the call.
    if unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) } != 0 {
        return Err(describe(std::io::Error::last_os_error().to_string()));
    }
    Ok(())
}

/// Writes the pcap files, one per variant and point.
fn write_captures(played: &[Played], out: &Path) -> Result<Vec<CaptureFile>> {
    let describe = |path: &Path, e: &std::io::Error| Error::io(path.display().to_string(), e);
    fs::create_dir_all(out).map_err(|e| describe(out, &e))?;
    let mut files = Vec::new();
    for variant in played {
        for recording in &variant.recordings {
            let file = format!("{}-{}.pcap", variant.result.name, recording.point);
            let path = out.join(&file);
            fs::write(&path, &recording.file).map_err(|e| describe(&path, &e))?;
            files.push(CaptureFile {
                file,
                packets: recording.packets,
                missing: recording.missing,
            });
        }
    }
    Ok(files)
}

fn write(
    experiment: &Experiment,
    result: &RunResult,
    series: Vec<(String, Series)>,
    out: &Path,
) -> Result<PathBuf> {
    let describe = |path: &Path, e: &std::io::Error| Error::io(path.display().to_string(), e);
    for (variant, samples) in experiment.variants.iter().zip(&series) {
        let (name, samples) = samples;
        let flows = experiment.of_variant(variant).flows;
        let flows: Vec<String> = flows.into_iter().map(|f| f.name).collect();
        let path = out.join(format!("{name}.csv"));
        csv::write_csv(&path, &flows, samples).map_err(|e| describe(&path, &e))?;
        if variant.queue.has_router() {
            let path = out.join(format!("{name}-router.csv"));
            csv::write_router(&path, &samples.router).map_err(|e| describe(&path, &e))?;
        }
    }
    let page = report::render(&ReportInput {
        about: &experiment.about,
        source: &experiment.source,
        capacity_bps: experiment.capacity_bps(),
        result,
        series: &series,
    })?;
    let path = out.join("report.html");
    fs::write(&path, page).map_err(|e| describe(&path, &e))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_counts_known_gaps() {
        let mut experiment = catalog::find("zh-validation").expect("is built in");
        for check in &mut experiment.checks {
            check.known_gap = None;
        }
        assert_eq!(Entry::from(experiment.clone()).known_gaps, 0);
        for check in &mut experiment.checks[..2] {
            check.known_gap = Some("why".into());
        }
        assert_eq!(Entry::from(experiment).known_gaps, 2);
    }
}

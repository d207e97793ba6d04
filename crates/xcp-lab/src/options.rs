// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Options of a run, and reports of its progress.

use std::path::PathBuf;

use xcp_datapath::Wire;

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A name from the list, or the path of a TOML file.
    pub experiment: String,
    pub seed: u64,
    /// Only these variants; all if empty.
    pub variants: Vec<String>,
    /// Wire format of all XCP flows; overrides that of the experiment.
    pub wire: Option<Wire>,
    /// Internet protocol version; overrides that of the experiment.
    pub ip: Option<u8>,
    /// `6.12`, `6.18`, `newest`, or the path of a kernel image, or IMAGE:MODULES with the
    /// folder of its modules.
    pub kernel: Option<String>,
    /// Run in namespaces of this host, in real time, instead of the virtual machine.
    pub native: bool,
    /// Run variants again that have a result from an earlier run.
    pub fresh: bool,
    /// Capture points, such as `r-d`: the packets that node r sends to node d.
    pub points: Vec<String>,
    /// Folder for the report, the CSV and pcap files; `report/NAME` if absent.
    pub out: Option<PathBuf>,
}

/// News about a run, for the user.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// A step before the run, such as fetching a kernel.
    Step(&'a str),
    /// These variants, out of `of`, have results from an earlier run.
    Kept { names: &'a [&'a str], of: usize },
    /// The progress of a variant, 0 to 1.
    Variant { name: &'a str, done: f64 },
    /// A variant has ended; `said` is the line to print.
    Ended { name: &'a str, said: &'a str },
}

pub(crate) type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! How to run an experiment, and how its progress is reported.

use std::path::PathBuf;

use xcp_datapath::Wire;

/// How to run an experiment.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A name from the list, or the path of a TOML file.
    pub experiment: String,
    pub seed: u64,
    /// Only these variants; all if empty.
    pub variants: Vec<String>,
    /// Wire format of all XCP flows, in place of the experiment's.
    pub wire: Option<Wire>,
    /// Internet protocol version, in place of the experiment's.
    pub ip: Option<u8>,
    /// `6.12`, `6.18`, `newest`, or the path of a kernel image (its modules beside it).
    pub kernel: Option<String>,
    /// In namespaces of this host, in real time, rather than in the machine.
    pub native: bool,
    /// Runs also the variants whose results are kept from an earlier run.
    pub fresh: bool,
    /// Where to capture packets, such as `r-d`: what r sends towards d.
    pub points: Vec<String>,
    /// Folder for the report, the CSV and pcap files; `report/NAME` if absent.
    pub out: Option<PathBuf>,
}

/// What is going on, for people.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// A step before the run, such as fetching a kernel.
    Step(&'a str),
    /// These variants, of so many, are kept from an earlier run.
    Kept { names: &'a [&'a str], of: usize },
    /// A variant has got this far, 0 to 1.
    Variant { name: &'a str, done: f64 },
    /// A variant has ended; what to say of it.
    Ended { name: &'a str, said: &'a str },
}

pub(crate) type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

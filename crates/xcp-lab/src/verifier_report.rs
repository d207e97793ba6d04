// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Compares the verifier's instruction counts of the programs with their limits.

use serde::Serialize;
use xcp_checks::check::Check;
use xcp_checks::programs::{Loaded, PROCESSORS};

use crate::limits::Limits;
use crate::Result;

/// A loaded program and its limit.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    pub name: String,
    /// Instructions that the verifier processed.
    pub verified: u32,
    /// The limit in `bpf/limits.toml`.
    pub most: u64,
    pub ok: bool,
}

/// The result of the check of all programs.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub kernel: String,
    /// Processors of the machine.
    pub processors: u32,
    /// The numbers of processors that each program was loaded for.
    pub loaded_for: String,
    pub ok: bool,
    pub programs: Vec<Program>,
    pub checks: Vec<Check>,
}

impl Report {
    pub(crate) fn new(
        kernel: String,
        processors: u32,
        loaded: Vec<Loaded>,
        checks: Vec<Check>,
    ) -> Result<Self> {
        let limits = Limits::load()?;
        let programs = loaded
            .into_iter()
            .map(|p| {
                let most = limits.of_program(&p.name);
                Program {
                    ok: u64::from(p.verified) <= most,
                    name: p.name,
                    verified: p.verified,
                    most,
                }
            })
            .collect::<Vec<_>>();
        Ok(Self {
            kernel,
            processors,
            loaded_for: PROCESSORS.map(|n| n.to_string()).join(", "),
            ok: programs.iter().all(|p| p.ok) && checks.iter().all(|c| c.ok),
            programs,
            checks,
        })
    }
}

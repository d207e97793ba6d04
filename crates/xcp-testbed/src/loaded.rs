// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Lists all BPF objects in the system.

use std::collections::BTreeSet;

use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use xcp_datapath::internal::require_root;
use xcp_datapath::Result;

/// Returns the number of BPF programs and maps in the whole system.
pub fn loaded() -> Result<(usize, usize)> {
    let ids = loaded_ids()?;
    Ok((ids.programs.len(), ids.maps.len()))
}

/// The BPF objects of the whole system. The kernel never reuses an id.
#[derive(Debug)]
pub struct Loaded {
    /// The ids of programs.
    pub programs: BTreeSet<u32>,
    /// The ids of maps.
    pub maps: BTreeSet<u32>,
}

/// Returns the BPF objects that are loaded now.
pub fn loaded_ids() -> Result<Loaded> {
    require_root("counting BPF objects")?;
    Ok(Loaded {
        programs: ProgInfoIter::default().map(|p| p.id).collect(),
        maps: MapInfoIter::default().map(|m| m.id).collect(),
    })
}

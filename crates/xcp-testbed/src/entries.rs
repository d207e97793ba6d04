// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Deletes entries of the maps of running programs, as the kernel does when memory is short.

use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapHandle};
use xcp_datapath::Error;

/// Deletes all entries of all maps with this name. Returns their number.
///
/// # Errors
/// This process is not root, or an entry cannot be deleted.
pub fn delete_entries(map: &str) -> Result<usize, Error> {
    let failed = |e: libbpf_rs::Error| Error::new(map, e.to_string(), "run it as root");
    let mut deleted = 0;
    let all = MapInfoIter::default();
    for found in all.filter(|info| info.name.to_str() == Some(map)) {
        let handle = MapHandle::from_map_id(found.id).map_err(failed)?;
        for key in handle.keys().collect::<Vec<_>>() {
            handle.delete(&key).map_err(failed)?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

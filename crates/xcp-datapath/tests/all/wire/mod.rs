// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Builds, decodes and checks whole packets without core/.

#![allow(non_snake_case)] // units in field names: Bps are bytes per second

pub mod cases;
pub mod checksum;
pub mod decode;
pub mod files;
pub mod frame;
pub mod header;
pub mod option;
pub mod option_2005;
pub mod random;

/// The folder of the golden packets.
pub fn folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire")
}

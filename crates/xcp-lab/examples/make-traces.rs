// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Writes the synthetic traces of radio and satellite links to `traces/`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use flate2::write::GzEncoder;
use flate2::Compression;

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    fs::create_dir_all(&folder)?;
    for made in xcp_lab::made_traces() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(made.text.as_bytes())?;
        fs::write(folder.join(format!("{}.gz", made.name)), packed.finish()?)?;
    }
    Ok(())
}

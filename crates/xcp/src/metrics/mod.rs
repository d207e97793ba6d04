// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp metrics`: exports counters and gauges in OpenMetrics format.

mod families;
mod http;
mod journal;
mod serve;

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use tempfile::NamedTempFile;
use xcp_cli::cli::Metrics;
use xcp_cli::failure::Failure;
use xcp_cli::out::Out;
use xcp_datapath::meter::Meter;

use families::Snapshot;

/// Readable by all users, such as that of node_exporter.
const FILE_MODE: u32 = 0o644;

pub fn act(asked: &Metrics, out: &Out) -> Result<ExitCode, Failure> {
    let mut meter = Meter::new("xcp metrics")?;
    if let Some(path) = &asked.textfile {
        let text = Snapshot::read(&mut meter)?.text();
        replace(path, &text).map_err(|e| Failure::io(path.display().to_string(), &e))?;
        if asked.listen.is_none() {
            let value = json!({ "file": path, "bytes": text.len() });
            out.print(&value, |_| {
                format!("{}: {} bytes", path.display(), text.len())
            })?;
        }
    }
    match asked.listen {
        Some(address) => serve::serve(address, &mut meter),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Replaces a file atomically. Devices, pipes and links, such as /dev/stdout, are written to.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        return std::fs::write(path, text);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.as_file()
        .set_permissions(Permissions::from_mode(FILE_MODE))?;
    file.persist(path)?;
    Ok(())
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! At most one gateway runs in a network namespace: its routing rule, its router and TCP Fast
//! Open's setting exist once, and `xcp gateway off` removes them.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use libc::{LOCK_EX, LOCK_NB};
use xcp_cli::failure::Failure;
use xcp_cli::file_lock;

/// The lock of this network namespace. Its file is removed when it is dropped.
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// # Errors
    /// A gateway runs here already, or the file cannot be opened.
    pub fn take() -> std::result::Result<Self, Failure> {
        let path = format!("/run/xcp/gateway-{}.lock", xcp_datapath::netns_inode()?);
        Self::at(PathBuf::from(&path)).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => Failure::new(
                "gateway",
                "one is running in this network namespace already",
                "end it: xcp gateway off, with its --socket if that is not the default",
            ),
            _ => Failure::io(path, &e),
        })
    }

    fn at(path: PathBuf) -> Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut how = OpenOptions::new();
        how.create(true).append(true).mode(0o600);
        loop {
            let file = how.open(&path)?;
            file_lock::lock(&file, LOCK_EX | LOCK_NB)?;
            // its previous owner may have removed the file meanwhile
            if fs::metadata(&path).is_ok_and(|there| Some(there.ino()) == inode(&file)) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

fn inode(file: &File) -> Option<u64> {
    file.metadata().ok().map(|about| about.ino())
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // an empty file that is left is locked again
    }
}

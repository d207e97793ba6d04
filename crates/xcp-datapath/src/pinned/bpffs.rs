// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Programs, links and maps are pinned in /sys/fs/bpf/xcp, so that they outlive the command.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::mounts::{self, BPFFS};
use crate::{error, Error, Result};

const ROOT: &str = "/sys/fs/bpf/xcp";
/// An empty folder which notes that XCP mounted the file system itself.
const MOUNTED_BY_US: &str = "/sys/fs/bpf/xcp/mounted";

/// Whether a command reads or changes pinned objects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Change,
}

/// Fails unless this process is root and sees the system's bpffs. Every command that uses
/// pinned objects calls this first.
pub fn require(what: &str, access: Access) -> Result<()> {
    error::require_root(what)?;
    mounts::require_bpffs(what)?;
    if access == Access::Change {
        mounts::require_writable_bpffs()?;
    }
    Ok(())
}

/// The folder of one part, such as `host`.
pub fn dir(part: &str) -> PathBuf {
    Path::new(ROOT).join(part)
}

/// Creates the folder of one part, and mounts the file system if necessary.
pub fn create(part: &str) -> Result<PathBuf> {
    let ours = !mounts::has_bpffs();
    if ours {
        mount()?;
    }
    let path = dir(part);
    make(&path)?;
    if ours {
        make(Path::new(MOUNTED_BY_US))?;
    }
    Ok(path)
}

fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|e| Error::io(path.display().to_string(), &e))
}

/// Replaces the folder of one part by an empty one.
pub fn clear(part: &str) -> Result<()> {
    let path = dir(part);
    let _ = fs::remove_dir_all(&path);
    make(&path)
}

/// Removes a part with everything pinned in it, and parent folders that become empty.
pub fn remove(part: &str) -> Result<()> {
    let path = dir(part);
    match fs::remove_dir_all(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io(path.display().to_string(), &e))
        }
        _ => {}
    }
    for folder in ["router", "cloud", "gateway"] {
        let _ = fs::remove_dir(dir(folder));
    }
    let only_the_mark = fs::read_dir(ROOT).is_ok_and(|entries| {
        entries
            .flatten()
            .all(|e| e.path() == Path::new(MOUNTED_BY_US))
    });
    if only_the_mark {
        let ours = fs::remove_dir(MOUNTED_BY_US).is_ok();
        let _ = fs::remove_dir(ROOT);
        if ours {
            unmount();
        }
    }
    Ok(())
}

fn mount() -> Result<()> {
    make(Path::new(BPFFS))?;
    // SAFETY: all arguments are C strings that live through the call.
    let rc = unsafe {
        libc::mount(
            c"bpf".as_ptr(),
            c"/sys/fs/bpf".as_ptr(),
            c"bpf".as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    if rc != 0 {
        return Err(Error::last_os(format!("mounting {BPFFS}")));
    }
    Ok(())
}

fn unmount() {
    // SAFETY: the argument is a C string. A busy file system stays mounted.
    unsafe { libc::umount(c"/sys/fs/bpf".as_ptr()) };
}

/// Records a fact as an empty folder, because bpffs cannot hold ordinary files.
pub fn mark(path: &Path) -> Result<()> {
    make(path)
}

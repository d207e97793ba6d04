// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Advisory locks of files: flock(2).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Locks a file until it is closed; `how` are the flags of flock(2). With `LOCK_NB`, the error
/// is `WouldBlock` if another process has the lock.
pub(crate) fn lock(file: &File, how: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

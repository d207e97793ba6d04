// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Socket options.

use std::io;
use std::os::fd::AsRawFd;

/// Sets a socket option.
pub fn set_option(fd: &impl AsRawFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe the slice.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as u32,
        )
    };
    check(rc)
}

/// Returns the last OS error if `rc` is negative.
pub fn check(rc: i32) -> io::Result<()> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

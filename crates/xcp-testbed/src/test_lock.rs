// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A lock for tests: programs, pins and namespaces are shared by the whole system, so tests
//! that use them run one after another, also across processes.

use std::fs::File;
use std::os::fd::AsRawFd;

use xcp_datapath::internal::is_root;
use xcp_datapath::{Error, Result};

const TURN: &str = "/run/xcp-tests.lock";

/// The lock, held until dropped.
pub struct TestLock {
    _lock: Option<File>,
}

/// Waits until no other test holds the lock.
pub fn test_lock() -> Result<TestLock> {
    lock(libc::LOCK_EX)
}

/// Takes the lock in shared mode, for tests that only load programs: several of them can run
/// at once, but not together with a test that counts loaded programs.
pub fn shared_test_lock() -> Result<TestLock> {
    lock(libc::LOCK_SH)
}

fn lock(operation: libc::c_int) -> Result<TestLock> {
    if !is_root() {
        // such tests are skipped
        return Ok(TestLock { _lock: None });
    }
    let mut options = File::options();
    let file = options.create(true).append(true).open(TURN);
    let file = file.map_err(|e| Error::io(TURN, &e))?;
    loop {
        // SAFETY: the descriptor is open.
        if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
            return Ok(TestLock { _lock: Some(file) });
        }
        let e = std::io::Error::last_os_error();
        if e.kind() != std::io::ErrorKind::Interrupted {
            return Err(Error::io(TURN, &e));
        }
    }
}

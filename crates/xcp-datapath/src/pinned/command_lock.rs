// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The lock that lets only one command at a time change something. The kernel releases it
//! when its holder ends for any reason.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::rc::{Rc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Only root may open it, because any process that can open it can block others.
const PATH: &str = "/run/xcp.lock";
/// How long a command waits before it prints why.
const PATIENCE: Duration = Duration::from_secs(3);

thread_local! {
    static HELD: RefCell<Weak<Lock>> = const { RefCell::new(Weak::new()) };
}

/// The lock, held by this thread as long as this value lives. The same thread may take it
/// again meanwhile.
pub struct CommandLock {
    _lock: Rc<Lock>,
}

struct Lock {
    _file: File,
}

impl CommandLock {
    /// Waits until no other command holds the lock, and takes it.
    pub(crate) fn take() -> Result<Self> {
        if let Some(lock) = Self::held() {
            return Ok(lock);
        }
        let failed = |e: io::Error| Error::io(PATH, &e);
        let file = open().map_err(failed)?;
        let begun = Instant::now();
        while !try_lock(&file).map_err(failed)? {
            if begun.elapsed() > PATIENCE {
                let said = "xcp: waiting for another xcp command to end\n";
                let _ = io::stderr().write_all(said.as_bytes());
                lock(&file).map_err(failed)?;
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self::of(file))
    }

    /// Takes the lock without waiting; None if another command holds it.
    pub(crate) fn try_take() -> Result<Option<Self>> {
        if let Some(lock) = Self::held() {
            return Ok(Some(lock));
        }
        let failed = |e: io::Error| Error::io(PATH, &e);
        let file = open().map_err(failed)?;
        let free = try_lock(&file).map_err(failed)?;
        Ok(free.then(|| Self::of(file)))
    }

    /// The lock that this thread already holds, if any.
    fn held() -> Option<Self> {
        let lock = HELD.with_borrow(Weak::upgrade)?;
        Some(Self { _lock: lock })
    }

    /// The lock of a file that this thread has just locked.
    fn of(file: File) -> Self {
        let lock = Rc::new(Lock { _file: file });
        HELD.set(Rc::downgrade(&lock));
        Self { _lock: lock }
    }
}

fn open() -> io::Result<File> {
    fs::create_dir_all("/run")?;
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options.open(PATH)
}

fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, libc::LOCK_EX | libc::LOCK_NB) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        done => done.map(|()| true),
    }
}

fn lock(file: &File) -> io::Result<()> {
    loop {
        match flock(file, libc::LOCK_EX) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn flock(file: &File, operation: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    match unsafe { libc::flock(file.as_raw_fd(), operation) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

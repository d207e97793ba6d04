// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The status socket: a Unix socket that sends a daemon's status as JSON to each
//! client and closes the connection.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};
use serde::de::DeserializeOwned;
use serde::Serialize;

use xcp_datapath::{Error, Result};

use crate::file_error;

/// Write timeout: a slower client does not receive the complete status.
const PATIENCE: Duration = Duration::from_millis(100);
/// Read timeout of a client: the daemon answers late while it sends a train.
const ANSWER: Duration = Duration::from_secs(10);

/// The daemon's side of the status socket.
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Opens the socket. Replaces the socket file of a daemon that has ended.
    ///
    /// # Errors
    /// Another daemon uses this socket, or the path cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| file_error(path, &e);
        if UnixStream::connect(path).is_ok() {
            return Err(Error::new(
                path.display().to_string(),
                "another daemon is using this socket",
                "stop it, or choose another path with --socket",
            ));
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        match fs::symlink_metadata(path) {
            Ok(there) if there.file_type().is_socket() => fs::remove_file(path).map_err(failed)?,
            Ok(_) => {
                return Err(Error::new(
                    path.display().to_string(),
                    "exists but is not a socket",
                    "choose another path with --socket",
                ))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(failed(e)),
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    /// Sends the status to all waiting clients.
    pub fn serve<T: Serialize>(&self, status: impl Fn() -> T) {
        while let Ok((mut stream, _)) = self.listener.accept() {
            let text = serde_json::to_vec(&status()).unwrap_or_default();
            let _ = stream.set_write_timeout(Some(PATIENCE));
            let _ = stream.write_all(&text);
        }
    }
}

/// Readable while a client waits.
impl AsFd for StatusSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Requests the status of the daemon at this path. `start` is the command that starts it.
///
/// # Errors
/// There is no daemon, or it does not answer.
pub fn ask<T: DeserializeOwned>(path: &Path, start: &str) -> Result<T> {
    let thing = path.display().to_string();
    let mut stream = connect(path, start)?;
    let mut text = Vec::new();
    stream
        .set_read_timeout(Some(ANSWER))
        .and_then(|()| stream.read_to_end(&mut text))
        .map_err(|e| file_error(path, &e))?;
    serde_json::from_slice(&text).map_err(|e| {
        Error::new(
            &thing,
            format!("the daemon's answer is invalid: {e}"),
            "if the daemon has another version, restart it",
        )
    })
}

/// The process ID of the daemon at this path; None if there is no daemon.
pub fn process_of(path: &Path) -> Option<i32> {
    let stream = UnixStream::connect(path).ok()?;
    let daemon = getsockopt(&stream, sockopt::PeerCredentials).ok()?;
    Some(daemon.pid())
}

fn connect(path: &Path, start: &str) -> Result<UnixStream> {
    UnixStream::connect(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Error::new(
            path.display().to_string(),
            "no daemon is listening on this socket",
            format!("start it: {start}"),
        ),
        _ => file_error(path, &e),
    })
}

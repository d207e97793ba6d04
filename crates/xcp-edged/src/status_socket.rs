// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The status socket: a Unix socket that sends the daemon's status as JSON to each
//! client and closes the connection.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::status::Status;
use crate::{Error, Result};

/// The socket's default path.
pub const PATH: &str = "/run/xcp/edged.sock";
/// Write timeout: a slower client does not receive the complete status.
const PATIENCE: Duration = Duration::from_millis(100);
/// Read timeout of a client: the daemon answers late while it sends a train.
const ANSWER: Duration = Duration::from_secs(10);

/// The daemon's side of the status socket.
pub(crate) struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Opens the socket. Replaces the socket file of a daemon that has ended.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| Error::file(path, &e);
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

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Sends the status to all waiting clients.
    pub(crate) fn serve(&self, status: impl Fn() -> Status) {
        while let Ok((mut stream, _)) = self.listener.accept() {
            let text = serde_json::to_vec(&status()).unwrap_or_default();
            let _ = stream.set_write_timeout(Some(PATIENCE));
            let _ = stream.write_all(&text);
        }
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Requests the status of the daemon at this path.
///
/// # Errors
/// There is no daemon, or it does not answer.
pub fn ask(path: &Path) -> Result<Status> {
    let thing = path.display().to_string();
    let mut stream = UnixStream::connect(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Error::new(
            &thing,
            "no daemon is listening on this socket",
            "start it: xcp edged run --key FILE",
        ),
        _ => Error::file(path, &e),
    })?;
    let mut text = Vec::new();
    stream
        .set_read_timeout(Some(ANSWER))
        .and_then(|()| stream.read_to_end(&mut text))
        .map_err(|e| Error::file(path, &e))?;
    serde_json::from_slice(&text).map_err(|e| {
        Error::new(
            &thing,
            format!("the daemon's answer is invalid: {e}"),
            "if the daemon has another version, restart it",
        )
    })
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs a user program in the machine: starts it, forwards its output, and waits for
//! its end. As the machine's init process, it also reaps orphans.

use std::io::{Error as IoError, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

const HOST_NAME: &str = "xcp-lab";
/// Child processes may still write after the program's end: their output is read until
/// there was none for this time.
const QUIET: Duration = Duration::from_millis(100);
/// Longest time that output is read after the program's end.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// A program to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// The absolute path in the machine.
    pub program: String,
    pub arguments: Vec<String>,
    /// The environment variable PATH.
    pub path: String,
    /// The working directory.
    pub directory: String,
}

/// The standard stream that a program writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    Output,
    Error,
}

/// Encodes any bytes as the text of a message: one character per byte.
pub fn text_of(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// Decodes the result of [`text_of`].
pub fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|c| c as u8).collect()
}

enum Event {
    Wrote(Stream, String),
    Exited(u8),
}

/// Runs a program to its end, and returns its exit status, or 128 + the number of
/// the signal that ended it.
///
/// # Errors
/// The program cannot be started.
pub fn run(program: &Program, write: &mut dyn FnMut(Stream, String)) -> Result<u8> {
    prepare()?;
    let mut child = Command::new(&program.program)
        .args(&program.arguments)
        .current_dir(&program.directory)
        .env("PATH", &program.path)
        .env("HOME", "/root")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| not_started(&program.program, &e))?;
    let (to, events) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        read(out, Stream::Output, to.clone());
    }
    if let Some(err) = child.stderr.take() {
        read(err, Stream::Error, to.clone());
    }
    let pid = child.id() as libc::pid_t;
    thread::spawn(move || wait(pid, &to));

    let mut status = 0;
    for event in &events {
        match event {
            Event::Wrote(stream, text) => write(stream, text),
            Event::Exited(code) => {
                status = code;
                break;
            }
        }
    }
    let end = Instant::now() + LAST_OUTPUT;
    while let Ok(Event::Wrote(stream, text)) = events.recv_timeout(QUIET) {
        write(stream, text);
        if Instant::now() > end {
            break;
        }
    }
    Ok(status)
}

fn not_started(program: &str, e: &IoError) -> Error {
    Error::new(
        program,
        format!("cannot start in the machine: {e}"),
        "add the files that it needs, such as a script's interpreter, with --file",
    )
}

/// Sets the machine's host name and sets its loopback device up.
fn prepare() -> Result<()> {
    // SAFETY: the length is that of the name.
    if unsafe { libc::sethostname(HOST_NAME.as_ptr().cast(), HOST_NAME.len()) } != 0 {
        return Err(Error::io("host name", &IoError::last_os_error()));
    }
    xcp_player::topology::tool("ip", &["link", "set", "lo", "up"], "").map(drop)
}

/// Reads in a separate thread until all writers have closed the stream.
fn read(mut from: impl Read + Send + 'static, stream: Stream, to: Sender<Event>) {
    thread::spawn(move || {
        let mut buffer = [0; 1 << 14];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let text = text_of(&buffer[..length]);
            if to.send(Event::Wrote(stream, text)).is_err() {
                return;
            }
        }
    });
}

/// Waits for all processes until none is left. The kernel makes the init process the
/// parent of orphans.
fn wait(child: libc::pid_t, to: &Sender<Event>) {
    loop {
        let mut status = 0;
        // SAFETY: the status lives through the call.
        let pid = unsafe { libc::waitpid(-1, &mut status, 0) };
        if pid == child {
            let _ = to.send(Event::Exited(code(status)));
        }
        if pid < 0 && IoError::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

fn code(status: libc::c_int) -> u8 {
    let code = if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    };
    code as u8 // a process's status is one byte
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_survive_encoding_as_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        let json = serde_json::to_string(&text_of(&bytes)).expect("is text");
        let text: String = serde_json::from_str(&json).expect("is JSON");
        assert_eq!(bytes_of(&text), bytes);
    }

    #[test]
    fn exit_code_of_killed_program_contains_signal() {
        assert_eq!(code(3 << 8), 3);
        assert_eq!(code(libc::SIGKILL), 137);
    }
}

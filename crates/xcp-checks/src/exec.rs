// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A program of the user's in the machine: starts it, passes on what it writes,
//! and waits for its end. As the machine's init, it also waits for orphans.

use std::io::{Error as IoError, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

const HOST_NAME: &str = "xcp-lab";
/// Processes that a program leaves behind may still write when it ends: their
/// output is read until there was none for so long,
const QUIET: Duration = Duration::from_millis(100);
/// but not for longer than this.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// What to run.
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

/// Where a program writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    Output,
    Error,
}

/// Any bytes as the text of a message: each byte is a character.
pub fn text_of(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The bytes that [`text_of`] was given.
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
        format!("does not start in the machine: {e}"),
        "give it what it needs, such as the interpreter of a script, with --file",
    )
}

/// Gives the machine a name and a loopback device.
fn prepare() -> Result<()> {
    // SAFETY: the name is as long as said.
    if unsafe { libc::sethostname(HOST_NAME.as_ptr().cast(), HOST_NAME.len()) } != 0 {
        return Err(Error::io("host name", &IoError::last_os_error()));
    }
    xcp_player::topology::tool("ip", &["link", "set", "lo", "up"], "").map(drop)
}

/// Reads in a thread of its own until all writers have gone.
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

/// Waits for all processes that end, until there are none. The kernel gives
/// orphans to the first process.
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
    fn any_byte_passes_as_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        let json = serde_json::to_string(&text_of(&bytes)).expect("is text");
        let text: String = serde_json::from_str(&json).expect("is JSON");
        assert_eq!(bytes_of(&text), bytes);
    }

    #[test]
    fn the_status_of_a_killed_program_tells_the_signal() {
        assert_eq!(code(3 << 8), 3);
        assert_eq!(code(libc::SIGKILL), 137);
    }
}

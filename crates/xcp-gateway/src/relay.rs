// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Copies the bytes between two sockets, in both directions, with splice(2): the kernel moves
//! pages from one socket's queue through a pipe to the other. A direction reads only after it
//! has written everything that it read before. So a slow receiver fills at most a pipe and the
//! sockets' buffers, and then TCP stops the sender.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

use nix::sys::socket::{shutdown, Shutdown};
use rustix::io::Errno;
use rustix::pipe::{fcntl_setpipe_size, pipe_with, splice, PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};

use crate::sockets;

/// The size of a pipe: 64 pages, which hold two of the largest GRO packets.
const PIPE_B: usize = 1 << 18;
/// The most pipes to keep for other connections.
const SPARE_PIPES_MAX: usize = 64;
/// After a reset, the other side receives what arrived before, unless it receives nothing for
/// so long.
const STALLED: Duration = Duration::from_secs(5);
const SENT_CHECK: Duration = Duration::from_millis(50);
/// Bytes to copy, where splice does not move them.
const COPIED_B: usize = 4096;

struct Pipe {
    out: OwnedFd,
    r#in: OwnedFd,
}

/// Empty pipes, for all connections: a connection has one only while it moves bytes.
#[derive(Default)]
pub(crate) struct Pipes(Mutex<Vec<Pipe>>);

impl Pipes {
    fn take(&self) -> io::Result<Pipe> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(pipe) = spare {
            return Ok(pipe);
        }
        let (out, r#in) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        // a smaller pipe works too
        let _ = fcntl_setpipe_size(&r#in, PIPE_B);
        Ok(Pipe { out, r#in })
    }

    fn put_back(&self, pipe: Pipe) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_PIPES_MAX {
            spare.push(pipe);
        }
    }
}

/// One direction.
struct Direction<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    pipes: &'a Pipes,
    moved_bytes: &'a AtomicU64,
    pipe: Option<Pipe>,
    /// Bytes in the pipe.
    held: usize,
    /// Bytes written.
    moved: u64,
    /// The sender has closed its side.
    ended: bool,
    /// The receiver's side is closed, too.
    done: bool,
    /// The handshake with the receiver may not be complete yet.
    in_handshake: bool,
}

impl<'a> Direction<'a> {
    fn new(
        from: &'a TcpStream,
        to: &'a TcpStream,
        pipes: &'a Pipes,
        moved_bytes: &'a AtomicU64,
    ) -> Self {
        Self {
            from,
            to,
            pipes,
            moved_bytes,
            pipe: None,
            held: 0,
            moved: 0,
            ended: false,
            done: false,
            in_handshake: true,
        }
    }

    /// Moves bytes until this direction is done. If a direction has `failed`, this one is also
    /// done when there is nothing to read.
    fn poll(&mut self, cx: &mut Context<'_>, failed: bool) -> Poll<io::Result<()>> {
        while !self.done {
            if self.held > 0 {
                ready!(self.to.poll_write_ready(cx))?;
                self.write()?;
            } else if self.ended {
                ready!(self.to.poll_write_ready(cx))?;
                self.end()?;
            } else {
                let readable = self.from.poll_read_ready(cx)?;
                if readable.is_pending() {
                    if failed {
                        break;
                    }
                    self.release();
                    return Poll::Pending;
                }
                let at_end = self.read()?;
                // A failure of the other direction hides the reset of a socket that both use:
                // what looks like the end of the data may be a part of it.
                if at_end && failed {
                    break;
                }
                self.ended = at_end;
            }
        }
        self.done = true;
        self.release();
        Poll::Ready(Ok(()))
    }

    /// Fills the pipe. Returns whether the sender has closed its side.
    fn read(&mut self) -> io::Result<bool> {
        let pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => self.pipes.take()?,
        };
        let pipe = self.pipe.insert(pipe);
        let read = self.from.try_io(Interest::READABLE, || {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            let moved = splice(self.from, None, &pipe.r#in, None, PIPE_B, flags);
            match moved {
                // there may be urgent data, which splice does not pass
                Ok(0) | Err(Errno::AGAIN) if sockets::unread_bytes(self.from) > 0 => {
                    let mut bytes = [0; COPIED_B];
                    let got = rustix::io::read(self.from, &mut bytes)?;
                    Ok(rustix::io::write(&pipe.r#in, &bytes[..got])?)
                }
                moved => Ok(moved?),
            }
        });
        match read {
            Ok(bytes) => {
                self.held = bytes;
                Ok(bytes == 0)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(pipe) = &self.pipe else {
            return Ok(());
        };
        let written = self.to.try_io(Interest::WRITABLE, || {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match splice(&pipe.out, None, self.to, None, self.held, flags) {
                // its SYN had no space for the data
                Err(Errno::INPROGRESS) => Err(io::ErrorKind::WouldBlock.into()),
                written => Ok(written?),
            }
        });
        match written {
            Ok(bytes) => {
                self.held -= bytes;
                self.moved += bytes as u64;
                self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                if self.in_handshake {
                    self.in_handshake = sockets::send_in_handshake(self.to)?;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Closes the receiver's side. A connection that is not established yet would be lost with
    /// its data.
    fn end(&mut self) -> io::Result<()> {
        let ended = self.to.try_io(Interest::WRITABLE, || {
            if sockets::is_connecting(self.to)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(shutdown(self.to.as_raw_fd(), Shutdown::Write)?)
        });
        match ended {
            Ok(()) => self.done = true,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Gives the pipe to other connections if it is empty; otherwise closes it.
    fn release(&mut self) {
        if let Some(pipe) = self.pipe.take().filter(|_| self.held == 0) {
            self.pipes.put_back(pipe);
        }
    }
}

struct Both<'a> {
    directions: [Direction<'a>; 2],
    /// The first failure. After it, a direction ends when it has nothing to write.
    failure: Option<io::Error>,
}

impl Both<'_> {
    /// Moves bytes until both directions are done, or the first one fails.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut pending = false;
        for direction in &mut self.directions {
            match direction.poll(cx, self.failure.is_some()) {
                Poll::Pending => pending = true,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => {
                    direction.done = true;
                    if self.failure.is_none() {
                        self.failure = Some(e);
                        return Poll::Ready(());
                    }
                }
            }
        }
        if pending {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn is_done(&self) -> bool {
        self.directions.iter().all(|one| one.done)
    }

    fn moved(&self) -> u64 {
        self.directions.iter().map(|one| one.moved).sum()
    }
}

/// Copies until both sides have closed. `moved_bytes` counts both directions.
///
/// # Errors
/// One side was reset, or does not answer. What arrived from it before is delivered to the
/// other side first, unless that one receives nothing for [`STALLED`].
pub(crate) async fn relay(
    a: &TcpStream,
    b: &TcpStream,
    pipes: &Pipes,
    moved_bytes: &AtomicU64,
) -> io::Result<()> {
    let mut both = Both {
        directions: [
            Direction::new(a, b, pipes, moved_bytes),
            Direction::new(b, a, pipes, moved_bytes),
        ],
        failure: None,
    };
    tokio::select! {
        () = poll_fn(|cx| both.poll(cx)) => {}
        _ = a.ready(Interest::ERROR) => {}
        _ = b.ready(Interest::ERROR) => {}
    }
    while !both.is_done() {
        let before = both.moved();
        // tokio's budget would make a socket that has data look empty
        let rest = unconstrained(poll_fn(|cx| both.poll(cx)));
        if timeout(STALLED, rest).await.is_err() && both.moved() == before {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
    }
    let Some(e) = both.failure else {
        return Ok(());
    };
    send_rest(a).await;
    send_rest(b).await;
    Err(e)
}

/// Waits until a socket has sent what was written to it. A reset socket has nothing.
async fn send_rest(socket: &TcpStream) {
    let mut left = sockets::unsent_bytes(socket);
    let mut since = Instant::now();
    while left > 0 && since.elapsed() < STALLED {
        sleep(SENT_CHECK).await;
        let now = sockets::unsent_bytes(socket);
        if now < left {
            since = Instant::now();
        }
        left = now;
    }
}

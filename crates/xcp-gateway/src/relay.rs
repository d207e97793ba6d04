// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Copies the bytes between two sockets, in both directions, with splice(2): the kernel moves
//! pages from one socket's queue through a pipe to the other. A direction reads only after it
//! has written everything that it read before. So a slow receiver fills at most a pipe and the
//! sockets' buffers, and then TCP stops the sender.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{ready, Context, Poll};
use std::time::Duration;

use nix::sys::socket::{shutdown, Shutdown};
use rustix::pipe::{fcntl_setpipe_size, pipe_with, splice, PipeFlags, SpliceFlags};
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The size of a pipe: 64 pages, which hold two of the largest GRO packets.
const PIPE_B: usize = 1 << 18;
/// The most pipes to keep for other connections.
const SPARE_PIPES_MAX: usize = 64;
/// After a reset, how long the other side may take to receive what arrived before.
const DRAIN: Duration = Duration::from_secs(5);

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
    /// The sender has closed its side.
    ended: bool,
    /// The receiver's side is closed, too.
    done: bool,
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
            ended: false,
            done: false,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.done {
            if self.held > 0 {
                ready!(self.to.poll_write_ready(cx))?;
                self.write()?;
            } else if self.ended {
                shutdown(self.to.as_raw_fd(), Shutdown::Write)?;
                self.done = true;
            } else {
                let readable = self.from.poll_read_ready(cx)?;
                if readable.is_pending() {
                    self.release();
                    return Poll::Pending;
                }
                self.read()?;
            }
        }
        self.release();
        Poll::Ready(Ok(()))
    }

    fn read(&mut self) -> io::Result<()> {
        let pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => self.pipes.take()?,
        };
        let pipe = self.pipe.insert(pipe);
        let read = self.from.try_io(Interest::READABLE, || {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            Ok(splice(self.from, None, &pipe.r#in, None, PIPE_B, flags)?)
        });
        match read {
            Ok(0) => self.ended = true,
            Ok(bytes) => self.held = bytes,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(pipe) = &self.pipe else {
            return Ok(());
        };
        let written = self.to.try_io(Interest::WRITABLE, || {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            Ok(splice(&pipe.out, None, self.to, None, self.held, flags)?)
        });
        match written {
            Ok(bytes) => {
                self.held -= bytes;
                self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn release(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.pipes.put_back(pipe);
        }
    }
}

/// Copies until both sides have closed. `moved_bytes` counts both directions.
///
/// # Errors
/// One side was reset, or does not answer.
pub(crate) async fn relay(
    a: &TcpStream,
    b: &TcpStream,
    pipes: &Pipes,
    moved_bytes: &AtomicU64,
) -> io::Result<()> {
    let mut there = Direction::new(a, b, pipes, moved_bytes);
    let mut back = Direction::new(b, a, pipes, moved_bytes);
    let mut both = poll_fn(|cx| {
        let there = there.poll(cx)?;
        let back = back.poll(cx)?;
        match there.is_ready() && back.is_ready() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    });
    tokio::select! {
        ended = &mut both => return ended,
        _ = a.ready(Interest::ERROR) => {}
        _ = b.ready(Interest::ERROR) => {}
    }
    match tokio::time::timeout(DRAIN, both).await {
        Ok(ended) => ended,
        Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
    }
}

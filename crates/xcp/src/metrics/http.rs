// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! An HTTP server for one client program that reads one page. All connections have limits on
//! time, size and number, because any program on this machine can connect.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags};

/// The longest head of a request. A body is not read.
const HEAD_MAX: usize = 8192;
/// The most connections; one more ends the oldest.
const CONNECTIONS_MAX: usize = 32;
/// The longest time of a connection.
const LIFETIME: Duration = Duration::from_secs(5);
/// How long to wait after a failure to accept, because descriptors or memory are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A request of a client.
pub struct Request<'a> {
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
}

/// An answer.
pub struct Response {
    /// Such as `200 OK`.
    pub status: &'static str,
    pub content_type: &'static str,
    pub body: String,
}

pub struct Server {
    listener: TcpListener,
    /// The oldest is the first.
    connections: Vec<Connection>,
}

/// A connection, which has one request.
struct Connection {
    stream: TcpStream,
    begun: Instant,
    head: Vec<u8>,
    /// What is still to be sent.
    answer: Option<Vec<u8>>,
}

impl Server {
    /// Listens on an address.
    ///
    /// # Errors
    /// The address is in use, or is none of this machine.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            connections: Vec::new(),
        })
    }

    /// The address with its port.
    ///
    /// # Errors
    /// None is known.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for clients for at most this time, and continues their connections. `respond`
    /// answers a request.
    pub fn serve(&mut self, wait_ms: u16, mut respond: impl FnMut(&Request) -> Response) {
        let mut waits_for = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        waits_for.extend(self.connections.iter().map(Connection::waits_for));
        // a signal ends the wait
        if poll(&mut waits_for, wait_ms).is_ok_and(|ready| ready > 0) {
            self.accept();
        }
        self.connections.retain_mut(|one| {
            one.begun.elapsed() < LIFETIME && one.proceed(&mut respond).unwrap_or(false)
        });
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if self.connections.len() == CONNECTIONS_MAX {
                        self.connections.remove(0);
                    }
                    self.connections.push(Connection {
                        stream,
                        begun: Instant::now(),
                        head: Vec::new(),
                        answer: None,
                    });
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return thread::sleep(ACCEPT_PAUSE),
            }
        }
    }
}

impl Connection {
    fn waits_for(&self) -> PollFd<'_> {
        let sends = self.answer.as_ref().is_some_and(|left| !left.is_empty());
        let event = if sends {
            PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        };
        PollFd::new(self.stream.as_fd(), event)
    }

    /// Reads or writes what is possible now. Returns false at the end of the connection.
    fn proceed(&mut self, respond: &mut impl FnMut(&Request) -> Response) -> io::Result<bool> {
        if self.answer.is_none() && !self.read_head()? {
            return Ok(true);
        }
        let answer = match &mut self.answer {
            Some(answer) => answer,
            None => self.answer.insert(answer(&self.head, respond)),
        };
        if !answer.is_empty() {
            match self.stream.write(answer) {
                Ok(written) => drop(answer.drain(..written)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            if !answer.is_empty() {
                return Ok(true);
            }
            self.stream.shutdown(Shutdown::Write)?;
        }
        // closing a socket with unread data would reset the connection, and the answer be lost
        match self.stream.read(&mut [0; 4096]) {
            Ok(read) => Ok(read > 0),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Returns whether the head is complete.
    fn read_head(&mut self) -> io::Result<bool> {
        let mut part = [0; 4096];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.head.extend_from_slice(&part[..read]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
            if self.head.windows(4).any(|four| four == b"\r\n\r\n") {
                return Ok(true);
            }
            if self.head.len() > HEAD_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }
}

fn answer(head: &[u8], respond: &mut impl FnMut(&Request) -> Response) -> Vec<u8> {
    let head = String::from_utf8_lossy(head);
    let mut words = head.split_whitespace();
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default();
    let request = Request {
        method,
        path: path.split('?').next().unwrap_or_default(),
    };
    let Response {
        status,
        content_type,
        body,
    } = respond(&request);
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if method != "HEAD" {
        text += &body;
    }
    text.into_bytes()
}

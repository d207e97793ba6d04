// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Web pages: users that load one page after another. The first object of a page
//! names the others, which are then requested at once. Each object has a connection
//! of its own, which its client opens.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use crate::experiment::{Experiment, Pages, Variant};
use crate::metrics::round;
use crate::random::{log_uniform, split_mix, uniform};
use crate::result::PageResult;
use crate::topology::{address, Topology};
use crate::traffic::{connect, listen, socket_address, FIRST_PORT, ZEROES};
use crate::{Error, Result};

/// A request of a browser, with its headers. The first bytes are the size of the
/// object.
const REQUEST_BYTES: usize = 300;
/// Users start within this time after the start of the run.
const STAGGER_S: f64 = 3.0;

/// All pages of a run.
pub struct PageRun {
    pages: Pages,
    control: String,
    kind: crate::experiment::Socket,
    listener: TcpListener,
    server: SocketAddr,
    users: Vec<User>,
    connections: BTreeMap<RawFd, Connection>,
    /// The start and the duration of each loaded page.
    loaded: Vec<(Duration, Duration)>,
}

/// A user, and the page that it loads.
struct User {
    /// The state of its random numbers: its pages are the same in all variants.
    random: u64,
    /// The start of its page; the time of its first page before that.
    begun: Duration,
    loads: bool,
    /// The sizes of the objects that are not requested yet.
    objects: Vec<u64>,
    /// Requested objects that have not arrived.
    open: usize,
}

/// One end of a connection.
struct Connection {
    stream: TcpStream,
    side: Side,
    /// Bytes of the object that have not been read, or written.
    left: u64,
}

enum Side {
    /// The connection is being established.
    Asks {
        user: usize,
    },
    Reads {
        user: usize,
    },
    /// The server has read a part of the request.
    Listens {
        request: Vec<u8>,
    },
    Answers,
}

impl PageRun {
    pub fn start(
        experiment: &Experiment,
        pages: &Pages,
        stage: &Topology,
        variant: &Variant,
        seed: u64,
    ) -> Result<Self> {
        let others = experiment.transfers.as_ref().map_or(0, |t| t.count);
        let port = FIRST_PORT + (experiment.flows.len() + others) as u16;
        let server = socket_address(&address(experiment, &pages.server), port)?;
        let listener = stage
            .within(&pages.server, || {
                listen(server, &variant.control, variant.socket)
            })?
            .map_err(|e| Error::io("pages", &e))?;
        let mut seeds = seed;
        let user = |_| {
            let mut random = split_mix(&mut seeds);
            User {
                begun: Duration::from_secs_f64(STAGGER_S * uniform(&mut random)),
                random,
                loads: false,
                objects: Vec::new(),
                open: 0,
            }
        };
        Ok(Self {
            users: (0..pages.users).map(user).collect(),
            pages: pages.clone(),
            control: variant.control.clone(),
            kind: variant.socket,
            listener: listener.into(),
            server,
            connections: BTreeMap::new(),
            loaded: Vec::new(),
        })
    }

    /// The open descriptors, and the poll events that each waits for.
    pub fn interests(&self) -> Vec<(RawFd, i16)> {
        let listener = (self.listener.as_raw_fd(), libc::POLLIN);
        let connections = self.connections.iter().map(|(fd, connection)| {
            let events = match connection.side {
                Side::Asks { .. } | Side::Answers => libc::POLLOUT,
                Side::Reads { .. } | Side::Listens { .. } => libc::POLLIN,
            };
            (*fd, events)
        });
        [listener].into_iter().chain(connections).collect()
    }

    /// Accepts, reads or writes, without blocking.
    pub fn serve(&mut self, fd: RawFd) -> io::Result<()> {
        if fd == self.listener.as_raw_fd() {
            return self.accept();
        }
        let Some(connection) = self.connections.get_mut(&fd) else {
            return Ok(());
        };
        match connection.serve() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            served => served?,
        }
        if connection.is_over() {
            let user = match connection.side {
                Side::Asks { user } | Side::Reads { user } => Some(user),
                Side::Listens { .. } | Side::Answers => None,
            };
            self.connections.remove(&fd);
            if let Some(user) = user {
                self.users[user].open -= 1;
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            stream.set_nonblocking(true)?;
            let request = Vec::new();
            self.add(stream, Side::Listens { request }, 0);
        }
    }

    fn add(&mut self, stream: TcpStream, side: Side, left: u64) {
        let fd = stream.as_raw_fd();
        let connection = Connection { stream, side, left };
        self.connections.insert(fd, connection);
    }

    /// Requests what users need next: the other objects of a page after the first,
    /// and the next page after the last.
    pub fn advance(&mut self, stage: &Topology, now: Duration) -> Result<()> {
        for user in 0..self.users.len() {
            let objects = self.users[user].next(&self.pages, now, &mut self.loaded);
            for bytes in objects {
                self.request(stage, user, bytes)?;
            }
        }
        Ok(())
    }

    fn request(&mut self, stage: &Topology, user: usize, bytes: u64) -> Result<()> {
        let open = || connect(self.server, &self.control, self.kind);
        let opened = stage.within(&self.pages.client, open)?;
        let socket = opened.map_err(|e| Error::io("pages", &e))?;
        self.add(socket.into(), Side::Asks { user }, bytes);
        self.users[user].open += 1;
        Ok(())
    }

    /// The result of the pages that begin after the warm-up.
    pub fn result(&self, warmup: Duration) -> PageResult {
        let warm = self.loaded.iter().filter(|(begun, _)| *begun >= warmup);
        let mut took_s: Vec<f64> = warm.map(|(_, took)| took.as_secs_f64()).collect();
        took_s.sort_by(f64::total_cmp);
        let p95 = (took_s.len() * 95).div_ceil(100).saturating_sub(1);
        let mean_s = took_s.iter().sum::<f64>() / took_s.len().max(1) as f64;
        PageResult {
            loaded: took_s.len(),
            mean_s: round(mean_s, 3),
            p95_s: round(took_s.get(p95).copied().unwrap_or(0.0), 3),
        }
    }
}

impl User {
    /// Returns the sizes of the objects to request now.
    fn next(
        &mut self,
        pages: &Pages,
        now: Duration,
        loaded: &mut Vec<(Duration, Duration)>,
    ) -> Vec<u64> {
        if self.open > 0 || now < self.begun {
            return Vec::new();
        }
        if !self.objects.is_empty() {
            return std::mem::take(&mut self.objects);
        }
        if self.loads {
            loaded.push((self.begun, now - self.begun));
        }
        self.loads = true;
        self.begun = now;
        let mut sizes = (0..pages.objects).map(|_| log_uniform(&mut self.random, pages.bytes));
        let first = sizes.next();
        self.objects = sizes.collect();
        first.into_iter().collect()
    }
}

impl Connection {
    fn serve(&mut self) -> io::Result<()> {
        match &mut self.side {
            Side::Asks { user } => {
                let mut request = [0; REQUEST_BYTES];
                request[..8].copy_from_slice(&self.left.to_be_bytes());
                // a new socket has space for it
                self.stream.write_all(&request)?;
                self.side = Side::Reads { user: *user };
            }
            Side::Reads { .. } => {
                let mut buffer = [0; 1 << 16];
                while self.left > 0 {
                    self.left -= at_least_one(self.stream.read(&mut buffer)?)?;
                }
            }
            Side::Listens { request } => {
                let mut buffer = [0; REQUEST_BYTES];
                let missing = REQUEST_BYTES - request.len();
                let got = at_least_one(self.stream.read(&mut buffer[..missing])?)?;
                request.extend_from_slice(&buffer[..got as usize]);
                if request.len() == REQUEST_BYTES {
                    let (size, _) = request.split_at(8);
                    self.left = size.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
                    self.side = Side::Answers;
                }
            }
            Side::Answers => {
                let chunk = self.left.min(ZEROES.len() as u64) as usize;
                self.left -= self.stream.write(&ZEROES[..chunk])? as u64;
            }
        }
        Ok(())
    }

    /// Whether the object was read or written completely.
    fn is_over(&self) -> bool {
        match self.side {
            Side::Reads { .. } | Side::Answers => self.left == 0,
            Side::Asks { .. } | Side::Listens { .. } => false,
        }
    }
}

/// Fails at the end of a connection that should not end.
fn at_least_one(bytes: usize) -> io::Result<u64> {
    match bytes {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        some => Ok(some as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Pages {
        Pages {
            client: "c".into(),
            server: "s".into(),
            users: 1,
            objects: 3,
            bytes: [1000, 10_000],
        }
    }

    #[test]
    fn the_first_object_of_a_page_is_requested_alone() {
        let second = Duration::from_secs(1);
        let mut user = User {
            random: 1,
            begun: second,
            loads: false,
            objects: Vec::new(),
            open: 0,
        };
        let mut loaded = Vec::new();
        let none = user.next(&pages(), Duration::ZERO, &mut loaded);
        assert!(none.is_empty(), "{none:?}");
        assert_eq!(user.next(&pages(), second, &mut loaded).len(), 1);
        user.open = 1;
        assert!(user.next(&pages(), second * 2, &mut loaded).is_empty());
        user.open = 0;
        let others = user.next(&pages(), second * 3, &mut loaded);
        assert_eq!(others.len(), 2);
        assert!(others.iter().all(|bytes| (1000..=10_000).contains(bytes)));
        assert!(loaded.is_empty());
        assert_eq!(user.next(&pages(), second * 4, &mut loaded).len(), 1);
        assert_eq!(loaded, [(second, second * 3)]);
    }
}

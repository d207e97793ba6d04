// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Instructions per short connection through a router: handshake, a request
//! and an answer of 100 bytes each, and close. Sum of all three nodes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

use super::figure::Cost;
use super::hosts::{network, of_each, with_routers, Kind};
use super::spare;
use crate::{Error, Result};
use xcp_player::experiment::Socket;
use xcp_player::topology::address;
use xcp_player::traffic::{connect, listen, socket_address};

const WARM_UP: u32 = 100;
const COUNTED: u32 = 500;
const PORT: u16 = 7000;
const BYTES: usize = 100;

const KINDS: [Kind; 5] = [
    Kind::plain("cubic", "cubic", 0),
    Kind::xcp("option", xcp_datapath::Wire::Option),
    Kind::xcp("option-2005", xcp_datapath::Wire::Option2005),
    Kind::xcp("header", xcp_datapath::Wire::Header),
    Kind::xcp("header-2004", xcp_datapath::Wire::Header2004),
];

pub fn count(progress: &mut dyn FnMut(f64)) -> Result<Vec<Cost>> {
    of_each(&KINDS, of, progress)
}

fn of(kind: &Kind) -> Result<f64> {
    with_routers(kind, |stage| {
        let failed = |e: std::io::Error| Error::io(kind.name, &e);
        let to = socket_address(&address(&network()?, "d"), PORT)?;
        let listener = stage
            .within("d", || listen(to, kind.control, Socket::Tcp))?
            .map_err(failed)?;
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(false).map_err(failed)?;
        thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener));
            let used = spare::count_idle_during(|spare| {
                let ask = |count| {
                    stage
                        .within("s", || (0..count).try_for_each(|_| ask(to, kind.control)))?
                        .map_err(failed)
                };
                ask(WARM_UP)?;
                let mark = spare.mark();
                ask(COUNTED)?;
                Ok(spare.used_since(mark) / f64::from(COUNTED))
            });
            // SAFETY: the listener is open. This ends a server that still waits in accept.
            unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
            let served = server.join().unwrap_or(Ok(())).map_err(failed);
            used.and_then(|used| served.map(|()| used))
        })
    })
}

/// Runs the client side of one connection.
fn ask(to: std::net::SocketAddr, control: &str) -> std::io::Result<()> {
    let mut client = TcpStream::from(connect(to, control, Socket::Tcp)?);
    client.set_nonblocking(false)?;
    client.write_all(&[0; BYTES])?;
    client.read_exact(&mut [0; BYTES])
}

fn serve(listener: &TcpListener) -> std::io::Result<()> {
    for _ in 0..WARM_UP + COUNTED {
        let (mut stream, _) = listener.accept()?;
        stream.read_exact(&mut [0; BYTES])?;
        stream.write_all(&[0; BYTES])?;
    }
    Ok(())
}

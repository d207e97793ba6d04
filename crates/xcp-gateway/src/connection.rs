// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! One connection: from the accepted socket to the end of both sides.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use xcp_datapath::gateway::Side;

use crate::fast_open::FIRST_DATA;
use crate::proxy::Shared;
use crate::relay::relay;
use crate::sockets;

/// Connects to the destination of an accepted connection, and copies bytes until both sides have
/// closed. If the destination refuses or does not answer, or one side resets, the other side is
/// reset.
pub(crate) async fn handle(
    near: TcpStream,
    source: SocketAddr,
    side: Side,
    shared: &Shared,
) -> io::Result<()> {
    let destination = near.local_addr()?;
    let control = shared.control(side.other());
    let fast_open = side == Side::Lan && shared.known_peers.has(destination.ip());
    let far = tokio::select! {
        far = sockets::connect(source, destination, side.other(), control, fast_open) => far,
        // the source does not wait any longer
        _ = near.ready(Interest::ERROR) => Err(io::ErrorKind::ConnectionReset.into()),
    };
    let (far, fast_open) = far.inspect_err(|_| {
        shared.counts.not_connected.fetch_add(1, Ordering::Relaxed);
    })?;
    if fast_open {
        shared.counts.fast_open.fetch_add(1, Ordering::Relaxed);
        let has_data = timeout(FIRST_DATA, near.peek(&mut [0])).await;
        if !matches!(has_data, Ok(Ok(1))) {
            sockets::send_syn(&far)?;
        }
    } else if side == Side::Lan {
        let answers = sockets::uses(&far, control);
        shared.known_peers.learn(destination.ip(), answers);
    }
    if far.local_addr()?.port() != source.port() {
        shared.counts.other_port.fetch_add(1, Ordering::Relaxed);
    }
    let copied = copy(&near, &far, shared).await;
    if fast_open {
        let answered = copied.is_ok() && sockets::uses(&far, control);
        shared.known_peers.learn(destination.ip(), answered);
    }
    copied.inspect_err(|_| {
        shared.counts.reset.fetch_add(1, Ordering::Relaxed);
    })
}

async fn copy(near: &TcpStream, far: &TcpStream, shared: &Shared) -> io::Result<()> {
    relay(near, far, &shared.pipes, &shared.counts.bytes).await?;
    sockets::set_reset_on_close(near, false)?;
    sockets::set_reset_on_close(far, false)
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Checks that a kernel accepts the programs: loads each of them, the router's for several
//! numbers of processors, then sends a TCP connection through them in every wire format.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;

use serde::{Deserialize, Serialize};
use xcp_datapath::{router, Wire};

use crate::check::Check;
use crate::{Error, Result};
use xcp_player::experiment::{Experiment, Socket};
use xcp_player::play::HostXcpGuard;
use xcp_player::topology::{address, Topology};
use xcp_player::traffic::{self, socket_address};

/// Numbers of processors that the router is loaded for. It loops over processors, and the
/// verifier's cost must not grow with their number.
pub const PROCESSORS: [u32; 5] = [1, 2, 31, 64, 1024];
const PORT: u16 = 5001;
const TRANSFER_BYTES: usize = 2_000_000;
const NETWORK: &str = r#"
name = "transfer"
source = ""
about = ""
duration_s = 1
warmup_s = 0
bottleneck = ["r", "d"]
link = [
    { between = ["s", "r"] },
    { between = ["r", "d"], rate_mbit = 100, queue_packets = 200 },
]
flow = [{ name = "1", from = "s", to = "d" }]
variant = [{ name = "xcp", control = "xcp", queue = "xcp" }]
"#;

/// A loaded program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Loaded {
    pub name: String,
    /// Number of instructions that the verifier processed: the highest over all numbers of
    /// processors.
    pub verified: u32,
}

/// Loads all programs, the router's for each of [`PROCESSORS`].
pub fn load() -> Result<Vec<Loaded>> {
    let mut most: BTreeMap<String, u32> = BTreeMap::new();
    for program in xcp_testbed::load_all(&PROCESSORS)? {
        let seen = most.entry(program.name).or_default();
        *seen = program.instructions.max(*seen);
    }
    let loaded = |(name, verified)| Loaded { name, verified };
    Ok(most.into_iter().map(loaded).collect())
}

/// Sends bytes through a router in every wire format.
pub fn check(progress: &mut dyn FnMut(f64)) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for (i, wire) in Wire::ALL.into_iter().enumerate() {
        checks.push(transfer(wire)?);
        progress((i + 1) as f64 / Wire::ALL.len() as f64);
    }
    Ok(checks)
}

fn transfer(wire: Wire) -> Result<Check> {
    let mut network = Experiment::parse("transfer", NETWORK)?;
    network.variants[0].wire = wire;
    let variant = &network.variants[0];
    let _host = HostXcpGuard::new(&network, variant)?;
    let stage = Topology::build(&network, variant, "")?;
    let to = socket_address(&address(&network, "d"), PORT)?;
    let failed = |e: std::io::Error| Error::io(format!("transfer ({})", wire.name()), &e);
    let blocking = |fd: OwnedFd| {
        let stream = TcpStream::from(fd);
        stream.set_nonblocking(false).map(|()| stream)
    };
    let listener = stage
        .within("d", || traffic::listen(to, "xcp", Socket::Tcp))?
        .map(TcpListener::from)
        .map_err(failed)?;
    listener.set_nonblocking(false).map_err(failed)?;
    let mut sender = stage
        .within("s", || traffic::connect(to, "xcp", Socket::Tcp))?
        .and_then(blocking)
        .map_err(failed)?;
    let (mut receiver, _) = listener.accept().map_err(failed)?;
    let sent = pattern();
    let mut came = Vec::new();
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            sender.write_all(&sent)?;
            sender.shutdown(std::net::Shutdown::Write)
        });
        let received = receiver.read_to_end(&mut came);
        sending
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the sender panicked")))
            .and(received)
    })
    .map_err(failed)?;
    let router = stage.within("r", || router::show("r-d"))??;
    let exact = came == sent;
    let what = if exact { "unchanged" } else { "changed" };
    Ok(Check {
        name: format!("transfer in {}", wire.name()),
        ok: exact && router.counters.xcp_packets > 1000 && router.counters.malformed == 0,
        seen: format!(
            "{} bytes arrived {what}; the router counted {} XCP packets and {} malformed ones",
            came.len(),
            router.counters.xcp_packets,
            router.counters.malformed
        ),
    })
}

/// Pseudo-random bytes, the same every time.
fn pattern() -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..TRANSFER_BYTES).map(|_| next()).collect()
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp why`: explains why a connection does not use XCP, and what to do.

mod cause;
mod hops;

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use xcp_cli::failure::{print_wait, Failure};
use xcp_cli::out::Out;
use xcp_datapath::connections::{self, Connection, State};
use xcp_datapath::host::{self, NetnsScope};
use xcp_datapath::{features, require_access, route_to, router, Fallback, Route, Wire};

use cause::Cause;

/// Timeout for opening a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout for feedback.
const FEEDBACK: Duration = Duration::from_secs(2);
/// Most protocols ignore an empty line.
const EMPTY_LINE: &[u8] = b"\r\n";
/// A buffer counts as the limit if it is smaller than the window, or if it has limited the
/// connection for more than this part of the time with data to send.
const MOST_OF_THE_TIME: f64 = 0.5;

/// The result.
struct Finding {
    peer: String,
    cause: Option<Cause>,
    /// The connection that was examined, if there is one.
    connection: Option<Connection>,
    /// Number of connections to the peer.
    connections: usize,
}

pub fn act(asked: &str, out: &Out) -> Result<ExitCode, Failure> {
    require_access("xcp why")?;
    let target = Target::resolve(asked)?;
    let finding = find(&target)?;
    let is_used = finding.cause.as_ref().is_none_or(Cause::is_remark);
    let value = json!({
        "peer": finding.peer,
        "uses_xcp": is_used,
        "cause": finding.cause.as_ref().map(Cause::name),
        "reason": finding.cause.as_ref().map(Cause::reason),
        "remedy": finding.cause.as_ref().map(Cause::remedy),
        "connections": finding.connections,
        "connection": finding.connection,
    });
    out.print(&value, |style| {
        let peer = style.bold(&finding.peer);
        match &finding.cause {
            None => format!("{peer}: {}", style.good("XCP is used")),
            Some(cause) => format!("{peer}: {}\n  help: {}", cause.reason(), cause.remedy()),
        }
    })?;
    Ok(ExitCode::from(u8::from(!is_used)))
}

/// The peer to examine.
struct Target {
    name: String,
    addresses: Vec<IpAddr>,
    port: Option<u16>,
}

impl Target {
    /// Resolves an address or a name, with or without a port.
    fn resolve(asked: &str) -> Result<Self, Failure> {
        let of = |addresses: Vec<IpAddr>, port| Self {
            name: asked.to_owned(),
            addresses,
            port,
        };
        let inner = asked.strip_prefix('[').and_then(|a| a.strip_suffix(']'));
        if let Ok(address) = inner.unwrap_or(asked).parse::<IpAddr>() {
            return Ok(of(vec![address.to_canonical()], None));
        }
        if let Ok(address) = asked.parse::<SocketAddr>() {
            return Ok(of(vec![address.ip().to_canonical()], Some(address.port())));
        }
        if asked.contains('%') {
            let reason = "link-local addresses are not supported";
            return Err(Failure::new(asked, reason, "give another address").bad_usage());
        }
        let (name, port) = match asked.rsplit_once(':') {
            Some((name, port)) => {
                let port = port.parse().map_err(|_| {
                    let reason = "not a port number after the colon";
                    Failure::new(asked, reason, "give HOST or HOST:PORT").bad_usage()
                })?;
                (name, Some(port))
            }
            None => (asked, None),
        };
        let found = (name, port.unwrap_or(0)).to_socket_addrs().map_err(|e| {
            let reason = format!("the name has no address: {e}");
            Failure::new(name, reason, "check the name, or give an address")
        })?;
        Ok(of(found.map(|a| a.ip().to_canonical()).collect(), port))
    }

    fn is(&self, peer: SocketAddr) -> bool {
        self.addresses.contains(&peer.ip()) && self.port.is_none_or(|port| port == peer.port())
    }
}

fn find(target: &Target) -> Result<Finding, Failure> {
    let about = |cause: Option<Cause>| Finding {
        peer: target.name.clone(),
        cause,
        connection: None,
        connections: 0,
    };
    if !host::is_on() {
        return Ok(about(Some(why_off())));
    }
    let host = host::status()?;
    if host.netns == NetnsScope::Another {
        return Ok(about(Some(Cause::OtherNamespace)));
    }
    let mut present = connections::all()?;
    present.retain(|c| target.is(c.peer) && !c.is_closing);
    // examine the one whose state is farthest from using XCP
    present.sort_by_key(|c| std::cmp::Reverse(c.state));
    let connections = present.len();
    let (connection, is_opened) = match present.into_iter().next() {
        Some(connection) => (connection, false),
        None => (open(target)?, true),
    };
    let peer = connection.peer;
    let host = Here {
        route: route_to(peer.ip()).unwrap_or_default(),
        wire: host::wire_for(peer.ip())?,
        status: host,
    };
    let cause = host.cause(&connection, is_opened);
    Ok(Finding {
        peer: peer.to_string(),
        cause,
        connection: Some(connection),
        connections,
    })
}

/// Returns why XCP is off: the kernel lacks features, or it was not switched on.
fn why_off() -> Cause {
    let missing = features::probe()
        .into_iter()
        .filter(|feature| feature.required && !feature.present);
    let missing: Vec<_> = missing.map(|f| (f.name.to_owned(), f.cost)).collect();
    match missing.is_empty() {
        true => Cause::Off,
        false => Cause::KernelLacks(missing),
    }
}

/// Opens a connection that uses XCP if possible, and lets it look for routers.
fn open(target: &Target) -> Result<Connection, Failure> {
    let Some(port) = target.port else {
        return Err(Failure::new(
            &target.name,
            "this host has no connection to it",
            format!("give a port to open one to: xcp why {}:PORT", target.name),
        ));
    };
    let mut failed = None;
    for address in &target.addresses {
        let peer = SocketAddr::new(*address, port);
        print_wait(&format!("xcp: opening a connection to {peer}"));
        match connect(peer) {
            Ok(tcp) => return watch(tcp, peer),
            Err(e) => failed = Some((peer, e)),
        }
    }
    let (peer, e) = failed.map_or((target.name.clone(), None), |(p, e)| {
        (p.to_string(), Some(e))
    });
    let reason = e.map_or("no address".into(), |e| e.to_string());
    Err(Failure::new(
        peer,
        format!("cannot open a connection: {reason}"),
        "check the port, and that a program listens there",
    ))
}

fn connect(peer: SocketAddr) -> io::Result<TcpStream> {
    let tcp = hops::opened(peer, None)?;
    hops::connected(&tcp, CONNECT)?;
    Ok(tcp.into())
}

/// Sends an empty line, if the peer supports XCP, and waits for feedback about the path.
fn watch(mut tcp: TcpStream, peer: SocketAddr) -> Result<Connection, Failure> {
    let failed = |e: io::Error| Failure::io(peer.to_string(), &e);
    let local = tcp.local_addr().map_err(failed)?;
    let (begun, mut has_sent) = (Instant::now(), false);
    loop {
        let mut all = connections::all()?;
        all.retain(|c| (c.local, c.peer) == (local, peer));
        let Some(connection) = all.pop() else {
            return Err(Failure::new(
                peer.to_string(),
                "the peer closed the connection at once",
                "give the port of a service that keeps connections open",
            ));
        };
        let is_known = connection.state != State::Probing || connection.fallback.is_some();
        if is_known || begun.elapsed() > FEEDBACK {
            return Ok(connection);
        }
        if !has_sent {
            tcp.write_all(EMPTY_LINE).map_err(failed)?;
            has_sent = true;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The settings of this host for the peer.
struct Here {
    status: host::Status,
    route: Route,
    /// None if XCP is not used with this peer.
    wire: Option<Wire>,
}

impl Here {
    fn cause(&self, connection: &Connection, is_opened: bool) -> Option<Cause> {
        let Some(wire) = self.wire else {
            return Some(Cause::NotAPeer);
        };
        match (connection.state, connection.fallback) {
            (State::NotXcp, _) => Some(self.not_chosen(&connection.control)),
            (_, Some(Fallback::Peer)) => Some(where_removed(connection.peer, wire)),
            (_, Some(Fallback::NoRouter)) => Some(self.no_router()),
            (_, Some(reason)) => Some(Cause::of_fallback(reason, wire, connection.is_mptcp)),
            (State::Xcp, None) if is_opened && !self.status.default => {
                Some(Cause::OpenedNotDefault(system_default()))
            }
            (State::Xcp, None) => self.remark(connection),
            (_, None) if connection.xcp_hops.is_some() => Some(self.no_router()),
            (_, None) => Some(Cause::NothingSent),
        }
    }

    /// Returns what has chosen another congestion control.
    fn not_chosen(&self, control: &str) -> Cause {
        let control = control.to_owned();
        match &self.route.control {
            Some(chosen) if *chosen == control => Cause::Route(control),
            _ if control != system_default() => Cause::Program(control),
            _ if self.status.default => Cause::OlderOrElsewhere(control),
            _ => Cause::NotDefault(control),
        }
    }

    /// The path has no router. If the output device has one, it does not get the packets.
    fn no_router(&self) -> Cause {
        let hiding = self.route.device.as_ref().and_then(|device| {
            let warnings = router::show(device).ok()?.warnings;
            let hiding = warnings.into_iter().find(|w| w.hides_packets)?;
            Some((device.clone(), hiding))
        });
        Cause::NoRouter(hiding)
    }

    /// Returns what limits a connection that uses XCP.
    fn remark(&self, connection: &Connection) -> Option<Cause> {
        let tcp = &connection.tcp;
        let mostly = |us: u64| us as f64 > MOST_OF_THE_TIME * tcp.busy_us.max(1) as f64;
        let is_small = |bytes: u32| u64::from(bytes) < tcp.cwnd_bytes;
        let sends = mostly(tcp.sndbuf_limited_us) || is_small(connection.send_buffer_bytes);
        let receives = mostly(tcp.rwnd_limited_us) || is_small(tcp.peer_window_bytes);
        let counters = &self.status.counters;
        let crowded = counters
            .return_no_room
            .saturating_sub(counters.sacks_trimmed);
        // that is of the whole host, and concerns only connections that receive data
        let sends_acks = tcp.received_bytes > 0;
        match () {
            () if connection.distrusts_path => Some(Cause::Distrusted),
            () if sends => Some(Cause::SendBuffer),
            () if receives => Some(Cause::ReceiveBuffer),
            () if sends_acks && crowded > 0 => Some(Cause::SackBlocks(crowded)),
            () => None,
        }
    }
}

/// The system's default congestion control.
fn system_default() -> String {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let name = fs::read_to_string(path).unwrap_or_default();
    name.trim().to_owned()
}

/// Finds out whether the peer does not support XCP, or the path removes the option.
fn where_removed(peer: SocketAddr, wire: Wire) -> Cause {
    if wire.is_header() {
        return Cause::Peer { wire, last: None };
    }
    print_wait("xcp: probing the path hop by hop for the removal of the option");
    // if no hop answers, the cause is the peer
    let hops = hops::find(peer, wire).unwrap_or_default();
    let mut after = None;
    for hop in hops {
        match hop.has_option {
            Some(true) => after = Some(hop.address),
            Some(false) => {
                return Cause::OptionRemoved {
                    after,
                    before: hop.address,
                }
            }
            None => {}
        }
    }
    Cause::Peer { wire, last: after }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_or_names_with_or_without_a_port() {
        let resolved = |asked: &str| -> Result<_, String> {
            let target = Target::resolve(asked).map_err(|e| e.to_string())?;
            Ok((target.addresses, target.port))
        };
        let v4 = |port| Ok((vec!["192.0.2.1".parse().expect("valid")], port));
        assert_eq!(resolved("192.0.2.1"), v4(None));
        assert_eq!(resolved("192.0.2.1:80"), v4(Some(80)));
        // as `ss` prints IPv4 addresses of IPv6 sockets
        assert_eq!(resolved("[::ffff:192.0.2.1]:80"), v4(Some(80)));
        assert_eq!(resolved("::ffff:192.0.2.1"), v4(None));
        let v6 = vec!["2001:db8::1".parse().expect("valid")];
        assert_eq!(resolved("[2001:db8::1]:443"), Ok((v6, Some(443))));
        let refused = |asked| resolved(asked).expect_err("refused");
        assert_eq!(
            refused("fe80::1%eth0"),
            "fe80::1%eth0: link-local addresses are not supported"
        );
        assert_eq!(refused("a:x"), "a:x: not a port number after the colon");
    }
}

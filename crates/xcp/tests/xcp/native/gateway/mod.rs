// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp gateway`: hosts that do not use XCP, with gateways between them.

mod applications;
mod many;
mod network;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{json, Value};
use xcp_datapath::host::PeerPolicies;
use xcp_datapath::wire::IP_PROTO;
use xcp_datapath::{host, router, Wire};
use xcp_gateway::status;
use xcp_testbed::{can_run, FaultInjector, FaultPlan, TestLock, PATIENCE};

use super::cases::option_space::sign_md5;
use crate::command::{xcp, Ran, SystemState, XCP};
use crate::common::{
    pattern, raw_address, retransmissions, set_option, set_sysctl, test_lock, transfer, wait_until,
    HostOn, SocketSetup, CLIENT, CLIENT6,
};
use network::{Gateways, FAR, HOST, HOST6, NEAR, NEAR_ADDRESS};

const CAPACITY: &str = "--capacity 100mbit";

fn set_linger_zero(socket: &TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger).unwrap();
}

fn read_fails(socket: &mut TcpStream) -> ErrorKind {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.read(&mut [0; 16]).unwrap_err().kind()
}

/// What a socket receives until the other side closes.
fn read_all(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The state of the system before the gateways were built.
struct Before {
    state: SystemState,
    _lock: TestLock,
}

impl Before {
    fn assert_nothing_left(self, gateways: Gateways) {
        drop(gateways);
        self.state.assert_nothing_left();
    }
}

/// Builds the network of a test that leaves nothing behind. None, with a message, if the test
/// cannot run here. A test that fails drops the network before the lock.
fn capture_and_build(test: &str) -> Option<(Before, Gateways)> {
    if !can_run(test) {
        return None;
    }
    let _lock = test_lock();
    let state = SystemState::capture_before(test)?;
    Some((Before { state, _lock }, Gateways::build()))
}

#[test]
fn connections_of_hosts_without_xcp_use_it_on_the_wan_side() {
    let test = "connections_of_hosts_without_xcp_use_it_on_the_wan_side";
    let Some((before, gateways)) = capture_and_build(test) else {
        return;
    };
    {
        let near = gateways.start(NEAR, CAPACITY);
        let far = gateways.start(FAR, CAPACITY);
        for (address, client_address) in [(HOST, CLIENT), (HOST6, CLIENT6)] {
            let listener = gateways.listen(address);
            let mut client = gateways.connect(listener.local_addr().unwrap());
            let (mut server, seen) = listener.accept().unwrap();
            assert_eq!(seen, client.local_addr().unwrap());
            assert_eq!(seen.ip().to_string(), client_address);
            assert_eq!(client.peer_addr().unwrap(), listener.local_addr().unwrap());
            transfer(&mut client, &mut server, &pattern(3_000_000));
            transfer(&mut server, &mut client, &pattern(3_000_000));

            for (node, wan) in [("r", &seen), ("s", &client.peer_addr().unwrap())] {
                let all = gateways.net.output(node, "ss -tinHO");
                let local = match wan {
                    SocketAddr::V4(v4) => v4.to_string(),
                    SocketAddr::V6(v6) => v6.to_string(),
                };
                for line in all.lines().filter(|line| line.starts_with("ESTAB")) {
                    let on_wan = line.split_whitespace().nth(3) == Some(&local);
                    assert_eq!(line.contains(" xcp "), on_wan, "{node}: {all}");
                }
                assert!(all.contains(" xcp "), "{node}: {all}");
            }
            drop(client);
            assert_eq!(read_all(&mut server), b"");
        }
        for gateway in [&near, &far] {
            wait_until("the end of all connections", || {
                gateway.count("connections") == 0
            });
            assert_eq!(gateway.count("accepted"), 2);
            assert_eq!(gateway.count("reset"), 0);
            assert_eq!(gateway.count("other_port"), 0);
            assert_eq!(gateway.count("bytes"), 12_000_000);
        }
        assert!(gateways.rules("r").contains("0x5843"));
    }
    assert!(!gateways.rules("r").contains("0x5843"));
    before.assert_nothing_left(gateways);
}

/// A counter of /proc/net/netstat in a node.
fn network_counter(gateways: &Gateways, node: &str, name: &str) -> u64 {
    let text = gateways.net.within(node, || {
        fs::read_to_string("/proc/thread-self/net/netstat").unwrap()
    });
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(n, _)| *n == name).unwrap().1.parse().unwrap()
}

#[test]
fn a_syn_between_gateways_carries_the_first_data() {
    let Some(gateways) = Gateways::new("a_syn_between_gateways_carries_the_first_data") else {
        return;
    };
    let setting = || {
        let read = || fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen").unwrap();
        gateways.net.within("s", read)
    };
    gateways
        .net
        .within("s", || set_sysctl("ipv4/tcp_fastopen", "1").unwrap());
    let near = gateways.start(NEAR, CAPACITY);
    let far = gateways.start(FAR, CAPACITY);
    assert_eq!(setting(), "3\n");
    for address in [HOST, HOST6] {
        // the first connection shows that there is a gateway
        let (mut client, mut server) = gateways.pair(address);
        transfer(&mut client, &mut server, &pattern(1000));
        let before = near.count("fast_open");

        let listener = gateways.listen(address);
        let mut client = gateways.connect(listener.local_addr().unwrap());
        client.write_all(b"question").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut question = [0; 8];
        server.read_exact(&mut question).unwrap();
        transfer(&mut server, &mut client, &pattern(300_000));
        transfer(&mut client, &mut server, &pattern(300_000));
        // a server that speaks first
        let (mut client, mut server) = gateways.pair(address);
        transfer(&mut server, &mut client, &pattern(1000));
        assert_eq!(near.count("fast_open"), before + 2);
        // a port that is closed
        let closed = gateways.listen(address).local_addr().unwrap();
        let mut client = gateways.connect(closed);
        client.write_all(b"question").unwrap();
        assert_eq!(read_fails(&mut client), ErrorKind::ConnectionReset);
    }
    assert!(network_counter(&gateways, "r", "TCPFastOpenActive") >= 2);
    assert!(network_counter(&gateways, "s", "TCPFastOpenPassive") >= 2);
    let host = xcp_datapath::host::counters().unwrap();
    assert_eq!(host.fallbacks.total(), 0, "{host:?}");
    far.kill();
    assert_eq!(setting(), "3\n");
    gateways.off("s").ok();
    assert_eq!(setting(), "1\n");
}

#[test]
fn a_source_may_close_before_the_handshake_on_the_wan() {
    let Some(gateways) = Gateways::new("a_source_may_close_before_the_handshake_on_the_wan") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let _far = gateways.start(FAR, CAPACITY);
    let start = || FaultInjector::start(FAR[2], FaultPlan::default()).unwrap();
    let wan = gateways.net.within(FAR[0], start);
    for message in [&b"message"[..], b""] {
        for closes in [true, false] {
            wait_until("the end of all connections", || {
                near.count("connections") == 0
            });
            // shows that there is a gateway
            let (mut client, mut server) = gateways.pair(HOST);
            transfer(&mut client, &mut server, &pattern(1000));
            let before = near.count("fast_open");
            let listener = gateways.listen(HOST);
            let late = FaultPlan {
                drop_syn_acks: 1,
                ..Default::default()
            };
            wan.plan(late).unwrap();
            let mut client = gateways.connect(listener.local_addr().unwrap());
            client.write_all(message).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let client = (!closes).then_some(client);
            let (mut server, _) = listener.accept().unwrap();
            assert_eq!(read_all(&mut server), message);
            if let Some(mut client) = client {
                server.write_all(b"answer").unwrap();
                drop(server);
                assert_eq!(read_all(&mut client), b"answer");
            }
            assert_eq!(near.count("fast_open"), before + 1);
        }
    }
}

#[test]
fn urgent_data_arrives_in_its_place() {
    let Some(gateways) = Gateways::new("urgent_data_arrives_in_its_place") else {
        return;
    };
    let _near = gateways.start(NEAR, CAPACITY);
    let (mut client, mut server) = gateways.pair(HOST);
    client.write_all(b"before").unwrap();
    // SAFETY: the buffer is of this length.
    let sent = unsafe { libc::send(client.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1);
    let mut received = [0; 7];
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    server.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"before!");
    client.write_all(b"after").unwrap();
    drop(client);
    assert_eq!(read_all(&mut server), b"after");
}

#[test]
fn data_that_arrived_before_a_reset_is_delivered() {
    let Some(gateways) = Gateways::new("data_that_arrived_before_a_reset_is_delivered") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let listener = gateways.listen(HOST);
    let to = listener.local_addr().unwrap();
    let small = |socket: &OwnedFd| {
        set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &4096).unwrap();
    };
    let connect = || SocketSetup::prepared(&small).connect(to);
    let mut client = gateways.net.within("c", connect);
    let (mut server, _) = listener.accept().unwrap();
    // the client does not read: most of it is in the gateway's send buffer
    let answer = pattern(40_000);
    server.write_all(&answer).unwrap();
    wait_until("the gateway to have all", || {
        near.count("bytes") == answer.len() as u64
    });
    set_linger_zero(&server);
    drop(server);
    thread::sleep(Duration::from_millis(500));
    let mut received = Vec::new();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = client.read_to_end(&mut received).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    assert_eq!(received.len(), answer.len());
}

#[test]
fn connections_are_split_with_src_valid_mark() {
    let Some(gateways) = Gateways::new("connections_are_split_with_src_valid_mark") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    // some VPNs set src_valid_mark
    gateways.net.within("r", || {
        set_sysctl("ipv4/conf/all/src_valid_mark", "1").unwrap()
    });
    let (mut client, mut server) = gateways.pair(HOST);
    transfer(&mut client, &mut server, &pattern(100_000));
    assert_eq!(near.count("accepted"), 1);
}

/// The socket that stays and the one that is to be reset.
fn staying_and_resetting(gateways: &Gateways, server_resets: bool) -> (TcpStream, TcpStream) {
    let (client, server) = gateways.pair(HOST);
    match server_resets {
        true => (client, server),
        false => (server, client),
    }
}

#[test]
fn half_close_reset_and_refusal_pass_through() {
    let Some(gateways) = Gateways::new("half_close_reset_and_refusal_pass_through") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let _far = gateways.start(FAR, CAPACITY);

    let (mut client, mut server) = gateways.pair(HOST);
    client.write_all(b"question").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut server), b"question");
    server.write_all(b"answer").unwrap();
    drop(server);
    assert_eq!(read_all(&mut client), b"answer");

    for server_resets in [true, false] {
        let (mut stays, mut resets) = staying_and_resetting(&gateways, server_resets);
        resets.write_all(b"part").unwrap();
        let mut part = [0; 4];
        stays.read_exact(&mut part).unwrap();
        set_linger_zero(&resets);
        drop(resets);
        assert_eq!(read_fails(&mut stays), ErrorKind::ConnectionReset);
    }

    let closed = gateways.listen(HOST).local_addr().unwrap();
    let mut client = gateways.connect(closed);
    assert_eq!(read_fails(&mut client), ErrorKind::ConnectionReset);
    wait_until("a connection that failed", || near.count("reset") == 3);
}

#[test]
fn a_reset_passes_through_while_both_sides_send() {
    let Some(gateways) = Gateways::new("a_reset_passes_through_while_both_sides_send") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    for server_resets in [true, false] {
        let (mut stays, mut resets) = staying_and_resetting(&gateways, server_resets);
        resets.write_all(b"part").unwrap();
        // until the gateway cannot write either
        stays
            .set_write_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let sent = stays.write_all(&pattern(50_000_000)).unwrap_err();
        assert_eq!(sent.kind(), ErrorKind::WouldBlock);
        drop(resets); // it has not read anything
        let mut received = Vec::new();
        stays.set_read_timeout(Some(PATIENCE)).unwrap();
        let end = stays.read_to_end(&mut received).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
        assert_eq!(received, b"part");
    }
    wait_until("two resets", || near.count("reset") == 2);
}

#[test]
fn connections_work_without_a_gateway_at_the_other_end() {
    let Some(gateways) = Gateways::new("connections_work_without_a_gateway_at_the_other_end")
    else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let (mut client, mut server) = gateways.pair(HOST);
    transfer(&mut client, &mut server, &pattern(1_000_000));
    transfer(&mut server, &mut client, &pattern(1_000_000));
    assert_eq!(near.count("accepted"), 1);
}

#[test]
fn a_killed_gateway_resets_its_connections_and_forwards_new_ones() {
    let test = "a_killed_gateway_resets_its_connections_and_forwards_new_ones";
    let Some((before, gateways)) = capture_and_build(test) else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let (mut client, mut server) = gateways.pair(HOST);
    transfer(&mut client, &mut server, &pattern(100_000));
    near.kill();
    assert_eq!(read_fails(&mut client), ErrorKind::ConnectionReset);
    assert_eq!(read_fails(&mut server), ErrorKind::ConnectionReset);

    let (mut client, mut server) = gateways.pair(HOST);
    assert_eq!(retransmissions(&client), 0);
    transfer(&mut client, &mut server, &pattern(100_000));
    // this connection is not split, and must not be when there is a gateway again
    let near = gateways.start(NEAR, CAPACITY);
    transfer(&mut client, &mut server, &pattern(100_000));
    let (mut split_client, mut split_server) = gateways.pair(HOST);
    transfer(&mut split_client, &mut split_server, &pattern(100_000));
    assert_eq!(near.count("connections"), 1);
    near.kill();

    let off = gateways.off("r").ok().json();
    assert_eq!(off["removed"], true);
    assert_eq!(gateways.off("r").ok().json()["removed"], false);
    assert!(!gateways.rules("r").contains("0x5843"));
    transfer(&mut client, &mut server, &pattern(100_000));
    before.assert_nothing_left(gateways);
}

#[test]
fn the_routing_rule_is_added_again_and_otherwise_left_alone() {
    let Some(gateways) = Gateways::new("the_routing_rule_is_added_again_and_otherwise_left_alone")
    else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let space = gateways.net.space("r");
    // prints a line for each change of a route or rule
    let mut monitor = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{space}"))
        .args(["timeout", "4", "ip", "monitor", "route", "rule"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(2500));
    for family in ["-4", "-6"] {
        gateways
            .net
            .tool("r", &format!("ip {family} rule del fwmark 0x5843"));
    }
    wait_until("the rules", || near.count("rule_repairs") > 0);
    assert_eq!(gateways.rules("r").matches("0x5843").count(), 6);
    let mut changes = String::new();
    let mut out = monitor.stdout.take().unwrap();
    out.read_to_string(&mut changes).unwrap();
    monitor.wait().unwrap();
    let first = changes.lines().next().unwrap();
    assert!(
        first.contains("Deleted") && first.contains("fwmark"),
        "{changes}"
    );
    let (mut client, mut server) = gateways.pair(HOST);
    transfer(&mut client, &mut server, &pattern(100_000));
    assert_eq!(near.count("accepted"), 1);
}

#[test]
fn off_ends_a_running_gateway() {
    let Some(gateways) = Gateways::new("off_ends_a_running_gateway") else {
        return;
    };
    let mut near = gateways.start(NEAR, CAPACITY);
    let off = gateways.off("r").ok().json();
    assert_eq!(off["ended"], true);
    assert_eq!(near.child.wait().unwrap().code(), Some(0));
}

#[test]
fn off_only_left_does_not_end_a_running_gateway() {
    let Some(gateways) = Gateways::new("off_only_left_does_not_end_a_running_gateway") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let off = format!("gateway off --only-left --socket {}", gateways.path("r"));
    let refused = gateways.xcp("r", &off);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains(" is running\n"), "{}", refused.err);
    assert!(gateways.rules("r").contains("0x5843"));
    near.kill();
    gateways.xcp("r", &off).ok();
    assert!(!gateways.rules("r").contains("0x5843"));
}

/// There is one routing rule per network namespace, so there can be only one gateway.
#[test]
fn a_gateway_with_another_socket_is_left_alone() {
    let Some(gateways) = Gateways::new("a_gateway_with_another_socket_is_left_alone") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let already = "is running in this network namespace";
    let [_, lan, wan] = NEAR;
    for other in [
        "gateway off".to_owned(),
        "gateway off --only-left".to_owned(),
        format!("gateway run --lan {lan} --wan {wan}"),
    ] {
        let refused = gateways.xcp("r", &format!("{other} --socket {}", gateways.path("other")));
        assert_eq!(refused.code, Some(1), "{other}: {}", refused.err);
        assert!(refused.err.contains(already), "{other}: {}", refused.err);
        assert!(gateways.rules("r").contains("0x5843"), "{other}");
    }
    let lock = format!("/run/xcp/gateway-{}.sock", near.status()["netns"]);
    assert!(fs::exists(&lock).unwrap(), "{lock}");
    drop(near);
    assert!(!fs::exists(&lock).unwrap(), "{lock}");
}

#[test]
fn other_protocols_and_signed_connections_are_forwarded_and_counted() {
    let Some(gateways) =
        Gateways::new("other_protocols_and_signed_connections_are_forwarded_and_counted")
    else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);

    let server = gateways
        .net
        .within("h", || UdpSocket::bind((HOST, 0)).unwrap());
    let client = gateways
        .net
        .within("c", || UdpSocket::bind((CLIENT, 0)).unwrap());
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let packets = near.packets("other_packets");
    client
        .send_to(b"datagram", server.local_addr().unwrap())
        .unwrap();
    let mut buffer = [0; 16];
    let (length, from) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(
        (&buffer[..length], from),
        (&b"datagram"[..], client.local_addr().unwrap())
    );
    assert!(near.packets("other_packets") > packets);

    let sign = |peer: &'static str| {
        move |socket: &OwnedFd| sign_md5(socket, peer.parse().unwrap()).unwrap()
    };
    let (to_client, to_server) = (sign(CLIENT), sign(HOST));
    let listener = gateways.net.within("h", || {
        SocketSetup::prepared(&to_client).listen(SocketAddr::new(HOST.parse().unwrap(), 0))
    });
    let to = listener.local_addr().unwrap();
    let mut client = gateways
        .net
        .within("c", || SocketSetup::prepared(&to_server).connect(to));
    let (mut server, _) = listener.accept().unwrap();
    transfer(&mut client, &mut server, &pattern(100_000));
    assert_eq!(near.packets("unsplittable"), 1);
    assert_eq!(near.count("accepted"), 0);
}

#[test]
fn reading_the_configuration_again_keeps_connections() {
    let Some(gateways) = Gateways::new("reading_the_configuration_again_keeps_connections") else {
        return;
    };
    let file = gateways.path("xcp.toml");
    let table = "[gateway]\nlan = [\"c\"]\nwan = \"s\"\ncapacity = \"100mbit\"\n";
    fs::write(&file, table).unwrap();
    let near = gateways.start_with("r", &format!("--config {file}"));
    let (mut client, mut server) = gateways.pair(HOST);
    transfer(&mut client, &mut server, &pattern(100_000));

    fs::write(&file, format!("{table}exclude = [\"{HOST}/32\"]\n")).unwrap();
    near.signal(libc::SIGHUP);
    wait_until("the new configuration", || {
        near.status()["filters"]["exclude"][0] == format!("{HOST}/32")
    });
    transfer(&mut client, &mut server, &pattern(100_000));
    let (mut excluded, mut other) = gateways.pair(HOST);
    transfer(&mut excluded, &mut other, &pattern(100_000));
    assert_eq!(near.packets("excluded"), 1);
    assert_eq!(near.count("connections"), 1);

    // an error in the file changes nothing
    fs::write(&file, "[gateway]\n").unwrap();
    near.signal(libc::SIGHUP);
    transfer(&mut client, &mut server, &pattern(100_000));
    assert_eq!(near.count("connections"), 1);
}

#[test]
fn all_filters_can_be_replaced() {
    let Some(gateways) = Gateways::new("all_filters_can_be_replaced") else {
        return;
    };
    let file = gateways.path("xcp.toml");
    let write = |net: u8| {
        let prefixes: Vec<_> = (0..4096)
            .map(|i| format!("\"10.{net}.{}.{}/32\"", i / 256, i % 256))
            .collect();
        let exclude = prefixes.join(",");
        let text = format!("[gateway]\nlan = [\"c\"]\nwan = \"s\"\nexclude = [{exclude}]\n");
        fs::write(&file, text).unwrap();
    };
    write(200);
    let near = gateways.start_with("r", &format!("--config {file}"));
    write(201);
    near.signal(libc::SIGHUP);
    wait_until("the new filters", || {
        near.status()["filters"]["exclude"][0] == "10.201.0.0/32"
    });
}

#[test]
fn a_router_of_the_wan_device_is_not_changed() {
    let Some(gateways) = Gateways::new("a_router_of_the_wan_device_is_not_changed") else {
        return;
    };
    gateways
        .xcp("r", "router add s --capacity 50mbit --max-rtt 2s")
        .ok();
    let socket = gateways.path("r");
    let run = format!("gateway run --lan c --wan s --max-connections 10 --socket {socket}");
    gateways.xcp("r", &format!("{run} {CAPACITY}")).failed(
        1,
        "xcp: s: is a router already\n  help: leave out the capacity of the gateway, or run: xcp \
         router del s\n",
    );
    assert_eq!(capacity_mbps(&gateways), Some(50));
    drop(gateways.start(NEAR, ""));
    assert_eq!(capacity_mbps(&gateways), Some(50));
    gateways.xcp("r", "router del s").ok();
}

#[test]
fn a_gateway_that_does_not_start_leaves_nothing_behind() {
    let test = "a_gateway_that_does_not_start_leaves_nothing_behind";
    let Some((before, gateways)) = capture_and_build(test) else {
        return;
    };
    // the last step before the proxy starts
    let setting = gateways.path("tcp_fastopen");
    fs::write(&setting, "x").unwrap();
    let mount = format!("mount --bind {setting} /proc/sys/net/ipv4/tcp_fastopen");
    let run = format!("gateway run --lan c --wan s --max-connections 10 {CAPACITY}");
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net=/run/netns/{}", gateways.net.space("r")))
        .args(["timeout", "20", "unshare", "--mount", "sh", "-c"])
        .arg(format!("{mount} && exec {XCP} {run}"));
    Ran::of(&mut command).failed(
        1,
        "xcp: /proc/sys/net/ipv4/tcp_fastopen: not a number\n  help: report this\n",
    );
    assert!(!gateways.rules("r").contains("0x5843"));
    before.assert_nothing_left(gateways);
}

#[test]
fn a_signal_during_the_start_leaves_nothing_behind() {
    let Some(gateways) = Gateways::new("a_signal_during_the_start_leaves_nothing_behind") else {
        return;
    };
    for after_ms in (0..100).step_by(10).chain((100..=500).step_by(50)) {
        let mut gateway = gateways.spawn(NEAR, CAPACITY);
        thread::sleep(Duration::from_millis(after_ms));
        gateway.signal(libc::SIGTERM);
        gateway.child.wait().unwrap();
        let off = gateways.off("r").ok().json();
        assert_eq!(off["removed"], false, "after {after_ms} ms");
    }
}

/// Without a file to read again, the signal means that the terminal was closed.
#[test]
fn a_gateway_without_a_file_ends_with_its_terminal() {
    let Some(gateways) = Gateways::new("a_gateway_without_a_file_ends_with_its_terminal") else {
        return;
    };
    let mut near = gateways.start(NEAR, CAPACITY);
    near.signal(libc::SIGHUP);
    wait_until("its end", || near.child.try_wait().unwrap().is_some());
    assert!(near.child.wait().unwrap().success());
    assert_eq!(gateways.off("r").ok().json()["removed"], false);
}

#[test]
fn headers_on_the_wan_side_are_refused() {
    let Some(gateways) = Gateways::new("headers_on_the_wan_side_are_refused") else {
        return;
    };
    let _host = HostOn::new();
    let headers = |device: &str| {
        let peers = ["10.77.3.0/24".parse().unwrap()];
        PeerPolicies::new(Wire::Header, &[device.to_owned()], &peers, IP_PROTO).unwrap()
    };
    let set = |policies: &PeerPolicies| {
        gateways
            .net
            .within("r", || host::set_peer_policies(policies))
    };
    set(&headers("s")).unwrap();
    let socket = gateways.path("refused");
    let run =
        format!("gateway run --lan c --wan s --max-connections 10 --socket {socket} {CAPACITY}");
    gateways.xcp("r", &run).failed(
        1,
        "xcp: s: has a wire format with headers, but a gateway splits TCP that follows IP\n  \
         help: use the wire format option on this device: xcp host on --wire option\n",
    );

    set(&headers("c")).unwrap();
    let near = gateways.start_at(status::SOCKET.to_owned(), "r", "--lan c --wan s");
    let on = |device: &str| {
        let on = format!("host on --wire header --peers 10.77.3.0/24 --dev {device}");
        gateways.xcp("r", &on)
    };
    on("c").ok();
    gateways
        .net
        .tool("r", "ip link property add dev s altname uplink");
    on("uplink").failed(
        1,
        "xcp: s: is the WAN device of a gateway, which cannot use wire format header\n  \
         help: use the wire format option, or end the gateway: xcp gateway off\n",
    );
    // a command of an older version may do it: connections are forwarded then
    set(&headers("s")).unwrap();
    wait_until("the device to be left out", || {
        near.status()["failures"][0]
            .as_str()
            .is_some_and(|text| text.starts_with("s: has a wire format with headers"))
    });
    set(&PeerPolicies::default()).unwrap();
    wait_until("the device", || {
        near.status()["failures"].as_array().unwrap().is_empty()
    });
    let (mut client, mut server) = gateways.pair(HOST);
    transfer(&mut client, &mut server, &pattern(100_000));
    assert_eq!(near.count("accepted"), 1);
}

/// The capacity of the router of the near gateway's WAN device, Mb/s.
fn capacity_mbps(gateways: &Gateways) -> Option<u64> {
    let options = gateways.net.within("r", || router::options("s"));
    let options = options.unwrap_or_default()?;
    Some(options.capacity_bytes_per_s / 125_000)
}

#[test]
fn devices_that_return_are_used_again() {
    let test = "devices_that_return_are_used_again";
    let Some((before, gateways)) = capture_and_build(test) else {
        return;
    };
    {
        gateways
            .net
            .tool("r", "ip link add gone type veth peer name gone-peer");
        let near = gateways.start(NEAR, &format!("--lan gone {CAPACITY}"));
        assert_eq!(capacity_mbps(&gateways), Some(100));
        // a device that does not return does not prevent the use of the others
        gateways.net.tool("r", "ip link del gone");
        gateways.replace_wan();
        assert_eq!(capacity_mbps(&gateways), None);
        wait_until("the router", || capacity_mbps(&gateways) == Some(100));
        wait_until("a connection that is split", || {
            let (mut client, mut server) = gateways.pair(HOST);
            transfer(&mut client, &mut server, &pattern(100_000));
            near.count("accepted") > 0
        });
        assert_eq!(
            near.status()["failures"],
            json!(["gone: no such network device here"])
        );
        gateways
            .net
            .tool("r", "ip link add gone type veth peer name gone-peer");
        wait_until("the device", || near.status()["failures"] == json!([]));
    }
    before.assert_nothing_left(gateways);
}

#[test]
fn reading_the_configuration_again_changes_router_and_limits() {
    let test = "reading_the_configuration_again_changes_router_and_limits";
    let Some(gateways) = Gateways::new(test) else {
        return;
    };
    let file = gateways.path("xcp.toml");
    let write = |lan: &str, lines: &str| {
        let text = format!("[gateway]\nlan = {lan}\nwan = \"s\"\n{lines}\n");
        fs::write(&file, text).unwrap();
    };
    write(r#"["c"]"#, "capacity = \"100mbit\"\nmax_connections = 10");
    let near = gateways.start_with("r", &format!("--config {file}"));
    for (lan, lines, mbps) in [
        (r#"["c"]"#, "capacity = \"50mbit\"", Some(50)),
        (r#"["c"]"#, "", None),
        // the other settings are applied even if a device is missing
        (r#"["c", "gone"]"#, "capacity = \"20mbit\"", Some(20)),
    ] {
        write(lan, &format!("{lines}\nmax_connections = 20"));
        near.signal(libc::SIGHUP);
        wait_until(lines, || capacity_mbps(&gateways) == mbps);
        assert_eq!(near.count("connections_max"), 20);
    }
    drop(near);
    assert_eq!(capacity_mbps(&gateways), None);
}

#[test]
fn a_missing_entry_of_the_limit_per_source_is_restored() {
    let Some(gateways) = Gateways::new("a_missing_entry_of_the_limit_per_source_is_restored")
    else {
        return;
    };
    let near = gateways.start(NEAR, &format!("{CAPACITY} --max-per-source 2"));
    let _pairs: Vec<_> = (0..2).map(|_| gateways.pair(HOST)).collect();
    wait_until("two connections", || near.count("connections") == 2);
    // as if the write had failed
    assert_eq!(xcp_testbed::delete_entries("full_sources").unwrap(), 1);
    wait_until("the limit", || {
        drop(gateways.pair(HOST));
        near.packets("over_limit") > 0
    });
}

#[test]
fn apply_changes_a_running_gateway() {
    let Some(gateways) = Gateways::new("apply_changes_a_running_gateway") else {
        return;
    };
    let file = gateways.path("xcp.toml");
    let table = "[gateway]\nlan = [\"c\"]\nwan = \"s\"\ncapacity = \"100mbit\"\n";
    let write = |lines: &str| fs::write(&file, format!("{table}{lines}\n")).unwrap();
    let apply = |args: &str| {
        let apply = format!("apply --json {args} {file}");
        gateways.xcp("r", &apply).ok().json()
    };
    write("");
    let applied = apply("");
    assert_eq!(applied["gateway"], Value::Null);
    assert_eq!(applied["gateway_differs"], true);

    let near = gateways.start_at(status::SOCKET.to_owned(), "r", &format!("--config {file}"));
    assert_eq!(apply("--check")["gateway"]["change"], "unchanged");
    let lines = "exclude_ports = [9]\nmax_connections = 50000";
    write(lines);
    let planned = apply("--check");
    assert_eq!(planned["gateway"]["change"], "changed");
    let differences = planned["gateway"]["differences"].as_array().unwrap();
    assert_eq!(differences[0]["key"], "exclude_ports");
    assert_eq!(differences[1]["after"], 50_000);
    assert_eq!(near.status()["filters"]["exclude_ports"], json!([]));
    assert_eq!(apply("")["gateway"]["change"], "changed");
    assert_eq!(near.status()["filters"]["exclude_ports"], json!([9]));
    let again = apply("");
    assert_eq!(again["gateway"]["change"], "unchanged");
    assert_eq!(again["gateway_differs"], false);
    let shown = gateways.xcp("r", "config show --json").ok().json();
    assert_eq!(shown["gateway"]["capacity"], "100mbit");

    // it does not read this file
    let other = gateways.path("other.toml");
    fs::write(&other, table).unwrap();
    let failed = gateways.xcp("r", &format!("apply --json {other}"));
    assert_eq!(failed.code, Some(3));
    assert_eq!(failed.json()["gateway"]["change"], "failed");
    fs::write(&other, "").unwrap();
    let left = gateways.xcp("r", &format!("apply --json {other}")).ok();
    assert_eq!(left.json()["gateway_differs"], true);

    // a router of a gateway that the file does not configure cannot be changed
    fs::write(&other, "[[router]]\ndevice = \"s\"\ncapacity = \"1mbit\"\n").unwrap();
    for check in ["", "--check"] {
        let refused = gateways.xcp("r", &format!("apply --json {check} {other}"));
        assert_eq!(refused.code, Some(3), "{refused:?}");
        let router = &refused.json()["routers"][0];
        assert_eq!(router["change"], "failed");
        assert_eq!(router["error"]["reason"], "is the router of a gateway");
    }

    // a table [[router]] takes the place of the gateway's own router
    let tables = "[gateway]\nlan = [\"c\"]\nwan = \"s\"\n\
                  [[router]]\ndevice = \"s\"\ncapacity = \"50mbit\"\n";
    fs::write(&file, tables).unwrap();
    assert_eq!(apply("--check")["routers"][0]["change"], "added");
    assert_eq!(apply("")["routers"][0]["change"], "added");
    let shown = gateways.xcp("r", "config show --json").ok().json();
    assert_eq!(shown["gateway"]["capacity"], Value::Null);
    assert_eq!(shown["router"][0]["capacity"], "50mbit");
    assert_eq!(apply("")["routers"][0]["change"], "unchanged");

    // status is that of one network namespace
    let gateway = |status: Ran| status.ok().json()["gateway"]["wan"].clone();
    assert_eq!(gateway(gateways.xcp("r", "status --json")), "s");
    assert_eq!(gateway(xcp("status --json")), Value::Null);
    drop(near);
}

#[test]
fn doctor_checks_what_a_gateway_needs() {
    let Some(gateways) = Gateways::new("doctor_checks_what_a_gateway_needs") else {
        return;
    };
    let present = |node: &str| {
        let report = gateways.xcp(node, "doctor --json").json();
        let all = report["features"].as_array().unwrap().clone();
        ["transparent proxies in BPF (tc, sk_lookup)", "forwarding"].map(|name| {
            let feature = all.iter().find(|feature| feature["name"] == name);
            feature.unwrap_or(&Value::Null)["present"].clone()
        })
    };
    assert_eq!(present("r"), [json!(true), json!(true)]);
    assert_eq!(present("h"), [json!(true), json!(false)]);
}

#[test]
fn connections_over_a_limit_are_forwarded() {
    let Some(gateways) = Gateways::new("connections_over_a_limit_are_forwarded") else {
        return;
    };
    for limit in ["--max-per-source 2", "--max-connections 2"] {
        let near = gateways.start(NEAR, &format!("{CAPACITY} {limit}"));
        let mut pairs: Vec<_> = (0..2).map(|_| gateways.pair(HOST)).collect();
        wait_until("two connections", || near.count("connections") == 2);
        let (mut client, mut server) = gateways.pair(HOST);
        transfer(&mut client, &mut server, &pattern(100_000));
        assert_eq!(near.packets("over_limit"), 1, "{limit}");
        pairs.pop();
        wait_until("one connection", || near.count("connections") == 1);
        let _pair = gateways.pair(HOST);
        wait_until("another connection", || near.count("connections") == 2);
    }
}

#[test]
fn ports_and_prefixes_select_connections() {
    let Some(gateways) = Gateways::new("ports_and_prefixes_select_connections") else {
        return;
    };
    let listener = gateways.listen(HOST);
    let port = listener.local_addr().unwrap().port();
    for (args, split) in [
        (format!("--port {port}"), true),
        ("--port 1".to_owned(), false),
        (format!("--exclude-port {port}"), false),
        (format!("--include {CLIENT}/32"), true),
        ("--include 192.0.2.0/24".to_owned(), false),
        (format!("--exclude 10.0.0.0/8 --include {HOST}/32"), false),
        (format!("--include 10.0.0.0/8 --exclude {CLIENT}/32"), false),
    ] {
        let near = gateways.start(NEAR, &format!("{CAPACITY} {args}"));
        let _client = gateways.connect(listener.local_addr().unwrap());
        let _server = listener.accept().unwrap();
        assert_eq!(near.packets("intercepted"), u64::from(split), "{args}");
        assert_eq!(near.packets("excluded"), u64::from(!split), "{args}");
    }
}

/// Opens a connection from this port.
fn connect_from(gateways: &Gateways, port: u16, to: SocketAddr) -> TcpStream {
    let bind = move |socket: &OwnedFd| {
        set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32).unwrap();
        let (storage, length) = raw_address(SocketAddr::new(CLIENT.parse().unwrap(), port));
        // SAFETY: the address lives through the call.
        let rc = unsafe { libc::bind(socket.as_raw_fd(), (&raw const storage).cast(), length) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    };
    let connect = || SocketSetup::prepared(&bind).connect(to);
    gateways.net.within("c", connect)
}

#[test]
fn a_source_port_can_be_used_again_at_once() {
    let Some(gateways) = Gateways::new("a_source_port_can_be_used_again_at_once") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let listener = gateways.listen(HOST);
    let to = listener.local_addr().unwrap();
    for _ in 0..3 {
        let mut client = connect_from(&gateways, 33_333, to);
        let (mut server, _) = listener.accept().unwrap();
        assert_eq!(retransmissions(&client), 0);
        transfer(&mut server, &mut client, &pattern(10_000));
        // the server closes first: its side, and the gateway's towards the client, wait
        drop(server);
        assert_eq!(read_all(&mut client), b"");
        drop(client);
        wait_until("the end of the connection", || {
            near.count("connections") == 0
        });
    }
    assert_eq!(near.count("accepted"), 3);
}

#[test]
fn icmp_errors_reach_the_gateway() {
    let Some(gateways) = Gateways::new("icmp_errors_reach_the_gateway") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    // the link behind the router is narrower: it answers "fragmentation needed" to the source
    gateways.net.tool("s", "ip link set dev h mtu 1300");
    for address in [HOST, HOST6] {
        let (mut client, mut server) = gateways.pair(address);
        transfer(&mut client, &mut server, &pattern(300_000));
    }
    assert_eq!(near.count("accepted"), 2);
}

#[test]
fn syn_cookies_work() {
    let Some(gateways) = Gateways::new("syn_cookies_work") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    gateways
        .net
        .within("r", || set_sysctl("ipv4/tcp_syncookies", "2").unwrap());
    for address in [HOST, HOST6] {
        let (mut client, mut server) = gateways.pair(address);
        transfer(&mut client, &mut server, &pattern(100_000));
    }
    // cookies of a service of the gateway itself
    let own = gateways
        .net
        .within("r", || TcpListener::bind((NEAR_ADDRESS, 0)).unwrap());
    own.set_nonblocking(true).unwrap();
    let _client = gateways.connect(own.local_addr().unwrap());
    wait_until("the connection", || own.accept().is_ok());
    assert_eq!(near.count("accepted"), 2);
}

#[test]
fn sources_without_a_route_back_are_not_accepted() {
    let Some(gateways) = Gateways::new("sources_without_a_route_back_are_not_accepted") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let listener = gateways.listen(HOST);
    let to = listener.local_addr().unwrap();
    drop(gateways.connect(to)); // now both know each other's link-layer address
    wait_until("one connection", || near.packets("intercepted") == 1);
    gateways.net.tool("c", "ip addr add 192.0.2.1/32 dev r");
    gateways.net.tool(
        "c",
        &format!("ip route add {HOST}/32 via 10.77.1.2 src 192.0.2.1"),
    );
    let net = &gateways.net;
    thread::scope(|scope| {
        scope.spawn(|| {
            let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(2));
            let _ = net.within("c", connect); // it gets no answer
        });
        wait_until("a SYN from a source without a route", || {
            near.packets("spoofed") > 0
        });
    });
    assert_eq!(near.packets("intercepted"), 1);
}

#[test]
fn the_listeners_of_the_gateway_are_no_proxy() {
    let Some(gateways) = Gateways::new("the_listeners_of_the_gateway_are_no_proxy") else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let all = gateways.net.output("r", "ss -tlnH");
    let mut found = 0;
    for line in all.lines() {
        let at: SocketAddr = line.split_whitespace().nth(3).unwrap().parse().unwrap();
        assert!(at.ip().is_loopback(), "{all}");
        let mut socket = gateways.net.within("r", || TcpStream::connect(at).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(socket.read(&mut [0; 1]), Ok(0) | Err(_)));
        found += 1;
    }
    assert_eq!(found, 4, "{all}");
    assert_eq!(near.count("accepted"), 0);
}

#[test]
fn connections_work_after_kills_at_random_moments() {
    let Some(gateways) = Gateways::new("connections_work_after_kills_at_random_moments") else {
        return;
    };
    let listener: TcpListener = gateways.listen(HOST);
    let to = listener.local_addr().unwrap();
    for moment in pattern(KILLS) {
        let near = gateways.start(NEAR, CAPACITY);
        let busy = gateways.pair(HOST);
        let sender = thread::spawn(move || {
            let (mut client, _server) = busy;
            let _ = client.write_all(&pattern(4_000_000));
        });
        thread::sleep(Duration::from_micros(128 * u64::from(moment)));
        near.kill();
        let mut client = gateways.connect(to);
        let (mut server, _) = listener.accept().unwrap();
        assert_eq!(retransmissions(&client), 0);
        transfer(&mut client, &mut server, &pattern(10_000));
        drop((client, server));
        sender.join().unwrap();
    }
    gateways.off("r").ok();
}

/// The kills of the test above; each takes a third of a second.
const KILLS: usize = 100;

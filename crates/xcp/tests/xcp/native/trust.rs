// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Which headers hosts accept: those of configured peers, in packets of existing
//! connections.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use crate::common::{
    control, default_control, pattern, test_lock, transfer, wait_for_acks, wait_until, HostOn, Net,
    CLIENT, LINK_BYTES_PER_S, SERVER,
};
use xcp_datapath::host::{self, NetnsScope, PeerPolicies};
use xcp_datapath::wire::IP_PROTO;
use xcp_datapath::Wire;
use xcp_testbed::can_run;

/// A forged packet from the client to the server with the draft's header, which reduces
/// the rate.
fn forged(client: SocketAddr, server: SocketAddr, seq: u32, ack: u32) -> Vec<u8> {
    const LENGTH: u8 = 60;
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let mut packet = vec![0x45, 0, 0, LENGTH, 0, 0, 0x40, 0, 64, IP_PROTO, 0, 0];
    packet.extend(address(CLIENT));
    packet.extend(address(SERVER));
    // TCP follows, 20 bytes, version 3 standard, xcp_ttl
    packet.extend([6, 20, 0x31, 64]);
    for word in [1 << 20, 1 << 25, -1_000_000_000, -1_000_000_000] {
        packet.extend(i32::to_be_bytes(word));
    }
    packet.extend(client.port().to_be_bytes());
    packet.extend(server.port().to_be_bytes());
    packet.extend(seq.to_be_bytes());
    packet.extend(ack.to_be_bytes());
    // an ACK with a window, without a checksum
    packet.extend([0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(packet.len(), usize::from(LENGTH));
    packet
}

/// Sends packets with their IP headers.
fn send(packets: &[Vec<u8>]) {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    // SAFETY: plain values; the descriptor is checked and owned at once.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    };
    for packet in packets {
        // SAFETY: a zeroed address is valid, and lives through the call.
        let sent = unsafe {
            let mut to: libc::sockaddr_in = std::mem::zeroed();
            to.sin_family = libc::AF_INET as _;
            to.sin_addr.s_addr = u32::from_ne_bytes(packet[16..20].try_into().unwrap());
            libc::sendto(
                socket.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const to).cast(),
                size_of_val(&to) as u32,
            )
        };
        assert_eq!(
            sent,
            packet.len() as isize,
            "{}",
            std::io::Error::last_os_error()
        );
    }
}

/// An attacker that knows addresses and ports but sees no packets must guess sequence
/// numbers.
#[test]
fn forged_headers_with_guessed_sequence_numbers_are_ignored() {
    let _lock = test_lock();
    if !can_run("forged headers") {
        return;
    }
    const GUESSES: u32 = 200;
    let net = Net::new("b");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    net.set_wire_format(Wire::Header);
    let (mut client, mut server) = net.connect("xcp", "xcp");
    transfer(&mut client, &mut server, &pattern(2_000_000));
    wait_for_acks([&client, &server]);
    let names = (client.local_addr().unwrap(), client.peer_addr().unwrap());
    let before = host::counters().unwrap();
    assert_eq!(before.implausible, 0, "{before:?}");
    let packets: Vec<Vec<u8>> = (1..=GUESSES)
        .map(|i| forged(names.0, names.1, i * 0x0123_4567, i * 0x0765_4321))
        .collect();
    net.within("r", || send(&packets));
    wait_until("all forged packets arrived", || {
        host::counters().unwrap().implausible == u64::from(GUESSES)
    });
    let after = host::counters().unwrap();
    assert_eq!(after.received_bytes_per_s, before.received_bytes_per_s);
    assert_eq!(after.feedback_bytes_per_s, before.feedback_bytes_per_s);
    // the connection continues with XCP
    transfer(&mut client, &mut server, &pattern(2_000_000));
    assert_eq!(control(&client), "xcp");
}

/// With `--peers`, a host neither offers XCP to other hosts nor answers their offers.
#[test]
fn hosts_that_are_not_peers_use_the_default_control() {
    let _lock = test_lock();
    if !can_run("hosts that are not peers") {
        return;
    }
    let net = Net::new("n");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    let set_peers = |node: &str, peers: &str| {
        let peer_policies =
            PeerPolicies::new(Wire::Option, &[], &[peers.parse().unwrap()], IP_PROTO).unwrap();
        net.within(node, || host::set_peer_policies(&peer_policies))
            .unwrap();
    };
    let controls = || {
        let (mut a, mut b): (TcpStream, TcpStream) = net.connect("xcp", "xcp");
        transfer(&mut a, &mut b, &pattern(500_000));
        [control(&a), control(&b)]
    };
    for (c, s, uses_xcp) in [
        ("10.9.0.0/16", "10.77.0.0/16", false),
        ("10.77.0.0/16", "10.9.0.0/16", false),
        ("10.77.0.0/16", "10.77.1.1", true),
        ("::/0", "::/0", true),
    ] {
        set_peers("c", c);
        set_peers("s", s);
        let wanted = match uses_xcp {
            true => "xcp".to_owned(),
            false => default_control(),
        };
        assert_eq!(controls(), [wanted.clone(), wanted], "{c}, {s}");
    }
    assert_eq!(host::counters().unwrap().sockets, 4);
}

/// With `--netns`, sockets of other network namespaces neither offer XCP nor answer
/// offers.
#[test]
fn xcp_can_be_limited_to_one_network_namespace() {
    let _lock = test_lock();
    if !can_run("one network namespace") {
        return;
    }
    let net = Net::new("o");
    net.add_routers(LINK_BYTES_PER_S);
    let sockets = || host::counters().unwrap().sockets;
    let _ = host::off();
    for (this_netns, xcp_sockets) in [(false, 2), (true, 0)] {
        let options = host::Options {
            this_netns,
            make_default: true,
            ..host::Options::default()
        };
        net.within("c", || host::on(&options)).unwrap();
        let before = sockets();
        let (mut a, mut b) = net.connect("xcp", "xcp");
        transfer(&mut a, &mut b, &pattern(500_000));
        assert_eq!(sockets() - before, xcp_sockets);
        assert_eq!(control(&b) == "xcp", xcp_sockets > 0);
        // sockets that select nothing, in this namespace and in another one
        for (node, uses) in [("c", true), ("s", !this_netns)] {
            let before = sockets();
            net.within(node, || {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let mut a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (mut b, _) = listener.accept().unwrap();
                transfer(&mut a, &mut b, b"x");
            });
            assert_eq!(sockets() - before, if uses { 2 } else { 0 }, "{node}");
        }
        let told = |node: &str| net.within(node, || host::status().unwrap().netns);
        let (here, there) = match this_netns {
            true => (NetnsScope::This, NetnsScope::Another),
            false => (NetnsScope::All, NetnsScope::All),
        };
        assert_eq!((told("c"), told("s")), (here, there));
    }
    host::off().unwrap();
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Other users of the 40 bytes of TCP options: signatures (TCP-MD5, TCP-AO),
//! MPTCP, AccECN, and other programs.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use xcp_datapath::connections;
use xcp_datapath::host::{self, Counters};
use xcp_datapath::{Fallback, Wire};
use xcp_testbed::{can_run, skipped, ForeignProgram};

use crate::common::{
    control, default_control, pattern, raw_address, set_option, set_sysctl, test_lock, transfer,
    wait_for_control, HostOn, Net, SocketSetup, CLIENT, CLIENT6, LINK_BYTES_PER_S, SERVER, SERVER6,
};

const BYTES: usize = 2_000_000;
const TCP_MD5SIG: i32 = 14;
const TCP_AO_ADD_KEY: i32 = 38;
const TCP_AO_KEYF_EXCLUDE_OPT: u8 = 2;
const KEY: &[u8] = b"secret";
/// An MPTCP socket.
pub const MPTCP: SocketSetup = SocketSetup {
    protocol: libc::IPPROTO_MPTCP,
    ..SocketSetup::PLAIN
};

/// `struct tcp_md5sig`.
#[repr(C)]
struct Md5Key {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix_len: u8,
    key_len: u16,
    ifindex: i32,
    key: [u8; 80],
}

/// `struct tcp_ao_add`.
#[repr(C, align(8))]
struct AoKey {
    address: libc::sockaddr_storage,
    algorithm: [u8; 64],
    ifindex: i32,
    set: u32,
    reserved2: u16,
    prefix_len: u8,
    send_id: u8,
    receive_id: u8,
    mac_len: u8,
    key_flags: u8,
    key_len: u8,
    key: [u8; 80],
}

fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

fn address_of(peer: IpAddr) -> libc::sockaddr_storage {
    raw_address(SocketAddr::new(peer, 0)).0
}

/// Signs packets to and from a peer with TCP-MD5.
pub fn sign_md5(socket: &OwnedFd, peer: IpAddr) -> io::Result<()> {
    let key = Md5Key {
        address: address_of(peer),
        flags: 0,
        prefix_len: 0,
        key_len: KEY.len() as u16,
        ifindex: 0,
        key: padded(KEY),
    };
    set_option(socket, libc::IPPROTO_TCP, TCP_MD5SIG, &key)
}

/// Signs packets to and from a peer with TCP-AO.
fn sign_ao(socket: &OwnedFd, peer: IpAddr, key_flags: u8) -> io::Result<()> {
    let key = AoKey {
        address: address_of(peer),
        algorithm: padded(b"hmac(sha1)"),
        ifindex: 0,
        set: 0,
        reserved2: 0,
        prefix_len: if peer.is_ipv4() { 32 } else { 128 },
        send_id: 100,
        receive_id: 100,
        mac_len: 12,
        key_flags,
        key_len: KEY.len() as u8,
        key: padded(KEY),
    };
    set_option(socket, libc::IPPROTO_TCP, TCP_AO_ADD_KEY, &key)
}

type Sign = fn(&OwnedFd, IpAddr) -> io::Result<()>;

const SIGNATURES: [(&str, Sign); 3] = [
    ("TCP-MD5", sign_md5),
    ("TCP-AO", |socket, peer| sign_ao(socket, peer, 0)),
    ("TCP-AO without options", |socket, peer| {
        sign_ao(socket, peer, TCP_AO_KEYF_EXCLUDE_OPT)
    }),
];

/// Whether this kernel supports the signature; reports the test as skipped if not.
fn has_signature(test: &str, sign: Sign) -> bool {
    let socket: OwnedFd = TcpListener::bind("0.0.0.0:0").unwrap().into();
    match sign(&socket, CLIENT.parse().unwrap()) {
        Ok(()) => true,
        Err(e) => {
            skipped(test, &format!("this kernel has no such signature: {e}"));
            false
        }
    }
}

fn connect_signed(net: &Net, sign: Sign, client: &str, server: &str) -> (TcpStream, TcpStream) {
    let (client, peer) = (client.parse().unwrap(), server.parse().unwrap());
    net.connect_with(
        server,
        &SocketSetup::prepared(&|socket| sign(socket, peer).unwrap()),
        &SocketSetup::prepared(&|socket| sign(socket, client).unwrap()),
    )
}

fn fallbacks(reason: Fallback) -> u64 {
    host::counters().unwrap().fallbacks.of(reason)
}

#[test]
fn signed_connections_use_the_default_control_from_the_syn_on() {
    let _lock = test_lock();
    if !can_run("signed connections") {
        return;
    }
    let net = Net::new("sg");
    net.add_routers(LINK_BYTES_PER_S);
    for (name, sign) in SIGNATURES {
        if !has_signature(name, sign) {
            continue;
        }
        for (client, server) in [(CLIENT, SERVER), (CLIENT6, SERVER6)] {
            let _host = HostOn::by_default();
            let (mut a, mut b) = connect_signed(&net, sign, client, server);
            transfer(&mut a, &mut b, &pattern(BYTES));
            transfer(&mut b, &mut a, &pattern(BYTES));
            assert_eq!(control(&a), default_control(), "{name}");
            assert_eq!(control(&b), default_control(), "{name}");
            let Counters {
                sockets,
                forward_sent,
                return_sent,
                ..
            } = host::counters().unwrap();
            assert_eq!((sockets, forward_sent, return_sent), (0, 0, 0), "{name}");
            assert_eq!(fallbacks(Fallback::Signed), 2, "{name}");
        }
    }
}

/// For example, a BGP daemon has one listener with the keys of some peers.
#[test]
fn a_listener_with_keys_uses_xcp_with_peers_without_keys() {
    let _lock = test_lock();
    if !can_run("listener with keys of others") {
        return;
    }
    let net = Net::new("sk");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::by_default();
    for (name, sign) in SIGNATURES {
        if !has_signature(name, sign) {
            continue;
        }
        let other: IpAddr = "10.77.99.1".parse().unwrap();
        let (mut a, mut b) = net.connect_with(
            SERVER,
            &SocketSetup::PLAIN,
            &SocketSetup::prepared(&|socket| sign(socket, other).unwrap()),
        );
        transfer(&mut a, &mut b, &pattern(BYTES));
        assert_eq!(control(&a), "xcp", "{name}");
        assert_eq!(control(&b), "xcp", "{name}");
    }
}

#[test]
fn mptcp_uses_the_default_control_from_the_handshake_on() {
    let _lock = test_lock();
    let test = "MPTCP";
    if !can_run(test) {
        return;
    }
    if !std::path::Path::new("/proc/sys/net/mptcp/enabled").exists() {
        return skipped(test, "this kernel has no MPTCP");
    }
    let net = Net::new("mp");
    net.add_routers(LINK_BYTES_PER_S);
    for server in [SERVER, SERVER6] {
        let _host = HostOn::by_default();
        let (mut a, mut b) = net.connect_with(server, &MPTCP, &MPTCP);
        transfer(&mut a, &mut b, &pattern(BYTES));
        transfer(&mut b, &mut a, &pattern(BYTES));
        assert_eq!(fallbacks(Fallback::NoRoom), 2);
        let Counters { sockets, .. } = host::counters().unwrap();
        assert_eq!(sockets, 0, "a connection started with XCP");
        for node in ["c", "s"] {
            let all = net.within(node, || connections::list().unwrap());
            let told: Vec<_> = all.iter().map(|c| (&*c.control, c.fallback)).collect();
            assert_eq!(told, [(&*default_control(), Some(Fallback::NoRoom))]);
        }
    }
    // Go's listeners use MPTCP, most clients do not
    let _host = HostOn::by_default();
    let (mut a, mut b) = net.connect_with(SERVER, &SocketSetup::PLAIN, &MPTCP);
    transfer(&mut a, &mut b, &pattern(BYTES));
    assert_eq!(control(&a), "xcp");
}

/// If other options leave no room for headers, the connection must not stay at its first
/// window.
#[test]
fn a_connection_without_option_space_for_headers_falls_back() {
    let _lock = test_lock();
    if !can_run("no room for headers") {
        return;
    }
    let net = Net::new("nr");
    net.add_routers(LINK_BYTES_PER_S);
    for server in [SERVER, SERVER6] {
        let _first = ForeignProgram::with_an_option().unwrap();
        let _host = HostOn::by_default();
        let (mut a, mut b) = net.connect_with(server, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
        transfer(&mut a, &mut b, &pattern(BYTES));
        wait_for_control(&a, &default_control());
        assert_eq!(control(&b), "xcp", "the server has sent nothing yet");
        assert_eq!(fallbacks(Fallback::NoRoom), 1);
        transfer(&mut b, &mut a, &pattern(BYTES));
        wait_for_control(&b, &default_control());
        let all = net.within("c", || connections::list().unwrap());
        assert_eq!(all[0].fallback, Some(Fallback::NoRoom), "{all:?}");
    }
    // smaller headers fit next to the same option
    let _first = ForeignProgram::with_an_option().unwrap();
    let _host = HostOn::by_default();
    net.set_wire_format(Wire::Option2005);
    let (mut a, mut b) = net.connect_with(SERVER, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
    transfer(&mut a, &mut b, &pattern(BYTES));
    assert_eq!(control(&a), "xcp");
}

/// The option of AccECN (Linux 7.2) takes 12 bytes of each segment, which leaves too few
/// for `option`.
#[test]
fn a_connection_with_accurate_ecn_falls_back() {
    let _lock = test_lock();
    let test = "AccECN";
    if !can_run(test) {
        return;
    }
    let net = Net::new("ae");
    net.add_routers(LINK_BYTES_PER_S);
    let has = |node| net.within(node, || set_sysctl("ipv4/tcp_ecn", "3").is_ok());
    if !has("c") || !has("s") {
        return skipped(test, "this kernel has no AccECN (net.ipv4.tcp_ecn=3)");
    }
    for server in [SERVER, SERVER6] {
        let _host = HostOn::by_default();
        let (mut a, mut b) = net.connect_with(server, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
        transfer(&mut a, &mut b, &pattern(BYTES));
        transfer(&mut b, &mut a, &pattern(BYTES));
        wait_for_control(&a, &default_control());
        wait_for_control(&b, &default_control());
        assert_eq!(fallbacks(Fallback::NoRoom), 2);
    }
}

#[test]
fn a_connection_from_a_syn_cookie_falls_back_and_is_counted() {
    let _lock = test_lock();
    if !can_run("SYN cookies") {
        return;
    }
    let net = Net::new("ck");
    net.add_routers(LINK_BYTES_PER_S);
    // 2: for all connections
    if let Err(e) = net.within("s", || set_sysctl("ipv4/tcp_syncookies", "2")) {
        return skipped("SYN cookies", &e.to_string());
    }
    for server in [SERVER, SERVER6] {
        let _host = HostOn::by_default_in_own_group();
        let (mut a, mut b) = net.connect_with(server, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
        transfer(&mut a, &mut b, &pattern(BYTES));
        assert_eq!(control(&a), default_control());
        assert_eq!(control(&b), default_control());
        assert_eq!(fallbacks(Fallback::SynCookie), 1, "fallback of the server");
        assert_eq!(fallbacks(Fallback::Peer), 1, "fallback of the client");
    }
}

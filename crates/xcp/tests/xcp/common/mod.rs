// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A small network on this host for the tests: client - router - server, each in
//! its own network namespace, with real TCP. It is removed when dropped.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use xcp_datapath::host::PeerPolicies;
use xcp_datapath::wire::IP_PROTO;
use xcp_datapath::{host, router, SenderFeature, Wire};
use xcp_testbed::TestLock;

/// Takes the test lock: tests that change the host's programs run one at a time,
/// even in different processes.
pub fn test_lock() -> TestLock {
    xcp_testbed::test_lock().unwrap()
}

/// Waits until a condition holds; `what` describes it.
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    assert!(
        xcp_testbed::eventually(holds),
        "timeout waiting for: {what}"
    );
}

/// The network client (c) - router (r) - server (s). A token bucket limits the
/// router's link to the server to 100 Mb/s.
pub struct Net {
    prefix: String,
    home: File,
}

pub const CLIENT: &str = "10.77.1.1";
pub const CLIENT6: &str = "fd77:1::1";
pub const SERVER: &str = "10.77.2.2";
pub const SERVER6: &str = "fd77:2::2";
/// The capacity of the link from the router to the server.
pub const LINK_BYTES_PER_S: u64 = 12_500_000;

impl Net {
    pub fn new(name: &str) -> Self {
        let net = Self {
            prefix: format!("xt{}{name}-", std::process::id()),
            home: File::open("/proc/thread-self/ns/net").unwrap(),
        };
        let (c, r, s) = (net.space("c"), net.space("r"), net.space("s"));
        for node in ["c", "r", "s"] {
            let space = net.space(node);
            ip(&format!("netns add {space}"));
            within_space(&space, "ip link set lo up");
            // duplicate address detection would delay IPv6 by two seconds
            net.within(node, || {
                set_sysctl("ipv6/conf/default/accept_dad", "0").unwrap();
            });
        }
        ip(&format!(
            "link add r netns {c} type veth peer name c netns {r}"
        ));
        ip(&format!(
            "link add s netns {r} type veth peer name r netns {s}"
        ));
        for (space, dev, address) in [
            (&c, "r", "10.77.1.1/24"),
            (&r, "c", "10.77.1.2/24"),
            (&r, "s", "10.77.2.1/24"),
            (&s, "r", "10.77.2.2/24"),
            (&c, "r", "fd77:1::1/64"),
            (&r, "c", "fd77:1::2/64"),
            (&r, "s", "fd77:2::1/64"),
            (&s, "r", "fd77:2::2/64"),
        ] {
            within_space(space, &format!("ip addr add {address} dev {dev}"));
            within_space(space, &format!("ip link set {dev} up"));
        }
        within_space(&c, "ip route add default via 10.77.1.2");
        within_space(&s, "ip route add default via 10.77.2.1");
        within_space(&c, "ip route add default via fd77:1::2");
        within_space(&s, "ip route add default via fd77:2::1");
        net.within("r", || {
            for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                set_sysctl(key, "1").unwrap();
            }
        });
        net.within("c", || wait_for_path(SERVER6));
        let shaper = "tc qdisc add dev s root tbf rate 100mbit burst 10k limit 64m";
        within_space(&r, shaper);
        net
    }

    pub fn space(&self, node: &str) -> String {
        format!("{}{node}", self.prefix)
    }

    /// Runs a closure in a node's namespace, on this thread.
    pub fn within<T>(&self, node: &str, work: impl FnOnce() -> T) -> T {
        let space = File::open(format!("/run/netns/{}", self.space(node))).unwrap();
        enter(&space);
        let result = work();
        enter(&self.home);
        result
    }

    /// Runs a tool in a node's namespace.
    pub fn tool(&self, node: &str, line: &str) {
        within_space(&self.space(node), line);
    }

    /// Runs a tool in a node's namespace and returns its output.
    pub fn output(&self, node: &str, line: &str) -> String {
        let space = self.space(node);
        output("nsenter", &format!("--net=/run/netns/{space} {line}"))
    }

    /// The state of all TCP sockets, for the message of a failed test.
    pub fn sockets(&self) -> String {
        let of = |node| self.output(node, "ss -tinO");
        format!("{}\n{}", of("c"), of("s"))
    }

    /// Adds XCP routers on the links to the server and to the client.
    pub fn add_routers(&self, capacity_bytes_per_s: u64) {
        self.add_routers_with_protocol(capacity_bytes_per_s, IP_PROTO);
    }

    /// Adds routers that expect XCP headers with this IP protocol number.
    pub fn add_routers_with_protocol(&self, capacity_bytes_per_s: u64, ip_proto: u8) {
        self.add_routers_with(router::Options {
            capacity_bytes_per_s,
            ip_proto,
            ..Default::default()
        });
    }

    pub fn add_routers_with(&self, options: router::Options) {
        self.within("r", || {
            router::add("s", options).unwrap();
            router::add("c", options).unwrap();
        });
    }

    pub fn del_routers(&self) {
        for node in ["c", "r", "s"] {
            self.within(node, || {
                for router in router::list().unwrap_or_default() {
                    let _ = router::del(&router.device);
                }
            });
        }
    }

    /// Resets the peer policies of client and server: both use only the wire
    /// format `option` from now on.
    pub fn reset_peer_policies(&self) {
        for node in ["c", "s"] {
            self.within(node, || host::set_peer_policies(&PeerPolicies::default()))
                .unwrap();
        }
    }

    /// Client and server use this wire format with each other from now on.
    pub fn set_wire_format(&self, wire: Wire) {
        self.set_wire_format_and_protocol(wire, IP_PROTO);
    }

    /// Like `set_wire_format`, with headers of this IP protocol number.
    pub fn set_wire_format_and_protocol(&self, wire: Wire, ip_proto: u8) {
        for (node, peers) in [
            ("c", ["10.77.2.0/24", "fd77:2::/64"]),
            ("s", ["10.77.1.0/24", "fd77:1::/64"]),
        ] {
            let peers = peers.map(|p| p.parse().unwrap());
            let peer_policies =
                PeerPolicies::new(wire, &["r".to_owned()], &peers, ip_proto).unwrap();
            self.within(node, || host::set_peer_policies(&peer_policies))
                .unwrap();
        }
    }

    /// Connects the client to the server; returns the sockets of (client, server).
    pub fn connect(&self, client_cc: &str, server_cc: &str) -> (TcpStream, TcpStream) {
        self.connect_to(SERVER, client_cc, server_cc)
    }

    /// Like `connect`, to one of the server's addresses.
    pub fn connect_to(
        &self,
        server: &str,
        client_cc: &str,
        server_cc: &str,
    ) -> (TcpStream, TcpStream) {
        self.connect_with(
            server,
            &SocketSetup::with_control(client_cc),
            &SocketSetup::with_control(server_cc),
        )
    }

    /// Like `connect_to`, with this setup of the sockets.
    pub fn connect_with(
        &self,
        server: &str,
        client: &SocketSetup<'_>,
        listener: &SocketSetup<'_>,
    ) -> (TcpStream, TcpStream) {
        let listener = self.listen(server, listener);
        let to = listener.local_addr().unwrap();
        let client = self.within("c", || client.connect(to));
        let (server, _) = listener.accept().unwrap();
        (client, server)
    }

    /// Opens a listener on one of the server's addresses.
    pub fn listen(&self, server: &str, setup: &SocketSetup<'_>) -> TcpListener {
        let at = SocketAddr::new(server.parse().unwrap(), 0);
        self.within("s", || setup.listen(at))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.del_routers();
        for node in ["c", "r", "s"] {
            ip(&format!("netns del {}", self.space(node)));
        }
    }
}

/// XCP is on until this is dropped: for this host, or for this process and its children.
pub struct HostOn {
    // after the programs, which are attached to it
    _group: Option<Group>,
}

impl HostOn {
    pub fn new() -> Self {
        Self::without(&[])
    }

    /// Turns XCP on without some features that senders have beyond the drafts.
    pub fn without(features: &[SenderFeature]) -> Self {
        host_on(&host::Options {
            without: features.to_vec(),
            ..host::Options::default()
        });
        Self { _group: None }
    }

    /// Turns XCP on as the default: all new sockets that do not choose a congestion control
    /// use `xcp`.
    pub fn by_default() -> Self {
        host_on(&host::Options {
            make_default: true,
            ..host::Options::default()
        });
        Self { _group: None }
    }

    /// The same for this process and its children only: other programs on this host, whose
    /// peers do not use XCP, do not change the counters.
    pub fn by_default_in_own_group() -> Self {
        let group = Group::enter("host");
        host_on(&host::Options {
            make_default: true,
            cgroup: Some(group.path.clone()),
            ..host::Options::default()
        });
        Self {
            _group: Some(group),
        }
    }

    /// Turns XCP on, but not as the default, for a control group without processes.
    pub fn in_another_group() -> Self {
        let group = Group::enter("host");
        Group::move_to(&group.home);
        host_on(&host::Options {
            cgroup: Some(group.path.clone()),
            ..host::Options::default()
        });
        Self {
            _group: Some(group),
        }
    }
}

fn host_on(options: &host::Options) {
    let _ = host::off();
    host::on(options).unwrap();
}

impl Drop for HostOn {
    fn drop(&mut self) {
        let _ = host::off();
    }
}

/// A control group that contains this process, with all its threads, until dropped.
pub struct Group {
    pub path: PathBuf,
    pub home: PathBuf,
}

impl Group {
    pub fn enter(name: &str) -> Self {
        let root = xcp_datapath::cgroup_mount_point().unwrap();
        let text = fs::read_to_string("/proc/self/cgroup").unwrap();
        let below = text.lines().find_map(|l| l.strip_prefix("0::/")).unwrap();
        let group = Self {
            path: root.join(format!("xcp-test-{name}-{}", std::process::id())),
            home: root.join(below),
        };
        fs::create_dir(&group.path).unwrap();
        Self::move_to(&group.path);
        group
    }

    pub fn move_to(group: &Path) {
        fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        Self::move_to(&self.home);
        fs::remove_dir(&self.path).unwrap();
    }
}

fn enter(space: &File) {
    let rc = unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(rc, 0, "setns: {}", std::io::Error::last_os_error());
}

/// Runs a tool in a network namespace. (`ip -n` would mount /sys again, which not
/// every container allows.)
fn within_space(space: &str, line: &str) {
    run("nsenter", &format!("--net=/run/netns/{space} {line}"));
}

/// Sets a sysctl of this thread's network namespace.
pub fn set_sysctl(key: &str, value: &str) -> std::io::Result<()> {
    fs::write(format!("/proc/sys/net/{key}"), value)
}

fn ip(args: &str) {
    run("ip", args);
}

pub fn run(tool: &str, args: &str) {
    output(tool, args);
}

/// Runs a tool and returns its output.
pub fn output(tool: &str, args: &str) -> String {
    let out = Command::new(tool)
        .args(args.split_whitespace())
        .output()
        .unwrap_or_else(|e| panic!("{tool}: {e}"));
    assert!(
        out.status.success(),
        "{tool} {args}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// Waits until the client can reach the server: an address that has just been added
/// may not be used yet. A connection before that uses another address and gets no
/// answer, so this tries again instead of waiting for one.
fn wait_for_path(server: &str) {
    let closed = SocketAddr::new(server.parse().unwrap(), 1);
    wait_until(&format!("a path to {server}"), || {
        let refused = TcpStream::connect_timeout(&closed, Duration::from_secs(1));
        matches!(refused, Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused)
    });
}

/// How a socket is set up before it binds or connects.
#[derive(Clone, Copy)]
pub struct SocketSetup<'a> {
    /// The protocol of the socket: 0 for TCP, or `IPPROTO_MPTCP`.
    pub protocol: i32,
    /// Sets socket options.
    pub prepare: &'a dyn Fn(&OwnedFd),
    /// The congestion control that is selected afterwards, if any.
    pub control: Option<&'a str>,
}

impl<'a> SocketSetup<'a> {
    /// A TCP socket without options that selects no congestion control.
    pub const PLAIN: Self = Self {
        protocol: 0,
        prepare: &|_| {},
        control: None,
    };

    pub fn with_control(control: &'a str) -> Self {
        Self {
            control: Some(control),
            ..Self::PLAIN
        }
    }

    pub fn prepared(prepare: &'a dyn Fn(&OwnedFd)) -> Self {
        Self {
            prepare,
            ..Self::PLAIN
        }
    }

    pub fn connect(&self, to: SocketAddr) -> TcpStream {
        self.open(to, libc::connect).into()
    }

    pub fn listen(&self, at: SocketAddr) -> TcpListener {
        let fd = self.open(at, libc::bind);
        assert_eq!(unsafe { libc::listen(fd.as_raw_fd(), 8) }, 0);
        fd.into()
    }

    /// Opens and prepares the socket, then calls `act` with the address: `libc::bind`
    /// or `libc::connect`.
    fn open(
        &self,
        address: SocketAddr,
        act: unsafe extern "C" fn(i32, *const libc::sockaddr, libc::socklen_t) -> i32,
    ) -> OwnedFd {
        let family = if address.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        unsafe {
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
            let fd = libc::socket(family, kind, self.protocol);
            assert!(fd >= 0, "socket: {}", std::io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            (self.prepare)(&fd);
            if let Some(control) = self.control {
                set_control(&fd, control);
            }
            let (storage, length) = raw_address(address);
            let rc = act(fd.as_raw_fd(), (&raw const storage).cast(), length);
            assert_eq!(rc, 0, "{address}: {}", std::io::Error::last_os_error());
            fd
        }
    }
}

/// Returns how many packets a socket has retransmitted, including its SYN.
pub fn retransmissions(socket: &TcpStream) -> u32 {
    // SAFETY: plain integers, of which 0 is valid; the kernel writes no more than the length.
    unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let rc = libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut length,
        );
        assert_eq!(rc, 0);
        info.tcpi_total_retrans
    }
}

/// Converts an address to the form that system calls take, and returns its length too.
pub fn raw_address(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: plain bytes, of which 0 is valid; both addresses fit into it.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let length = match address {
            SocketAddr::V4(v4) => {
                let raw = &mut *(&raw mut storage).cast::<libc::sockaddr_in>();
                raw.sin_family = libc::AF_INET as _;
                raw.sin_port = v4.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = &mut *(&raw mut storage).cast::<libc::sockaddr_in6>();
                raw.sin6_family = libc::AF_INET6 as _;
                raw.sin6_port = v6.port().to_be();
                raw.sin6_addr.s6_addr = v6.ip().octets();
                size_of::<libc::sockaddr_in6>()
            }
        };
        (storage, length as u32)
    }
}

pub fn set_option<T>(
    socket: &impl AsRawFd,
    level: i32,
    name: i32,
    value: &T,
) -> std::io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value outlives the call and has the given length.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            length,
        )
    };
    match rc {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

pub fn set_control(socket: &impl AsRawFd, name: &str) {
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as u32,
        )
    };
    assert_eq!(rc, 0, "{name}: {}", std::io::Error::last_os_error());
}

pub fn control(socket: &impl AsRawFd) -> String {
    let mut name = [0u8; 16];
    let mut length = 16;
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &mut length,
        )
    };
    assert_eq!(rc, 0);
    let end = name.iter().position(|b| *b == 0).unwrap_or(16);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// The default congestion control of the system.
pub fn default_control() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
        .unwrap()
        .trim()
        .to_owned()
}

/// Pseudo-random bytes, the same each time.
pub fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// Sends bytes in one direction and checks that they arrive unchanged.
pub fn transfer(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    let mut sender = from.try_clone().unwrap();
    let sent = bytes.to_vec();
    let thread = thread::spawn(move || sender.write_all(&sent).unwrap());
    let mut got = vec![0; bytes.len()];
    to.set_read_timeout(Some(xcp_testbed::PATIENCE)).unwrap();
    to.read_exact(&mut got).unwrap();
    thread.join().unwrap();
    assert!(got == bytes, "received bytes differ from those sent");
}

/// Waits until everything that the sockets have sent is acknowledged; delayed
/// ACKs take some time.
pub fn wait_for_acks(sockets: [&TcpStream; 2]) {
    let unacknowledged = |socket: &TcpStream| {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the number lives through the call.
        let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
        bytes
    };
    wait_until("ACKs for all data", || {
        sockets.iter().all(|socket| unacknowledged(socket) == 0)
    });
}

/// Sends repeatedly until the sender has fallen back to the default congestion
/// control.
pub fn send_until_default(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    wait_until("the default congestion control", || {
        transfer(from, to, &pattern(bytes));
        control(from) == default_control()
    });
}

/// Waits until a socket has this congestion control. It may change only when the
/// ACK of the last packet arrives.
pub fn wait_for_control(socket: &TcpStream, name: &str) {
    wait_until(&format!("the congestion control {name}"), || {
        control(socket) == name
    });
}

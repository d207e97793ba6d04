// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The ways for an application to use XCP, with the examples in docs/examples: each
//! fetches some bytes over an XCP path, in C and in Python.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::thread;

use crate::command::{xcp, SystemState, XCP};
use crate::common::{
    control, default_control, pattern, run, set_control, test_lock, Group, Net, CLIENT,
    LINK_BYTES_PER_S,
};
use tempfile::TempDir;

use super::run_in_own_process;
use xcp_datapath::host;
use xcp_testbed::{can_run, skipped};

const BYTES: usize = 1_000_000;
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");
const NUMBER: i32 = 200;
/// The IPv6 address of `c`, the server here.
const SERVER6: &str = "fd77:1::1";

/// The network and the compiled examples. The server is in `c` and the client in `s`:
/// data flows over the 100 Mb/s link.
struct Place {
    net: Net,
    bin: TempDir,
    _traces: Check,
}

/// Checks when dropped that nothing is left behind.
struct Check(SystemState);

impl Drop for Check {
    fn drop(&mut self) {
        let _ = host::off();
        if !thread::panicking() {
            self.0.assert_nothing_left();
        }
    }
}

impl Place {
    /// None if the test cannot run; the reason is printed on standard error.
    fn new(test: &str) -> Option<Self> {
        if !can_run(test) {
            return None;
        }
        for tool in ["cc", "python3"] {
            if Command::new(tool).arg("--version").output().is_err() {
                skipped(test, &format!("{tool} is not installed"));
                return None;
            }
        }
        let traces = Check(SystemState::capture_before(test)?);
        let bin = tempfile::tempdir().unwrap();
        for name in ["plain", "setsockopt", "protocol"] {
            let out = bin.path().join(name).display().to_string();
            run(
                "cc",
                &format!("-Wall -Wextra -Werror -O2 -o {out} {EXAMPLES}/{name}.c"),
            );
        }
        let net = Net::new("k");
        net.add_routers(LINK_BYTES_PER_S);
        Some(Self {
            net,
            bin,
            _traces: traces,
        })
    }

    /// The commands of an example in C and in Python.
    fn kinds(&self, name: &str) -> [Vec<String>; 2] {
        let compiled = self.bin.path().join(name).display().to_string();
        let script = format!("{EXAMPLES}/{name}.py");
        // -B: do not write bytecode into the documentation folder
        let python = ["python3", "-B", &script].map(str::to_owned);
        [vec![compiled], python.to_vec()]
    }

    /// Fetches from a listener with an example, in C and in Python; `before` is put
    /// before the command. Every byte must arrive, and both peers must use XCP all the
    /// time.
    fn fetch(&self, before: &[&str], example: &str, listener: &TcpListener) {
        for command in self.kinds(example) {
            let was = host::counters().unwrap();
            let ran = self.client(before, &command, listener);
            assert_eq!(ran, format!("xcp, {BYTES} bytes\n"), "{command:?}");
            let is = host::counters().unwrap();
            assert_eq!(is.sockets - was.sockets, 2, "both peers: {command:?}");
            assert_eq!(
                is.fallbacks.total(),
                was.fallbacks.total(),
                "a peer fell back"
            );
            let least = (BYTES / 1500) as u64;
            assert!(is.forward_received - was.forward_received >= least);
            assert!(is.return_received > was.return_received);
        }
    }

    /// Runs a client against a listener; returns its standard error.
    fn client(&self, before: &[&str], command: &[String], listener: &TcpListener) -> String {
        let to = listener.local_addr().unwrap();
        let sent = pattern(BYTES);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut connection, _) = listener.accept().unwrap();
                connection.write_all(&sent).unwrap();
            });
            let out = Command::new("nsenter")
                .arg(format!("--net=/run/netns/{}", self.net.space("s")))
                .args(before)
                .args(command)
                .args([to.ip().to_string(), to.port().to_string()])
                .output()
                .unwrap();
            let said = String::from_utf8(out.stderr).unwrap();
            assert!(out.status.success(), "{command:?}: {said}");
            assert!(out.stdout == sent, "{command:?}: the bytes differ");
            said
        })
    }

    /// Opens a listener in the server's namespace on a socket of this protocol number;
    /// with `choose`, it selects xcp by name.
    fn listen(&self, address: &str, protocol: i32, choose: bool) -> TcpListener {
        let address: SocketAddr = match address.contains(':') {
            true => format!("[{address}]:0"),
            false => format!("{address}:0"),
        }
        .parse()
        .unwrap();
        self.net.within("c", || {
            let family = if address.is_ipv6() {
                libc::AF_INET6
            } else {
                libc::AF_INET
            };
            // the standard library cannot open a socket with a protocol number
            let fd = socket(family, libc::SOCK_STREAM, protocol).unwrap();
            if choose {
                set_control(&fd, "xcp");
            }
            let model = TcpListener::bind(address).unwrap();
            let mut raw: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
            let mut length = std::mem::size_of_val(&raw) as u32;
            let rc = unsafe {
                let to = (&raw mut raw).cast();
                libc::getsockname(model.as_raw_fd(), to, &mut length)
            };
            assert_eq!(rc, 0);
            drop(model); // its port is free now
            unsafe {
                let at = (&raw const raw).cast();
                assert_eq!(libc::bind(fd.as_raw_fd(), at, length), 0);
                assert_eq!(libc::listen(fd.as_raw_fd(), 8), 0);
            }
            TcpListener::from(fd)
        })
    }

    fn ip(&self, node: &str, line: &str) {
        let space = self.net.space(node);
        run("nsenter", &format!("--net=/run/netns/{space} ip {line}"));
    }

    /// Sets or removes an attribute of the routes of server and client.
    fn set_routes(&self, server: &str, client: &str) {
        for (node, via4, via6, attribute) in [
            ("c", "10.77.1.2", "fd77:1::2", server),
            ("s", "10.77.2.1", "fd77:2::1", client),
        ] {
            for via in [via4, via6] {
                self.ip(
                    node,
                    &format!("route replace default via {via} {attribute}"),
                );
            }
        }
    }
}

fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // children of other threads must not keep it open
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[test]
fn a_program_selects_xcp_by_name() {
    let _lock = test_lock();
    let Some(place) = Place::new("setsockopt") else {
        return;
    };
    xcp("host on").ok();
    let listener = place.listen(CLIENT, 0, true);
    place.fetch(&[], "setsockopt", &listener);
    xcp("host off").ok();
}

#[test]
fn a_route_selects_xcp() {
    let _lock = test_lock();
    let Some(place) = Place::new("routes") else {
        return;
    };
    xcp("host on").ok();
    for address in [CLIENT, SERVER6] {
        // both peers by route; then one by route and the other by name
        let xcp = "congctl xcp";
        place.set_routes(xcp, xcp);
        place.fetch(&[], "plain", &place.listen(address, 0, false));
        place.set_routes("", xcp);
        place.fetch(&[], "plain", &place.listen(address, 0, true));
        place.set_routes(xcp, "");
        place.fetch(&[], "setsockopt", &place.listen(address, 0, false));

        // a server whose route selects reno does not answer the offer of XCP
        place.set_routes("congctl reno", xcp);
        let was = host::counters().unwrap();
        let listener = place.listen(address, 0, true);
        let [plain, _] = place.kinds("plain");
        let said = place.client(&[], &plain, &listener);
        assert_eq!(said, format!("{}, {BYTES} bytes\n", default_control()));
        let is = host::counters().unwrap();
        assert_eq!(is.sockets, was.sockets);
        assert_eq!(
            is.fallbacks.total() - was.fallbacks.total(),
            1,
            "only the client must fall back"
        );
    }
    xcp("host off").ok();
}

#[test]
fn a_control_group_selects_xcp() {
    if run_in_own_process("native::sockets::a_control_group_selects_xcp") {
        return;
    }
    let _lock = test_lock();
    let Some(place) = Place::new("control groups") else {
        return;
    };
    let group = Group::enter("default");
    xcp(&format!(
        "host on --default --cgroup {}",
        group.path.display()
    ))
    .ok();
    place.fetch(&[], "plain", &place.listen(CLIENT, 0, false));

    // outside the group, client and listener must select XCP themselves
    drop(group);
    xcp("host on").ok();
    let listener = place.listen(CLIENT, 0, true);
    place.fetch(&[XCP, "run", "--"], "plain", &listener);
    xcp("host off").ok();
}

#[test]
fn a_protocol_number_selects_xcp() {
    if run_in_own_process("native::sockets::a_protocol_number_selects_xcp") {
        return;
    }
    let _lock = test_lock();
    let test = "sockets of type IPPROTO_XCP";
    let Some(place) = Place::new(test) else {
        return;
    };
    assert!(!has_number(NUMBER), "the number is already in use");
    let on = xcp("host on --json").ok().json();
    let show = xcp("host show --json").ok().json();
    assert_eq!(on["socket_protocol"], show["socket_protocol"]);
    let sentence = xcp("host on").ok().out;
    if let Some(reason) = on["socket_protocol_note"].as_str() {
        refused(reason, &sentence);
        return skipped(test, reason);
    }
    assert_eq!(on["socket_protocol"], NUMBER);
    let line = format!("socket(AF_INET or AF_INET6, SOCK_STREAM, {NUMBER}) opens one with XCP\n");
    assert!(sentence.ends_with(&line), "{sentence}");

    place.fetch(&[], "protocol", &place.listen(CLIENT, NUMBER, false));
    place.fetch(&[], "protocol", &place.listen(SERVER6, NUMBER, false));

    only_what_was_asked_for();
    other_numbers_and_groups();

    xcp("host off").ok();
    assert!(!has_number(NUMBER), "`off` must remove the number");
}

/// Checks the note if the kernel does not support protocol numbers, and that everything
/// else works.
fn refused(reason: &str, sentence: &str) {
    let note = format!("note: sockets of type IPPROTO_XCP are not available: {reason}\n");
    assert!(sentence.ends_with(&note), "{sentence}");
    assert!(xcp("host show").ok().out.contains("socket protocol"));
    xcp(&format!("host on --socket-protocol {NUMBER}")).failed(
        1,
        &format!(
            "xcp: --socket-protocol {NUMBER}: {reason}\n  help: leave it out: programs can \
             choose XCP by setsockopt(TCP_CONGESTION, \"xcp\")\n"
        ),
    );
    let off = xcp("host on --socket-protocol off --json").ok().json();
    assert_eq!(off["change"], "unchanged");
    assert!(off["socket_protocol_note"].is_null());
    assert!(!has_number(NUMBER));
    xcp("host off").ok();
}

fn has_number(number: i32) -> bool {
    socket(libc::AF_INET, libc::SOCK_STREAM, number).is_ok()
}

/// Lets a socket listen; returns its congestion control.
fn when_listening(fd: OwnedFd) -> String {
    assert_eq!(unsafe { libc::listen(fd.as_raw_fd(), 1) }, 0);
    control(&fd)
}

/// Checks that other sockets do not get XCP, and that other numbers give no socket.
fn only_what_was_asked_for() {
    let plain = || socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    let ours = |kind| socket(libc::AF_INET, libc::SOCK_STREAM | kind, NUMBER);
    assert_eq!(when_listening(ours(libc::SOCK_NONBLOCK).unwrap()), "xcp");
    assert_eq!(when_listening(plain()), default_control());
    // a failed call does not affect the next socket
    let error = ours(1 << 30).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert_eq!(when_listening(plain()), default_control());
    // a socket can select another congestion control afterwards
    let other = ours(0).unwrap();
    set_control(&other, "reno");
    assert_eq!(when_listening(other), "reno");
    for (family, kind, number) in [
        (libc::AF_INET, libc::SOCK_DGRAM, NUMBER),
        (libc::AF_INET, libc::SOCK_STREAM, NUMBER + 1),
        (libc::AF_UNIX, libc::SOCK_STREAM, NUMBER),
    ] {
        assert!(socket(family, kind, number).is_err(), "{family} {kind}");
    }
}

/// Changes the number, and the group to which it is limited.
fn other_numbers_and_groups() {
    let on = |args: &str| xcp(&format!("host on {args} --json")).ok().json()["change"].clone();
    assert_eq!(on(""), "unchanged");
    assert_eq!(on("--socket-protocol 201"), "changed");
    assert!(has_number(201) && !has_number(NUMBER));
    assert_eq!(on("--socket-protocol off"), "changed");
    assert!(!has_number(201) && !has_number(NUMBER));

    let group = Group::enter("number");
    let covered = format!("--cgroup {}", group.path.display());
    assert_eq!(on(&covered), "changed");
    assert!(has_number(NUMBER));
    Group::move_to(&group.home);
    assert!(!has_number(NUMBER), "it must not work outside the group");
    assert_eq!(on(""), "changed");
    assert!(has_number(NUMBER));
}

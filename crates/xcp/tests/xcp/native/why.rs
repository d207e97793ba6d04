// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp why`: the tests create each cause that it can report.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;
use xcp_datapath::host::{self, PeerPolicies};
use xcp_datapath::wire::IP_PROTO;
use xcp_datapath::{connections, router, Wire};
use xcp_testbed::{can_run, skipped, FaultInjector, FaultPlan, ForeignProgram};

use super::cases::option_space::{sign_md5, MPTCP};
use crate::command::{xcp_within, Ran, XCP};
use crate::common::{
    default_control, pattern, send_until_default, set_option, set_sysctl, test_lock, transfer,
    wait_for_control, wait_until, HostOn, Net, SocketSetup, CLIENT, CLIENT6, LINK_BYTES_PER_S,
    SERVER, SERVER6,
};

const BYTES: usize = 2_000_000;

/// The JSON output of `xcp why` in a node's namespace.
fn why_json(net: &Net, node: &str, host: &str) -> Value {
    let ran = Ran::of(&mut xcp_within(
        &net.space(node),
        &format!("why {host} --json"),
    ));
    assert_eq!(ran.err, "", "{ran:?}");
    let value = ran.json();
    let expected = if value["uses_xcp"] == true { 0 } else { 1 };
    assert_eq!(ran.code, Some(expected), "{value}");
    value
}

/// Checks that `xcp why` names this cause, with these words in its text.
fn assert_cause(net: &Net, node: &str, host: &str, cause: &str, words: &[&str]) {
    let value = why_json(net, node, host);
    assert_eq!(value["cause"], cause, "{value}");
    let sentence = format!("{}; {}", value["reason"], value["remedy"]);
    for word in words {
        assert!(sentence.contains(word), "{word}: {sentence}");
    }
}

/// A network, or None if the test cannot run.
fn network(test: &str, name: &str) -> Option<Net> {
    can_run(&format!("why: {test}")).then(|| Net::new(name))
}

/// Hides /sys/kernel/btf from this process.
fn hide_type_information() -> std::io::Result<()> {
    let (none, btf, tmpfs) = (c"none", c"/sys/kernel/btf", c"tmpfs");
    // SAFETY: the strings are constant.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                none.as_ptr(),
                c"/".as_ptr(),
                none.as_ptr(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::mount(
                none.as_ptr(),
                btf.as_ptr(),
                tmpfs.as_ptr(),
                0,
                std::ptr::null(),
            ) == 0
    };
    match done {
        true => Ok(()),
        false => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn xcp_that_is_off_or_unsupported_is_reported() {
    let _lock = test_lock();
    let Some(net) = network("off", "wo") else {
        return;
    };
    let _ = host::off();
    assert_cause(
        &net,
        "c",
        SERVER,
        "off",
        &["XCP is off", "xcp host on --default"],
    );
    let plain = Ran::of(&mut xcp_within(&net.space("c"), &format!("why {SERVER}")));
    assert_eq!(
        (plain.code, plain.out.as_str()),
        (
            Some(1),
            "10.77.2.2: XCP is off on this host\n  help: switch it on: xcp host on --default\n"
        )
    );
    // a kernel without type information (BTF)
    let mut hidden = Command::new(XCP);
    hidden.args(["why", SERVER, "--json"]);
    // SAFETY: the function makes only system calls.
    unsafe { hidden.pre_exec(hide_type_information) };
    let ran = Ran::of(&mut hidden);
    let value = ran.json();
    assert_eq!(value["cause"], "kernel_lacks", "{value}");
    assert!(
        value["reason"].as_str().unwrap().contains("(BTF)"),
        "{value}"
    );
}

#[test]
fn another_namespace_or_a_host_that_is_not_a_peer_is_reported() {
    let _lock = test_lock();
    let Some(net) = network("peers", "wp") else {
        return;
    };
    let _ = host::off();
    let options = host::Options {
        this_netns: true,
        ..host::Options::default()
    };
    net.within("s", || host::on(&options)).unwrap();
    assert_cause(
        &net,
        "c",
        SERVER,
        "other_namespace",
        &["another network namespace"],
    );
    let _ = host::off();

    let _host = HostOn::by_default();
    let peers = ["10.9.0.0/16".parse().unwrap()];
    let peer_policies = PeerPolicies::new(Wire::Option, &[], &peers, IP_PROTO).unwrap();
    net.within("c", || host::set_peer_policies(&peer_policies))
        .unwrap();
    let (_a, _b) = net.connect_with(SERVER, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
    assert_cause(
        &net,
        "c",
        SERVER,
        "not_a_peer",
        &["not among the configured peers", "--peers"],
    );
}

#[test]
fn another_selected_congestion_control_is_reported() {
    let _lock = test_lock();
    let Some(net) = network("other controls", "wc") else {
        return;
    };
    net.add_routers(LINK_BYTES_PER_S);
    {
        let _ = host::off();
        let _older = net.connect_with(SERVER, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
        let _host = HostOn::by_default();
        assert_cause(
            &net,
            "c",
            SERVER,
            "older_or_elsewhere",
            &["older than", &default_control()],
        );
    }
    let _host = HostOn::new();
    {
        let _plain = net.connect_with(SERVER, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
        assert_cause(
            &net,
            "c",
            SERVER,
            "not_default",
            &["XCP is not the default", &default_control()],
        );
    }
    // XCP works with the peer, but programs do not use it
    let listener = net.listen(SERVER, &SocketSetup::with_control("xcp"));
    let opened = listener.local_addr().unwrap().to_string();
    assert_cause(
        &net,
        "c",
        &opened,
        "opened_not_default",
        &["XCP works", "--default"],
    );
    {
        let _chosen = net.connect("reno", "xcp");
        assert_cause(
            &net,
            "c",
            SERVER,
            "program",
            &["program has chosen", "reno"],
        );
    }
    net.tool("c", "ip route change default via 10.77.1.2 congctl reno");
    let _routed = net.connect("xcp", "xcp");
    assert_cause(
        &net,
        "c",
        SERVER,
        "route",
        &["the route to the peer", "reno", "congctl"],
    );
}

#[test]
fn a_peer_without_xcp_is_distinguished_from_a_path_that_removes_the_option() {
    let _lock = test_lock();
    let Some(net) = network("no answer", "wa") else {
        return;
    };
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    let plan = FaultPlan {
        strip: 1,
        ..Default::default()
    };
    for (server, router) in [(SERVER, "10.77.1.2"), (SERVER6, "fd77:1::2")] {
        let silent = net.listen(server, &SocketSetup::with_control("reno"));
        let to = silent.local_addr().unwrap().to_string();
        let seen = format!("{router} still received the option");
        assert_cause(&net, "c", &to, "peer", &["does not answer with XCP", &seen]);
        let _removing = net.within("c", || FaultInjector::start("r", plan).unwrap());
        let between = format!("between this host and {router}");
        assert_cause(&net, "c", &to, "option_removed", &[&between, "254"]);
    }
    net.set_wire_format(Wire::Header);
    let silent = net.listen(SERVER, &SocketSetup::with_control("reno"));
    let to = silent.local_addr().unwrap().to_string();
    assert_cause(
        &net,
        "c",
        &to,
        "peer",
        &["wire format header", "IP protocol"],
    );
}

#[test]
fn other_users_of_the_option_space_are_reported() {
    let _lock = test_lock();
    let Some(net) = network("option space", "ws") else {
        return;
    };
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::by_default();
    let sign = |socket: &OwnedFd, peer: &str| sign_md5(socket, peer.parse().unwrap());
    let probe: OwnedFd = TcpListener::bind("0.0.0.0:0").unwrap().into();
    match sign(&probe, CLIENT) {
        Ok(()) => {
            let _signed = net.connect_with(
                SERVER,
                &SocketSetup::prepared(&|socket| sign(socket, SERVER).unwrap()),
                &SocketSetup::prepared(&|socket| sign(socket, CLIENT).unwrap()),
            );
            assert_cause(&net, "c", SERVER, "signed", &["TCP-MD5"]);
        }
        Err(e) => skipped("why: signed", &format!("this kernel has no TCP-MD5: {e}")),
    }
    match std::path::Path::new("/proc/sys/net/mptcp/enabled").exists() {
        true => {
            let _parts = net.connect_with(SERVER, &MPTCP, &MPTCP);
            assert_cause(&net, "c", SERVER, "mptcp", &["MPTCP"]);
        }
        false => skipped("why: MPTCP", "this kernel has no MPTCP"),
    }
    {
        let _other = ForeignProgram::with_an_option().unwrap();
        let _host = HostOn::by_default();
        let (mut a, mut b) = net.connect_with(SERVER, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
        transfer(&mut a, &mut b, &pattern(BYTES));
        wait_for_control(&a, &default_control());
        assert_cause(&net, "c", SERVER, "no_room", &["no room", "option-2005"]);
    }
    if let Err(e) = net.within("s", || set_sysctl("ipv4/tcp_syncookies", "2")) {
        return skipped("why: SYN cookies", &e.to_string());
    }
    let _host = HostOn::by_default();
    let (mut a, mut b) = net.connect_with(SERVER, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
    transfer(&mut a, &mut b, &pattern(1000));
    assert_cause(
        &net,
        "s",
        CLIENT,
        "syn_cookie",
        &["SYN cookie", "somaxconn"],
    );
}

#[test]
fn missing_memory_for_the_state_of_a_connection_is_reported() {
    let _lock = test_lock();
    let Some(net) = network("memory", "wy") else {
        return;
    };
    let _host = HostOn::by_default();
    // enough memory for the fallback reason, but not for the state
    if let Err(e) = net.within("c", || set_sysctl("core/optmem_max", "400")) {
        return skipped("why: memory", &format!("net.core.optmem_max: {e}"));
    }
    let (_a, _b) = net.connect_with(SERVER, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
    assert_cause(&net, "c", SERVER, "memory", &["no memory", "optmem_max"]);
}

#[test]
fn a_path_without_routers_and_a_router_that_gets_no_packets_are_reported() {
    let _lock = test_lock();
    let Some(net) = network("no router", "wr") else {
        return;
    };
    let _host = HostOn::by_default();
    for server in [SERVER, SERVER6] {
        let listener = net.listen(server, &SocketSetup::PLAIN);
        let to = listener.local_addr().unwrap().to_string();
        assert_cause(
            &net,
            "c",
            &to,
            "no_router",
            &["no XCP router", "xcp router add DEV"],
        );
    }
    {
        let (_a, _b) = net.connect_with(SERVER, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
        assert_cause(&net, "c", SERVER, "nothing_sent", &["no data was sent yet"]);
    }
    net.within("c", || {
        let options = router::Options {
            capacity_bytes_per_s: LINK_BYTES_PER_S,
            ..Default::default()
        };
        router::add("r", options).unwrap();
    });
    let ends = net.within("c", || ForeignProgram::ending_tcx_chain("r", true).unwrap());
    let listener = net.listen(SERVER, &SocketSetup::PLAIN);
    let to = listener.local_addr().unwrap().to_string();
    assert_cause(
        &net,
        "c",
        &to,
        "no_router",
        &["the one on r of this host", "xcp_ends", "attach"],
    );
    drop(ends);
    let value = why_json(&net, "c", &to);
    assert_eq!(
        (&value["uses_xcp"], &value["cause"]),
        (&true.into(), &Value::Null),
        "{value}"
    );
}

#[test]
fn lost_feedback_and_reenabled_offload_are_reported() {
    let _lock = test_lock();
    let Some(net) = network("feedback that stops", "wf") else {
        return;
    };
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    {
        let faults = net.within("r", || {
            FaultInjector::start("c", FaultPlan::default()).unwrap()
        });
        let (mut a, mut b) = net.connect("xcp", "xcp");
        transfer(&mut a, &mut b, &pattern(BYTES));
        wait_for_control(&a, "xcp");
        let plan = FaultPlan {
            strip: 4,
            ..Default::default()
        };
        faults.plan(plan).unwrap();
        send_until_default(&mut a, &mut b, BYTES);
        assert_cause(
            &net,
            "c",
            SERVER,
            "silent",
            &["feedback stopped coming back"],
        );
    }
    net.set_wire_format(Wire::Header);
    // an administrator switches segmentation offload on again
    net.tool("c", "ip link set dev r gso_max_segs 64");
    let (mut a, mut b) = net.connect("xcp", "xcp");
    transfer(&mut a, &mut b, &pattern(BYTES));
    wait_for_control(&a, &default_control());
    assert_cause(&net, "c", SERVER, "stopped", &["GSO packets", "--dev"]);
}

/// Opens a connection and sends data until it uses XCP.
fn used(net: &Net, client: &SocketSetup<'_>, server: &SocketSetup<'_>) -> (TcpStream, TcpStream) {
    let (mut a, mut b) = net.connect_with(SERVER, client, server);
    wait_until("XCP", || {
        transfer(&mut a, &mut b, &pattern(BYTES / 10));
        let all = net.within("c", || connections::list().unwrap());
        all.iter().any(|c| c.state == connections::State::Xcp)
    });
    (a, b)
}

#[test]
fn distrust_and_full_acks_are_reported_for_connections_that_use_xcp() {
    let _lock = test_lock();
    let Some(net) = network("remarks", "wm") else {
        return;
    };
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::by_default();
    let uses = |cause: &str, words: &[&str]| {
        assert_cause(&net, "c", SERVER, cause, words);
        assert_eq!(why_json(&net, "c", SERVER)["uses_xcp"], true);
    };
    {
        let (mut a, mut b) = used(&net, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
        let plan = FaultPlan {
            drop_every: 5,
            ..Default::default()
        };
        let _losses = net.within("r", || FaultInjector::start("s", plan).unwrap());
        wait_until("distrust", || {
            transfer(&mut a, &mut b, &pattern(100_000));
            let all = net.within("c", || connections::list().unwrap());
            all.iter().any(|c| c.distrusts_path)
        });
        uses("distrusted", &["without an XCP router", "CUBIC"]);
    }
    // SACK blocks fill ACKs, as in the tests of conservation
    let _host = HostOn::by_default();
    net.add_routers_with(router::Options {
        capacity_bytes_per_s: 3 * LINK_BYTES_PER_S,
        measure: false,
        ..Default::default()
    });
    let plan = FaultPlan {
        drop_every: 40,
        ..Default::default()
    };
    {
        let _losses = net.within("r", || FaultInjector::start("s", plan).unwrap());
        let (mut a, mut b) = net.connect_with(SERVER, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
        wait_until("ACKs full of SACK blocks", || {
            transfer(&mut a, &mut b, &pattern(4 * BYTES));
            let counters = host::counters().unwrap();
            counters.return_no_room > counters.sacks_trimmed
        });
    }
    net.add_routers(LINK_BYTES_PER_S);
    let (mut a, mut b) = used(&net, &SocketSetup::PLAIN, &SocketSetup::PLAIN);
    // a connection that receives nothing sends no such ACKs
    assert_eq!(why_json(&net, "c", SERVER)["cause"], Value::Null);
    transfer(&mut b, &mut a, &pattern(BYTES));
    uses("sack_blocks", &["SACK blocks", "--dev"]);
}

#[test]
fn small_socket_buffers_are_reported() {
    let _lock = test_lock();
    let Some(net) = network("buffers", "wb") else {
        return;
    };
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::by_default();
    let buffer = |name: i32, bytes: i32| {
        move |socket: &OwnedFd| set_option(socket, libc::SOL_SOCKET, name, &bytes).unwrap()
    };
    {
        let _ends = used(
            &net,
            &SocketSetup::prepared(&buffer(libc::SO_SNDBUF, 8192)),
            &SocketSetup::PLAIN,
        );
        assert_cause(
            &net,
            "c",
            SERVER,
            "send_buffer",
            &["send buffer", "tcp_wmem"],
        );
    }
    {
        let _ends = used(
            &net,
            &SocketSetup::PLAIN,
            &SocketSetup::prepared(&buffer(libc::SO_RCVBUF, 4096)),
        );
        assert_cause(
            &net,
            "c",
            SERVER,
            "receive_buffer",
            &["receive buffer", "tcp_rmem"],
        );
    }
}

#[test]
fn hosts_that_cannot_be_examined_are_errors() {
    let _lock = test_lock();
    let Some(net) = network("errors", "we") else {
        return;
    };
    let _host = HostOn::new();
    for (host, reason) in [
        (SERVER.to_owned(), "this host has no connection to it"),
        (
            format!("{SERVER}:1"),
            "cannot open a connection: Connection refused",
        ),
        (format!("[{CLIENT6}]:x"), "not a port number"),
        ("no.such.invalid".to_owned(), "the name has no address"),
    ] {
        let ran = Ran::of(&mut xcp_within(&net.space("c"), &format!("why {host}")));
        assert!(ran.code != Some(0) && ran.err.contains(reason), "{ran:?}");
        assert!(ran.err.contains("\n  help: "), "{ran:?}");
    }
}

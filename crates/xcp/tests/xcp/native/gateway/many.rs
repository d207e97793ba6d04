// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! 10,000 connections at once through two gateways, and the memory that they need.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use nix::sys::resource::{getrlimit, setrlimit, Resource};
use xcp_testbed::{skipped, PATIENCE};

use super::network::{Gateways, FAR, HOST, NEAR};
use super::CAPACITY;
use crate::common::wait_until;

const CONNECTIONS: usize = 10_000;
/// What a gateway needs for each connection, and for itself.
const FILES_PER_CONNECTION: u64 = 6;
const OTHER_FILES: u64 = 256;

/// Lets this process open enough files; the gateways do the same. Returns the number of
/// connections for which the limit suffices.
fn raise_file_limit(test: &str) -> usize {
    let needed = FILES_PER_CONNECTION * CONNECTIONS as u64 + OTHER_FILES;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let files = needed.max(hard);
    if setrlimit(Resource::RLIMIT_NOFILE, files, files).is_ok() {
        return CONNECTIONS;
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let possible = hard.saturating_sub(OTHER_FILES) / FILES_PER_CONNECTION;
    let why = format!("{needed} open files are needed, the limit is {hard}");
    skipped(test, &format!("only {possible} connections: {why}"));
    possible as usize
}

/// A value of a file of /proc, in bytes.
fn memory_bytes(file: &str, name: &str) -> i64 {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: i64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

#[test]
fn ten_thousand_connections_work_at_once() {
    let test = "ten_thousand_connections_work_at_once";
    let Some(gateways) = Gateways::new(test) else {
        return;
    };
    let connections = raise_file_limit(test);
    let limits = format!("--max-connections {connections} --max-per-source {connections}");
    let near = gateways.start(NEAR, &format!("{CAPACITY} {limits}"));
    let far = gateways.start(FAR, &format!("{CAPACITY} {limits}"));
    let measure = || {
        let process = |gateway: &super::network::Running| {
            let status = format!("/proc/{}/status", gateway.child.id());
            memory_bytes(&status, "VmRSS:")
        };
        let kernel = memory_bytes("/proc/meminfo", "Slab:");
        [process(&near), process(&far), kernel]
    };
    let listener = gateways.listen(HOST);
    let to = listener.local_addr().unwrap();
    let before = measure();
    let mut pairs: Vec<(TcpStream, TcpStream)> = gateways.net.within("c", || {
        let open = |_| {
            let mut client = TcpStream::connect(to).unwrap();
            // the gateway waits for it, to send it with the SYN
            client.write_all(b"a").unwrap();
            (client, listener.accept().unwrap().0)
        };
        (0..connections).map(open).collect()
    });
    for gateway in [&near, &far] {
        wait_until("all connections", || {
            gateway.count("connections") == connections as u64
        });
    }
    let after = measure();
    // all of them still work
    for (client, _) in &mut pairs {
        client.write_all(b"b").unwrap();
    }
    for (_, server) in &mut pairs {
        let mut bytes = [0; 2];
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        server.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"ab");
        server.write_all(b"c").unwrap();
    }
    for (client, _) in &mut pairs {
        let mut byte = [0];
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"c");
    }
    let [near_bytes, far_bytes, kernel_bytes] =
        [0, 1, 2].map(|i| (after[i] - before[i]) / connections as i64);
    println!(
        "memory of each of {connections} connections: {near_bytes} and {far_bytes} bytes of the gateways' processes, \
         {kernel_bytes} bytes of the kernel for six sockets"
    );
    assert!(
        near_bytes.max(far_bytes) < 10_000,
        "{near_bytes} {far_bytes}"
    );
    drop(pairs);
    for gateway in [&near, &far] {
        wait_until("the end of all connections", || {
            gateway.count("connections") == 0
        });
        assert_eq!(gateway.count("accepted"), connections as u64);
        assert_eq!(gateway.count("not_connected"), 0);
    }
}

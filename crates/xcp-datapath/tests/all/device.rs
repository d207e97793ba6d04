// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs the host's device program on golden packets: headers for this host are removed,
//! and all other packets pass unchanged.

use std::net::TcpListener;
use std::process::Command;
use std::thread;

use crate::wire::cases;
use crate::wire::decode::{self, Kind, Wire};
use crate::wire::{checksum, frame};
use xcp_testbed::Ingress;

const ETHERNET: usize = 14;
/// The destination addresses of the golden packets.
const ADDRESSES: [&str; 2] = ["198.51.100.2/32", "2001:db8:1::2/128"];

/// Runs `work` on a thread in a new network namespace with these addresses.
fn in_a_host(addresses: &[&str], work: impl FnOnce(Ingress) + Send) {
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            ip("link set lo up");
            for address in addresses {
                ip(&format!("addr add {address} dev lo"));
            }
            let _lock = xcp_testbed::shared_test_lock().expect("the test lock is available");
            work(Ingress::new().expect("the program loads"));
        });
    });
}

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status().unwrap();
    assert!(status.success(), "ip {line}");
}

/// Returns the packet without its XCP header, if the host must remove it.
fn without_header(bytes: &[u8]) -> Option<Vec<u8>> {
    let seen = decode::decode(bytes);
    let at = seen.header_offset?;
    let plain = [ETHERNET + 20, ETHERNET + 40].contains(&at);
    let header = &bytes[at..];
    let (protocol, length) = match seen.wire? {
        Wire::Header2004 => (header[1], header[2]),
        _ => (header[0], header[1]),
    };
    let length = if length == 40 {
        20
    } else {
        usize::from(length)
    };
    if seen.kind == Kind::Malformed || !plain || protocol != frame::TCP {
        return None;
    }
    let mut out = bytes.to_vec();
    out.drain(at..at + length);
    let ip = &mut out[ETHERNET..at];
    if ip[0] >> 4 == 4 {
        if ip[0] != 0x45 {
            return None;
        }
        let total = u16::from_be_bytes([ip[2], ip[3]]) - length as u16;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[9] = frame::TCP;
        ip[10..12].fill(0);
        let check = !checksum::sum(&[ip]);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
    } else {
        let total = u16::from_be_bytes([ip[4], ip[5]]) - length as u16;
        ip[4..6].copy_from_slice(&total.to_be_bytes());
        ip[6] = frame::TCP;
    }
    Some(out)
}

#[test]
fn headers_for_this_host_are_removed() {
    if !xcp_testbed::can_run("device program on golden packets") {
        return;
    }
    in_a_host(&ADDRESSES, |ingress| {
        let mut changed = 0;
        for case in cases::all() {
            println!("{}", case.name);
            let bytes = case.bytes();
            // tagged packets belong to the VLAN's own device
            let want = without_header(&bytes).filter(|_| bytes[12..14] != [0x81, 0]);
            changed += usize::from(want.is_some());
            let Some(out) = ingress.packet(&bytes).expect("the program runs") else {
                continue;
            };
            assert!(out == want.unwrap_or(bytes), "{}: {out:02x?}", case.name);
        }
        assert!(changed > 20, "{changed}");
    });
}

#[test]
fn headers_for_other_hosts_pass_unchanged() {
    if !xcp_testbed::can_run("device program on packets for others") {
        return;
    }
    in_a_host(&[], |ingress| {
        ip("addr add 192.0.2.9/24 dev lo");
        ip("route add 198.51.100.0/24 via 192.0.2.8");
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        let bytes = cases::named("header-standard").bytes();
        let pass = || {
            let out = ingress.packet(&bytes).expect("the program runs");
            assert_eq!(out.as_ref(), Some(&bytes));
        };
        pass();
        // a service of this host has the port that the packet is sent to
        let tcp = ETHERNET + 20 + usize::from(bytes[ETHERNET + 20 + 1]);
        let port = u16::from_be_bytes([bytes[tcp + 2], bytes[tcp + 3]]);
        let _service = TcpListener::bind(("0.0.0.0", port)).unwrap();
        pass();
    });
}

#[test]
fn cut_headers_are_counted_and_pass_unchanged() {
    if !xcp_testbed::can_run("device program on cut packets") {
        return;
    }
    in_a_host(&ADDRESSES, |ingress| {
        for (name, at) in [("header-standard", 34), ("header-ipv6", 54)] {
            let whole = cases::named(name).bytes();
            // also cut where TCP's ports and flags, which identify the connection, are missing
            for length in at..at + 20 + 13 {
                let before = ingress.malformed().expect("readable");
                let frame = &whole[..length];
                let Some(out) = ingress.packet(frame).expect("the program runs") else {
                    continue;
                };
                assert!(out == frame, "{name} cut to {length}");
                assert_eq!(ingress.malformed().unwrap(), before + 1, "{length}");
            }
        }
    });
}

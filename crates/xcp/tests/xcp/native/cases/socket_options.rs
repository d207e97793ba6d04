// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Socket options that limit what a connection sends: XCP works within these limits.

use std::os::fd::OwnedFd;

use xcp_datapath::host;
use xcp_testbed::can_run;

use crate::common::{
    control, pattern, set_option, test_lock, transfer, HostOn, Net, SocketSetup, LINK_BYTES_PER_S,
    SERVER, SERVER6,
};

const BYTES: usize = 2_000_000;
const SO_TXTIME: i32 = 61;

/// `struct sock_txtime`.
#[repr(C)]
struct TxTime {
    clock: libc::clockid_t,
    flags: u32,
}

type Limit = Box<dyn Fn(&OwnedFd)>;

fn set<T: 'static>(level: i32, name: i32, value: T) -> Limit {
    Box::new(move |socket| set_option(socket, level, name, &value).unwrap())
}

#[test]
fn sockets_with_limiting_options_use_xcp() {
    let _lock = test_lock();
    if !can_run("socket options") {
        return;
    }
    let net = Net::new("so");
    net.add_routers(LINK_BYTES_PER_S);
    let tcp = libc::IPPROTO_TCP;
    let socket = libc::SOL_SOCKET;
    let by_monotonic_clock = TxTime {
        clock: libc::CLOCK_MONOTONIC,
        flags: 0,
    };
    let options: [(&str, Limit); 5] = [
        ("TCP_WINDOW_CLAMP", set(tcp, libc::TCP_WINDOW_CLAMP, 20_000)),
        ("SO_SNDBUF", set(socket, libc::SO_SNDBUF, 16_384)),
        ("SO_RCVBUF", set(socket, libc::SO_RCVBUF, 16_384)),
        (
            "TCP_NOTSENT_LOWAT",
            set(tcp, libc::TCP_NOTSENT_LOWAT, 4_096),
        ),
        ("SO_TXTIME", set(socket, SO_TXTIME, by_monotonic_clock)),
    ];
    for (name, limit) in &options {
        for server in [SERVER, SERVER6] {
            let _host = HostOn::by_default_in_own_group();
            let limited = SocketSetup::prepared(limit);
            let (mut a, mut b) = net.connect_with(server, &limited, &limited);
            transfer(&mut a, &mut b, &pattern(BYTES));
            transfer(&mut b, &mut a, &pattern(BYTES));
            assert_eq!(control(&a), "xcp", "{name}");
            assert_eq!(control(&b), "xcp", "{name}");
            let counters = host::counters().unwrap();
            assert_eq!(counters.fallbacks.total(), 0, "{name}: {counters:?}");
            assert!(counters.return_received > 0, "{name}");
        }
    }
}

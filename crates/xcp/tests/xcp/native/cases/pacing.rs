// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! SO_MAX_PACING_RATE limits the rate of a socket with xcp.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::Command;

use crate::common::{
    control, pattern, set_option, test_lock, transfer, HostOn, Net, LINK_BYTES_PER_S,
};
use xcp_testbed::{can_run, skipped};

const BYTES: usize = 200_000;

/// Sets SO_MAX_PACING_RATE, bytes per second.
fn limit(socket: &TcpStream, rate: u64) {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate).unwrap();
}

/// The pacing rate of TCP, bytes per second.
fn pacing_rate(socket: &TcpStream) -> u64 {
    /// Position of tcpi_pacing_rate in the kernel's struct tcp_info; that of libc lacks it.
    const PACING_RATE: usize = 104 / 8;
    let mut info = [0u64; PACING_RATE + 1];
    let mut length = size_of_val(&info) as u32;
    // SAFETY: the descriptor is open; the record has the given length.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    assert_eq!(length as usize, size_of_val(&info));
    info[PACING_RATE]
}

/// Sets the queue discipline of the client's device; false if the kernel does not have it.
fn has_qdisc(net: &Net, qdisc: &str) -> bool {
    let mut tc = Command::new("tc");
    tc.args(["qdisc", "replace", "dev", "r", "root", qdisc]);
    net.within("c", || tc.output()).unwrap().status.success()
}

#[test]
fn so_max_pacing_rate_limits_the_rate_and_can_be_changed() {
    let _lock = test_lock();
    let test = "a limit on the pacing rate";
    if !can_run(test) {
        return;
    }
    let net = Net::new("g");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::new();
    for qdisc in ["noqueue", "fq"] {
        if !has_qdisc(&net, qdisc) {
            skipped(
                test,
                &format!("this kernel has no queue discipline {qdisc}"),
            );
            continue;
        }
        let (mut a, mut b) = net.connect("xcp", "xcp");
        transfer(&mut a, &mut b, &pattern(BYTES));
        let own = pacing_rate(&a);
        assert!(own > LINK_BYTES_PER_S / 4, "{qdisc}: {own}");
        for rate in [LINK_BYTES_PER_S / 50, LINK_BYTES_PER_S / 25] {
            limit(&a, rate);
            transfer(&mut a, &mut b, &pattern(BYTES));
            assert_eq!(control(&a), "xcp");
            assert_eq!(pacing_rate(&a), rate, "{qdisc}: {own} without a limit");
        }
        limit(&a, u64::MAX);
        transfer(&mut a, &mut b, &pattern(BYTES));
        let own = pacing_rate(&a);
        assert!(own > LINK_BYTES_PER_S / 25, "{qdisc}: still limited: {own}");
    }
}

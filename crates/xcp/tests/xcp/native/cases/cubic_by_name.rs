// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A socket keeps a congestion control that its program selects by name, even if it is
//! the default of the system.

use std::net::{TcpListener, TcpStream};

use crate::common::{
    control, default_control, pattern, test_lock, transfer, HostOn, Net, LINK_BYTES_PER_S,
};
use xcp_datapath::host;
use xcp_testbed::can_run;

const BYTES: usize = 200_000;

#[test]
fn a_default_control_that_is_selected_by_name_is_kept() {
    let _lock = test_lock();
    if !can_run("the default selected by name") {
        return;
    }
    let net = Net::new("n");
    net.add_routers(LINK_BYTES_PER_S);
    let _host = HostOn::by_default();
    let default = default_control();
    // the server's socket inherits what its listener selected
    for (client, server) in [(default.as_str(), "xcp"), ("xcp", default.as_str())] {
        let (mut a, mut b) = net.connect(client, server);
        transfer(&mut a, &mut b, &pattern(BYTES));
        for (end, chose) in [(&a, client), (&b, server)] {
            // with a peer without XCP, the other one falls back to the default
            assert_eq!(control(end), default, "{chose}: {client} to {server}");
        }
    }
    let sockets = host::counters().unwrap().sockets;
    assert_eq!(sockets, 0, "no connection may use xcp");
    // a socket that selects nothing uses xcp
    let listener = net.within("s", || TcpListener::bind("10.77.2.2:0").unwrap());
    let to = listener.local_addr().unwrap();
    let mut a = net.within("c", || TcpStream::connect(to).unwrap());
    let mut b = listener.accept().unwrap().0;
    transfer(&mut a, &mut b, &pattern(BYTES));
    assert_eq!([control(&a), control(&b)], ["xcp", "xcp"]);
}

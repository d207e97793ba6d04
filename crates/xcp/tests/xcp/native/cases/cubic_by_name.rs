// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A program that selects a congestion control by name keeps it, even if that is
//! the system's default.

use std::net::{TcpListener, TcpStream};

use crate::common::{
    control, default_control, pattern, test_lock, transfer, HostOn, Net, LINK_BPS,
};
use xcp_datapath::host;
use xcp_testbed::can_run;

const BYTES: usize = 200_000;

#[test]
fn the_default_selected_by_name_stays() {
    let _turn = test_lock();
    if !can_run("the default selected by name") {
        return;
    }
    let net = Net::new("n");
    net.add_routers(LINK_BPS);
    let _host = HostOn::by_default();
    let default = default_control();
    // the server's socket inherits what its listener selected
    for (client, server) in [(default.as_str(), "xcp"), ("xcp", default.as_str())] {
        let (mut a, mut b) = net.connect(client, server);
        transfer(&mut a, &mut b, &pattern(BYTES));
        for (end, chose) in [(&a, client), (&b, server)] {
            // a peer without XCP leaves the default
            assert_eq!(control(end), default, "{chose}: {client} to {server}");
        }
    }
    assert_eq!(host::counters().unwrap().sockets, 0, "nothing used xcp");
    // and one that selects nothing has xcp
    let listener = net.within("s", || TcpListener::bind("10.77.2.2:0").unwrap());
    let to = listener.local_addr().unwrap();
    let mut a = net.within("c", || TcpStream::connect(to).unwrap());
    let mut b = listener.accept().unwrap().0;
    transfer(&mut a, &mut b, &pattern(BYTES));
    assert_eq!([control(&a), control(&b)], ["xcp", "xcp"]);
}

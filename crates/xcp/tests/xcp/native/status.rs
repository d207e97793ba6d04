// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp status` while XCP is off and on.

use crate::command::NetNamespace;
use crate::common::{test_lock, HostOn};
use serde_json::Value;
use xcp_testbed::can_run;

#[test]
fn status_shows_hosts_routers_and_edges() {
    let _lock = test_lock();
    if !can_run("status") {
        return;
    }
    let space = NetNamespace::new("stat");
    let _ = xcp_datapath::host::off();
    let text = space.xcp("status").ok().out;
    assert_eq!(
        text,
        "host  off\nrouters  0\nedges  xcp edged is not running; virtual routers: 0\n\
         gateway  xcp gateway is not running\n"
    );
    let none = space.xcp("status --json").ok().json();
    assert_eq!(none["host"], Value::Null);
    assert_eq!(none["edge"], Value::Null);
    assert_eq!(none["gateway"], Value::Null);
    assert_eq!(none["routers"], serde_json::json!([]));
    assert_eq!(none["unreadable"], serde_json::json!([]));

    space.xcp("router add v0 --capacity 10mbit").ok();
    let _host = HostOn::new();
    let text = space.xcp("status").ok().out;
    assert!(text.starts_with("host  on "), "{text}");
    assert!(text.contains("\nrouters  1\n  device "), "{text}");
    assert!(text.contains("\n  v0 "), "{text}");
    let all = space.xcp("status --json").ok().json();
    assert_eq!(all["routers"][0]["device"], "v0");
    assert_eq!(all["host"]["counters"]["sockets"], 0);
    space.xcp("router del v0").ok();
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What must hold of the queue discipline `xcp`, tried in the machine.

use std::process::Command;

use serde::{Deserialize, Serialize};
use xcp_datapath::qdisc;

use crate::{Error, Result};

/// One thing that must hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub ok: bool,
    /// What was seen.
    pub seen: String,
}

fn sh(line: &str) -> String {
    let mut words = line.split_whitespace();
    let out = Command::new(words.next().unwrap_or_default())
        .args(words)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output();
    match out {
        Ok(o) => format!(
            "$ {line}\n{}{}",
            String::from_utf8_lossy(&o.stdout),
            String::from_utf8_lossy(&o.stderr)
        ),
        Err(e) => e.to_string(),
    }
}

pub fn run(_cycles: u32, _progress: &mut dyn FnMut(f64)) -> Result<Vec<Check>> {
    xcp_datapath::set_verbose(true);
    qdisc::register()?;
    let mut seen = String::new();
    for line in [
        "ip link add v0 type veth peer name v1",
        "ip link set v0 up",
        "ip link set v1 up",
        "ip addr add 10.1.0.1/24 dev v0",
        "tc qdisc replace dev v0 root xcp",
        "tc -s qdisc show dev v0",
    ] {
        seen += &sh(line);
    }
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").map_err(|e| Error::io("udp", &e))?;
    let _ = sh("ip neigh replace 10.1.0.2 lladdr 02:00:00:00:00:01 dev v0");
    seen += &sh("ip neigh replace 10.1.0.2 lladdr 02:00:00:00:00:01 dev v0");
    for _ in 0..1000 {
        let _ = socket.send_to(&[0; 100], "10.1.0.2:9");
    }
    seen += &sh("tc -s qdisc show dev v0");
    seen += &sh("tc qdisc del dev v0 root");
    seen += &sh("tc -s qdisc show dev v0");
    Ok(vec![Check {
        name: "first".into(),
        ok: true,
        seen,
    }])
}

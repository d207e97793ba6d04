// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The units of `systemd/` at boot, on reload and on stop, and when devices appear,
//! disappear or are renamed.

use std::fs;
use std::path::Path;

use super::{link, passes_on, write, SOURCE};
use crate::command::XCP;

const SCRIPT: &str = include_str!("units.sh");

const CONFIG: &str = r#"
[host]
default = true

[[router]]
device = "eth7"
capacity = "10mbit"

[[router]]
device = "wan*"
capacity = "20mbit"
"#;

/// Installs the files as `./x install` does.
fn installed(root: &Path) {
    let unit = |name: &str| fs::read_to_string(format!("{SOURCE}/systemd/{name}")).unwrap();
    let units = "usr/local/lib/systemd/system";
    for name in ["xcp.service", "xcp-metrics.service"] {
        write(root, &format!("{units}/{name}"), &unit(name), 0o644);
    }
    let rules = "usr/local/lib/udev/rules.d/80-xcp.rules";
    write(root, rules, &unit("80-xcp.rules"), 0o644);
    write(root, "etc/xcp/xcp.toml", CONFIG, 0o644);
    let wants = "etc/systemd/system/multi-user.target.wants/xcp.service";
    link(root, &format!("/{units}/xcp.service"), wants);
    fs::create_dir_all(root.join("usr/local/bin")).unwrap();
    fs::copy(XCP, root.join("usr/local/bin/xcp")).unwrap();
}

#[test]
fn systemd_units_configure_xcp_on_6_12() {
    passes_on("6.12", SCRIPT, installed);
}

#[test]
fn systemd_units_configure_xcp_on_6_18() {
    passes_on("6.18", SCRIPT, installed);
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A virtual machine with Debian's systemd as init, which runs a script at boot.

mod package;
mod units;

use std::path::Path;

use super::debian::{self, link, shell, write, Debian};

pub use package::xcp_package;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const DEBIAN: Debian = Debian {
    suite: "trixie",
    packages: "systemd,systemd-sysv,udev,iproute2,kmod,dbus",
    memory_mb: 2500,
};
/// Functions that all scripts use.
const COMMON: &str = include_str!("common.sh");

const SERVICE: &str = "\
[Unit]
After=multi-user.target

[Service]
Type=oneshot
StandardOutput=tty
StandardError=null
TTYPath=/dev/ttyS0
ExecStart=/boot.sh

[Install]
WantedBy=graphical.target
";

/// Adds the script to Debian's files.
fn overlay(root: &Path, script: &str) {
    write(root, "etc/systemd/system/boot.service", SERVICE, 0o644);
    write(root, "boot.sh", &format!("{COMMON}{script}"), 0o755);
    let wants = "etc/systemd/system/graphical.target.wants/boot.service";
    link(root, "../boot.service", wants);
    // mask the login prompt, which also writes to the console
    let console = "etc/systemd/system/serial-getty@ttyS0.service";
    link(root, "/dev/null", console);
    link(root, "/sbin/init", "init");
}

/// Runs the script in the machine and asserts that all its checks pass.
fn passes_on(version: &str, script: &str, files: impl Fn(&Path)) {
    let overlaid = |root: &Path| {
        overlay(root, script);
        files(root);
    };
    let Some(said) = debian::run("boot", version, &DEBIAN, overlaid) else {
        return;
    };
    let is_result = |line: &&str| line.contains("ok: ") || line.contains("FAILED: ");
    let results: Vec<&str> = said.lines().filter(is_result).map(str::trim).collect();
    let failed = results.iter().any(|line| line.contains("FAILED: "));
    assert!(!failed, "Linux {version}: {results:#?}");
}

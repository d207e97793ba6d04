// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Two of the gateway's native tests in a virtual machine with Debian, where nginx, curl, ssh
//! and Chromium are installed, and where 10,000 connections may be open.

use std::env;
use std::fs;
use std::path::Path;

use super::debian::{self, write, Debian, INIT};
use crate::command::XCP;

const DEBIAN: Debian = Debian {
    suite: "trixie",
    packages: "chromium,curl,iproute2,kmod,libelf1,mount,nginx-light,openssh-client,openssh-server,util-linux",
    memory_mb: 6000,
};

const TESTS: [&str; 2] = [
    "native::gateway::applications::web_pages_and_ssh_work",
    "native::gateway::many::ten_thousand_connections_work_at_once",
];

#[test]
fn applications_and_10000_connections_use_gateways() {
    let tests = env::current_exe().unwrap();
    let init = format!(
        "{INIT}cd {directory}\n{tests} --test-threads 1 {names} 2>&1 | cat >/dev/ttyS0\n\
         echo done >/dev/ttyS0\n",
        directory = env!("CARGO_MANIFEST_DIR"),
        tests = tests.display(),
        names = TESTS.join(" "),
    );
    let said = debian::run("gateway", "6.18", &DEBIAN, |root: &Path| {
        write(root, "init", &init, 0o755);
        for file in [XCP.as_ref(), tests.as_path()] {
            let copy = root.join(file.strip_prefix("/").unwrap());
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(file, copy).unwrap();
        }
        let directory = env!("CARGO_MANIFEST_DIR").trim_start_matches('/');
        fs::create_dir_all(root.join(directory)).unwrap();
    });
    let Some(said) = said else {
        return;
    };
    for test in TESTS {
        assert!(said.contains(&format!("test {test} ... ok")), "{said}");
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Unmodified programs over XCP: curl fetches 20 MB from Python's web server
//! across an XCP router and its 100 Mb/s link, both under `xcp run`.

mod command;
mod common;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use command::{Traces, XCP};
use common::{pattern, turn, Net, CLIENT, LINK_BPS};
use xcp_datapath::testing::{can_run, skipped};
use xcp_datapath::{host, router};

const BYTES: usize = 20_000_000;
const PORT: u16 = 8080;

/// A command in a node's namespace, under `xcp run`.
fn under_xcp(net: &Net, node: &str, command: &[&str]) -> Command {
    let mut run = Command::new("nsenter");
    run.arg(format!("--net=/run/netns/{}", net.space(node)))
        .args([XCP, "run", "--"])
        .args(command);
    run
}

fn installed(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    if !found {
        skipped("transfer", &format!("{program} is not installed"));
    }
    found
}

/// `xcp run` in the background; ended as a user would when dropped.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        self.0.wait().unwrap();
    }
}

#[test]
fn curl_fetches_a_file_over_xcp() {
    let _turn = turn();
    if !can_run("transfer") || !installed("curl") || !installed("python3") {
        return;
    }
    let Some(clean) = Traces::before("transfer") else {
        return;
    };
    let net = Net::new("t");
    net.add_routers(LINK_BPS);
    let dir = tempfile::tempdir().unwrap();
    let sent = pattern(BYTES);
    fs::write(dir.path().join("file"), &sent).unwrap();
    let served = dir.path().display().to_string();
    // from the client's node to the server's: that way the link is narrow
    let mut serve = under_xcp(
        &net,
        "c",
        &[
            "python3",
            "-m",
            "http.server",
            "8080",
            "--bind",
            CLIENT,
            "--directory",
            &served,
        ],
    );
    serve.stdout(Stdio::null()).stderr(Stdio::null());
    let server = Background(serve.spawn().unwrap());
    wait_for_port(&net);
    let before = host::counters().unwrap();

    let got = dir.path().join("got").display().to_string();
    let url = format!("http://{CLIENT}:{PORT}/file");
    let status = under_xcp(&net, "s", &["curl", "-sS", "-o", &got, &url])
        .status()
        .unwrap();
    assert!(status.success(), "curl: {status}");
    assert!(fs::read(&got).unwrap() == sent, "the file differs");

    let after = host::counters().unwrap();
    assert_eq!(after.sockets - before.sockets, 2, "both ends spoke XCP");
    assert_eq!(after.fallbacks, before.fallbacks, "neither gave it up");
    let least = (BYTES / 1500) as u64;
    assert!(after.forward_sent - before.forward_sent >= least);
    assert!(after.forward_received - before.forward_received >= least);
    assert_ne!(after.applied_bytes_per_s, 0, "the sender obeyed: {after:?}");
    let routers = net.within("r", || router::list().unwrap());
    let narrow = routers.iter().find(|r| r.device == "s").unwrap();
    assert!(narrow.xcp_packets >= least, "{narrow:?}");
    assert_ne!(narrow.granted_bytes_per_s, 0, "{narrow:?}");

    drop(server);
    drop(net);
    clean.gone();
}

fn wait_for_port(net: &Net) {
    let to: SocketAddr = format!("{CLIENT}:{PORT}").parse().unwrap();
    for _ in 0..200 {
        let open = net.within("s", || {
            TcpStream::connect_timeout(&to, Duration::from_millis(500)).is_ok()
        });
        if open {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("the web server does not answer");
}

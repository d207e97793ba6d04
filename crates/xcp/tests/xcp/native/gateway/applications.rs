// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Real applications through two gateways: nginx with curl and Chromium, and ssh. Each is
//! skipped if it is not installed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use xcp_testbed::skipped;

use super::network::{Gateways, FAR, HOST, NEAR};
use super::CAPACITY;
use crate::common::{pattern, wait_until};

const FILE_BYTES: usize = 3_000_000;
const OBJECTS: usize = 10;

fn has(test: &str, program: &str) -> bool {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let found = folders.map(|folder| Path::new(folder).join(program));
    let found = found.iter().any(|path| path.exists());
    if !found {
        skipped(test, &format!("{program} is not installed"));
    }
    found
}

/// A program in a node; it is killed when this is dropped.
struct Program(Child);

impl Program {
    fn start(gateways: &Gateways, node: &str, line: &str) -> Self {
        let space = gateways.net.space(node);
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{space}"))
            .args(line.split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program in the client's node and returns its output.
fn client(gateways: &Gateways, line: &str) -> std::process::Output {
    let space = gateways.net.space("c");
    Command::new("nsenter")
        .arg(format!("--net=/run/netns/{space}"))
        .args(line.split_whitespace())
        .output()
        .unwrap()
}

fn start_nginx(gateways: &Gateways) -> Program {
    let root = gateways.path("www");
    fs::create_dir(&root).unwrap();
    fs::write(format!("{root}/file"), pattern(FILE_BYTES)).unwrap();
    let mut page = String::from("<!doctype html><body>");
    for i in 0..OBJECTS {
        let script = format!("document.body.append(\"{}\");\n", letters(i));
        fs::write(format!("{root}/{i}.js"), script).unwrap();
        page += &format!("<script src={i}.js></script>");
    }
    fs::write(format!("{root}/index.html"), page).unwrap();
    let file = gateways.path("nginx.conf");
    let text = format!(
        "daemon off; master_process off; pid {0}/nginx.pid; error_log stderr; user root;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {0}/body; proxy_temp_path {0}/proxy;\n\
         fastcgi_temp_path {0}/fastcgi; uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;\n\
         server {{ listen {HOST}:8080; root {root}; }} }}\n",
        gateways.path("")
    );
    fs::write(&file, text).unwrap();
    Program::start(gateways, "h", &format!("nginx -c {file}"))
}

/// What the script with this number adds to the page.
fn letters(number: usize) -> String {
    let bytes = pattern(20_000 * (number + 1));
    let letter = |byte: &u8| char::from(b'a' + byte % 26);
    format!("{number}{}", bytes.iter().map(letter).collect::<String>())
}

#[test]
fn web_pages_and_ssh_work() {
    let test = "web_pages_and_ssh_work";
    let Some(gateways) = Gateways::new(test) else {
        return;
    };
    let near = gateways.start(NEAR, CAPACITY);
    let far = gateways.start(FAR, CAPACITY);

    if has(test, "nginx") && has(test, "curl") {
        let _nginx = start_nginx(&gateways);
        let url = format!("http://{HOST}:8080");
        let fetch = || client(&gateways, &format!("curl -s -S {url}/file"));
        wait_until("nginx", || fetch().status.success());
        let fetched = fetch().stdout;
        assert!(fetched == pattern(FILE_BYTES), "{} bytes", fetched.len());
        if has(test, "chromium") {
            let folder = gateways.path("chromium");
            let options =
                "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --dump-dom";
            let line = format!("chromium {options} --user-data-dir={folder} {url}/index.html");
            let page = client(&gateways, &line);
            let text = String::from_utf8_lossy(&page.stdout);
            let errors = String::from_utf8_lossy(&page.stderr);
            for i in 0..OBJECTS {
                assert!(
                    text.contains(&letters(i)),
                    "{i}: {:.300} {errors:.2000}",
                    text
                );
            }
        }
    }
    if has(test, "sshd") && has(test, "ssh") {
        let key = gateways.path("key");
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &key]);
        assert!(keygen.status().unwrap().success());
        fs::create_dir_all("/run/sshd").unwrap();
        let file = gateways.path("sshd.conf");
        let text = format!(
            "ListenAddress {HOST}:2222\nHostKey {key}\nAuthorizedKeysFile {key}.pub\n\
             PermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\n"
        );
        fs::write(&file, text).unwrap();
        let _sshd = Program::start(&gateways, "h", &format!("/usr/sbin/sshd -D -f {file}"));
        let data = gateways.path("data");
        fs::write(&data, pattern(FILE_BYTES)).unwrap();
        let options =
            "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes";
        let line = format!("ssh -q -i {key} {options} -p 2222 root@{HOST} cat {data}");
        wait_until("sshd", || client(&gateways, &line).status.success());
        let fetched = client(&gateways, &line).stdout;
        assert!(fetched == pattern(FILE_BYTES), "{} bytes", fetched.len());
    }
    assert_eq!(near.count("accepted"), far.count("accepted"));
    assert_eq!(near.count("other_port"), 0);
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs the real command as users run it, and checks what it leaves behind.

pub mod killed;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use xcp_datapath::cgroup_mount_point;
use xcp_testbed::{Loaded, PATIENCE};

pub const XCP: &str = env!("CARGO_BIN_EXE_xcp");
const PINS: &str = "/sys/fs/bpf/xcp";

/// The output and exit status of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(command: &mut Command) -> Self {
        let Output {
            status,
            stdout,
            stderr,
        } = command
            .env_remove("NO_COLOR")
            .output()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        Self {
            code: status.code(),
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
        }
    }

    /// Asserts that the command succeeded and printed only warnings on standard error.
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        let mut lines = self.err.lines();
        while let Some(line) = lines.next() {
            assert!(line.starts_with("xcp: warning: "), "{self:?}");
            assert!(lines.next().is_some_and(|l| l.starts_with("  help: ")));
        }
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Asserts that the command failed with this exit status and exactly this error.
    pub fn failed(&self, code: i32, err: &str) {
        assert_eq!((self.code, self.err.as_str()), (Some(code), err));
        assert_eq!(self.out, "");
    }
}

/// A PATH with the folder of this command.
pub fn path_with_xcp() -> OsString {
    let folder = XCP.strip_suffix("/xcp").unwrap();
    env::join_paths([folder, "/usr/bin", "/bin"]).unwrap()
}

pub fn xcp(args: &str) -> Ran {
    Ran::of(Command::new(XCP).args(args.split_whitespace()))
}

/// The command `xcp` in a named network namespace.
pub fn xcp_within(space: &str, args: &str) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net=/run/netns/{space}"))
        .arg(XCP)
        .args(args.split_whitespace());
    command
}

/// Starts a daemon and waits until it is ready, as systemd does. `socket` is a free path.
pub fn start_daemon(mut command: Command, socket: &Path) -> Child {
    let told = UnixDatagram::bind(socket).unwrap();
    told.set_read_timeout(Some(PATIENCE)).unwrap();
    command.env("NOTIFY_SOCKET", socket).stderr(Stdio::null());
    let daemon = command.spawn().unwrap();
    let mut text = [0; 64];
    let length = told.recv(&mut text).unwrap();
    assert_eq!(&text[..length], b"READY=1");
    fs::remove_file(socket).unwrap();
    daemon
}

/// Everything that the command could leave behind in the system.
#[derive(Debug)]
pub struct SystemState {
    loaded: Loaded,
    pins: bool,
    groups: BTreeSet<String>,
}

impl SystemState {
    /// The state before a test; None while something other than the tests uses XCP on
    /// this host. Waits a few seconds for such a user to end.
    pub fn capture_before(test: &str) -> Option<Self> {
        for _ in 0..5 {
            if !Path::new(PINS).exists() {
                return Some(Self::now());
            }
            thread::sleep(Duration::from_secs(1));
        }
        xcp_testbed::skipped(test, &format!("XCP is in use on this host: see {PINS}"));
        None
    }

    fn now() -> Self {
        Self {
            loaded: xcp_testbed::loaded_ids().unwrap(),
            pins: Path::new(PINS).exists(),
            groups: fs::read_dir(cgroup_mount_point().unwrap())
                .unwrap()
                .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
                .filter(|name| name.starts_with("xcp"))
                .collect(),
        }
    }

    /// Fails if anything is there that was not there before. The kernel frees objects
    /// asynchronously, so this waits.
    pub fn assert_nothing_left(&self) {
        let all_gone = xcp_testbed::eventually(|| {
            let now = Self::now();
            now.loaded.programs.is_subset(&self.loaded.programs)
                && now.loaded.maps.is_subset(&self.loaded.maps)
                && now.pins <= self.pins
                && now.groups.is_subset(&self.groups)
        });
        assert!(all_gone, "left behind: {:?}, before: {self:?}", Self::now());
    }
}

/// A network namespace with the veth devices `v0` and `v1`; removed when dropped.
pub struct NetNamespace {
    name: String,
}

impl NetNamespace {
    pub fn new(test: &str) -> Self {
        let name = format!("xt{}{test}", std::process::id());
        tool(&format!("ip netns add {name}"));
        let space = Self { name };
        space.device("add v0 type veth peer name v1");
        space
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The state of all devices and queue disciplines.
    pub fn devices(&self) -> String {
        self.tool("ip -d -j link show") + &self.tc("qdisc show")
    }

    pub fn gso_max_segs(&self, device: &str) -> u64 {
        let links = self.tool(&format!("ip -d -j link show {device}"));
        let links: Value = serde_json::from_str(&links).unwrap();
        links[0]["gso_max_segs"].as_u64().unwrap()
    }

    fn tool(&self, line: &str) -> String {
        tool(&format!("nsenter --net=/run/netns/{} {line}", self.name))
    }

    /// Runs `ip link` in this namespace.
    pub fn device(&self, action: &str) {
        self.tool(&format!("ip link {action}"));
    }

    /// Runs `ip tuntap` in this namespace.
    pub fn tuntap(&self, action: &str) {
        self.tool(&format!("ip tuntap {action}"));
    }

    /// Moves a device to another namespace.
    pub fn move_to(&self, device: &str, other: &Self) {
        self.device(&format!("set {device} netns {}", other.name));
    }

    /// Runs `ip addr` in this namespace.
    pub fn address(&self, action: &str) {
        self.tool(&format!("ip addr {action}"));
    }

    /// Runs `ip neigh` in this namespace.
    pub fn neighbour(&self, action: &str) {
        self.tool(&format!("ip neigh {action}"));
    }

    /// Runs a closure in this namespace, on its own thread.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.name)).unwrap();
        thread::scope(|scope| {
            let run = scope.spawn(|| {
                // SAFETY: the descriptor is open; only this thread changes namespace.
                let rc = unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(rc, 0);
                work()
            });
            run.join().unwrap()
        })
    }

    /// Runs `tc` in this namespace and returns its output.
    pub fn tc(&self, args: &str) -> String {
        self.tool(&format!("tc {args}"))
    }

    /// Runs `xcp` in this namespace.
    pub fn xcp(&self, args: &str) -> Ran {
        Ran::of(&mut self.command(args))
    }

    /// The command `xcp` in this namespace, not started yet.
    pub fn command(&self, args: &str) -> Command {
        xcp_within(&self.name, args)
    }

    /// Starts `xcp` in this namespace, with pipes for its input and output.
    pub fn start(&self, args: &str) -> Child {
        self.command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// Sends the signal of Ctrl-C.
pub fn interrupt(child: &Child) {
    // SAFETY: the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
}

impl Drop for NetNamespace {
    fn drop(&mut self) {
        tool(&format!("ip netns del {}", self.name));
    }
}

fn tool(line: &str) -> String {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap();
    Ran::of(Command::new(program).args(words)).ok().out
}

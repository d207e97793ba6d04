// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The units of `systemd/` in a virtual machine with Debian's systemd as init: boot,
//! devices that come, go and change their names, reload and stop.

use std::fs::{self, File};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use xcp_datapath::testing::skipped;

use crate::command::{xcp, XCP};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SUITE: &str = "trixie";
const PACKAGES: &str = "systemd,systemd-sysv,udev,iproute2,kmod,dbus";
const SCRIPT: &str = include_str!("boot.sh");
/// As many lines `ok: ` as the script writes.
const RESULTS: usize = 17;
/// Virtual time, as for experiments; longer than any boot has taken.
const LIMIT_S: &str = "1200";

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

fn shell(script: &str, arguments: &[&Path]) {
    let mut command = Command::new("sh");
    command.args(["-ec", script, "sh"]).args(arguments);
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{script}: {ran:?}");
}

/// Debian's root as a compressed archive, made once; None if it cannot be fetched.
fn debian() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let archive = folder.join(format!("{SUITE}.cpio.gz"));
    if !archive.exists() {
        let made = tempfile::tempdir_in(folder).unwrap();
        let tar = made.path().join("root.tar");
        let fetched = Command::new("mmdebstrap")
            .args(["--quiet", "--variant=minbase", "--include", PACKAGES, SUITE])
            .arg(&tar)
            .status();
        if !fetched.is_ok_and(|status| status.success()) {
            return None;
        }
        let script = "mkdir \"$1/root\" && \
             tar -xf \"$1/root.tar\" -C \"$1/root\" --exclude './dev/*' && cd \"$1/root\" && \
             rm -rf usr/share/doc usr/share/man usr/share/locale var/lib/apt/lists && \
             find . | cpio -o -H newc --quiet | gzip -1 >\"$1/done\" && mv \"$1/done\" \"$2\"";
        shell(script, &[made.path(), &archive]);
    }
    Some(archive)
}

/// The folder of a kernel of the lab.
fn kernel(version: &str) -> PathBuf {
    xcp(&format!("lab exec --kernel {version} -- true")).ok();
    let results = xcp("lab kept --json").ok().json();
    let results = Path::new(results["folder"].as_str().unwrap()).to_owned();
    results.parent().unwrap().join("kernels").join(version)
}

fn write(root: &Path, path: &str, text: &str, mode: u32) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
}

/// What is there besides Debian: as `./x install` puts it, and the script.
fn overlay(root: &Path, kernel: &Path) {
    let unit = |name: &str| fs::read_to_string(format!("{SOURCE}/systemd/{name}")).unwrap();
    let units = "usr/local/lib/systemd/system";
    for name in ["xcp.service", "xcp-metrics.service"] {
        write(root, &format!("{units}/{name}"), &unit(name), 0o644);
    }
    let rules = "usr/local/lib/udev/rules.d/80-xcp.rules";
    write(root, rules, &unit("80-xcp.rules"), 0o644);
    write(root, "etc/xcp/xcp.toml", CONFIG, 0o644);
    write(root, "etc/systemd/system/boot.service", SERVICE, 0o644);
    write(root, "boot.sh", SCRIPT, 0o755);
    let wants = root.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    symlink(format!("/{units}/xcp.service"), wants.join("xcp.service")).unwrap();
    let wants = root.join("etc/systemd/system/graphical.target.wants");
    fs::create_dir_all(&wants).unwrap();
    symlink("../boot.service", wants.join("boot.service")).unwrap();
    // who else writes to the console
    symlink(
        "/dev/null",
        root.join("etc/systemd/system/serial-getty@ttyS0.service"),
    )
    .unwrap();
    symlink("/sbin/init", root.join("init")).unwrap();
    shell(
        "mkdir -p \"$1/usr/local/bin\" && cp \"$2\" \"$1/usr/local/bin/\" && cd \"$3/lib/modules\" && \
         find . -path '*/kernel/net/*' -o -path '*/kernel/drivers/net/*' -o -name 'modules.*' | \
         cpio -p -d --quiet \"$1/usr/lib/modules\" && \
         for v in *; do depmod -b \"$1/usr\" \"$v\" 2>/dev/null || depmod -b \"$1\" \"$v\"; done",
        &[root, Path::new(XCP), kernel],
    );
}

/// What the script has written.
fn boot(version: &str, debian: &Path) -> Vec<String> {
    let kernel = kernel(version);
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("usr/lib/modules")).unwrap();
    overlay(&root, &kernel);
    let archive = dir.path().join("initrd");
    shell(
        "cp \"$1\" \"$2\" && cd \"$3\" && find . | cpio -o -H newc --quiet | gzip -1 >>\"$2\"",
        &[debian, &archive, &root],
    );
    let boot = fs::read_dir(kernel.join("boot")).unwrap();
    let image = boot
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains("vmlinuz"))
        .unwrap();
    let output = dir.path().join("output");
    let status = Command::new("timeout")
        .args([
            LIMIT_S,
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            "-smp",
            "1",
            "-m",
            "2500",
        ])
        .args(["-icount", "shift=0,sleep=off"])
        .args(["-cpu", "max,cx16=off,erms=off,fsrm=off"])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(&archive)
        .args([
            "-append",
            "console=ttyS0 quiet systemd.show_status=0 nolapic_timer",
        ])
        .args(["-nographic", "-no-reboot", "-nic", "none"])
        .stdin(Stdio::null())
        .stdout(File::create(&output).unwrap())
        .status()
        .unwrap();
    let said = String::from_utf8_lossy(&fs::read(&output).unwrap()).into_owned();
    assert!(
        status.success() && said.contains("done"),
        "{version}: {status}\n{said}"
    );
    let is_result = |line: &&str| line.contains("ok: ") || line.contains("FAILED: ");
    let results = said.lines().filter(is_result);
    results.map(|line| line.trim().to_owned()).collect()
}

fn passes_on(version: &str) {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return skipped("boot", "needs root, to make Debian's root");
    }
    if let Some(tool) = ["mmdebstrap", "qemu-system-x86_64", "cpio"]
        .iter()
        .find(|t| !found(t))
    {
        return skipped("boot", &format!("{tool} is not installed"));
    }
    let Some(debian) = debian() else {
        return skipped("boot", "mmdebstrap cannot fetch Debian's root");
    };
    let results = boot(version, &debian);
    let failed = results.iter().any(|line| line.contains("FAILED: "));
    assert!(
        !failed && results.len() == RESULTS,
        "{version}: {results:#?}"
    );
}

#[test]
fn configured_by_systemd_on_6_12() {
    passes_on("6.12");
}

#[test]
fn configured_by_systemd_on_6_18() {
    passes_on("6.18");
}

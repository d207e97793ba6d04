// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A virtual machine with Debian's systemd as init, which runs a script at boot.

mod package;
mod units;

use std::fs::{self, File};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use xcp_testbed::skipped;

use crate::command::xcp;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SUITE: &str = "trixie";
const PACKAGES: &str = "systemd,systemd-sysv,udev,iproute2,kmod,dbus";
/// Functions that all scripts use.
const COMMON: &str = include_str!("common.sh");
/// The machine runs in virtual time, as for experiments. This limit is in real time, and
/// longer than any boot has taken.
const LIMIT_S: &str = "1200";

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

/// Debian's root file system as a compressed archive, made once; None if it cannot be
/// fetched.
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

/// The folder of one of the lab's kernels.
fn kernel(version: &str) -> PathBuf {
    xcp(&format!("lab exec --kernel {version} -- true")).ok();
    let results = xcp("lab cache --json").ok().json();
    let results = Path::new(results["folder"].as_str().unwrap()).to_owned();
    results.parent().unwrap().join("kernels").join(version)
}

fn write(root: &Path, path: &str, text: &str, mode: u32) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
}

fn link(root: &Path, target: &str, path: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

/// Adds the script and the kernel's modules to Debian's files.
fn overlay(root: &Path, script: &str, kernel: &Path) {
    write(root, "etc/systemd/system/boot.service", SERVICE, 0o644);
    write(root, "boot.sh", &format!("{COMMON}{script}"), 0o755);
    let wants = "etc/systemd/system/graphical.target.wants/boot.service";
    link(root, "../boot.service", wants);
    // mask the login prompt, which also writes to the console
    let console = "etc/systemd/system/serial-getty@ttyS0.service";
    link(root, "/dev/null", console);
    link(root, "/sbin/init", "init");
    shell(
        "mkdir -p \"$1/usr/lib/modules\" && cd \"$2/lib/modules\" && \
         find . -path '*/kernel/net/*' -o -path '*/kernel/drivers/net/*' -o -name 'modules.*' | \
         cpio -p -d --quiet \"$1/usr/lib/modules\" && \
         for v in *; do depmod -b \"$1/usr\" \"$v\" 2>/dev/null || depmod -b \"$1\" \"$v\"; done",
        &[root, kernel],
    );
}

/// Boots a machine with these additional files; returns the results that its script
/// prints.
fn boot(version: &str, debian: &Path, script: &str, files: impl Fn(&Path)) -> Vec<String> {
    let kernel = kernel(version);
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(&root).unwrap();
    overlay(&root, script, &kernel);
    files(&root);
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

/// Runs a script in the machine and fails if one of its checks fails.
fn passes_on(version: &str, script: &str, files: impl Fn(&Path)) {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return skipped("boot", "needs root, to make Debian's root file system");
    }
    if let Some(tool) = ["mmdebstrap", "qemu-system-x86_64", "cpio"]
        .iter()
        .find(|t| !found(t))
    {
        return skipped("boot", &format!("{tool} is not installed"));
    }
    let Some(debian) = debian() else {
        return skipped("boot", "mmdebstrap cannot fetch Debian's packages");
    };
    let results = boot(version, &debian, script, files);
    let failed = results.iter().any(|line| line.contains("FAILED: "));
    assert!(!failed, "{version}: {results:#?}");
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A virtual machine with a root file system of Debian, in virtual time.

use std::fs::{self, File};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use xcp_testbed::skipped;

use crate::command::xcp;

/// Limit of the run in host time; longer than any run has taken.
const LIMIT_S: &str = "1200";

/// The first lines of a script that the kernel starts.
pub const INIT: &str = "\
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ip link set lo up
";

/// A root file system of Debian.
pub struct Debian {
    pub suite: &'static str,
    /// Installed besides the essential packages, separated by commas.
    pub packages: &'static str,
    /// Memory of the machine.
    pub memory_mb: u32,
}

impl Debian {
    /// The root as a compressed archive, made once; None if it cannot be fetched.
    fn archive(&self) -> Option<PathBuf> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let name = format!("{}-{}.cpio.gz", self.suite, self.packages.replace(',', "-"));
        let archive = folder.join(name);
        if !archive.exists() {
            let made = tempfile::tempdir_in(folder).unwrap();
            let tar = made.path().join("root.tar");
            let fetched = Command::new("mmdebstrap")
                .args(["--quiet", "--variant=apt", "--include", self.packages])
                .arg(self.suite)
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
}

/// Runs a shell script with arguments, and asserts that it succeeds.
pub fn shell(script: &str, arguments: &[&Path]) {
    let mut command = Command::new("sh");
    command.args(["-ec", script, "sh"]).args(arguments);
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{script}: {ran:?}");
}

/// The folder of one of the lab's kernels.
fn kernel(version: &str) -> PathBuf {
    xcp(&format!("lab exec --kernel {version} -- true")).ok();
    let results = xcp("lab cache --json").ok().json();
    let results = Path::new(results["folder"].as_str().unwrap()).to_owned();
    results.parent().unwrap().join("kernels").join(version)
}

/// Writes a file below `root`.
pub fn write(root: &Path, path: &str, text: &str, mode: u32) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
}

/// Makes a symbolic link below `root`.
pub fn link(root: &Path, target: &str, path: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

/// Adds the kernel's modules for networks.
fn add_modules(root: &Path, kernel: &Path) {
    shell(
        "mkdir -p \"$1/usr/lib/modules\" && cd \"$2/lib/modules\" && \
         find . -path '*/kernel/net/*' -o -path '*/kernel/drivers/net/*' -o -name 'modules.*' | \
         cpio -p -d --quiet \"$1/usr/lib/modules\" && \
         for v in *; do depmod -b \"$1/usr\" \"$v\" 2>/dev/null || depmod -b \"$1\" \"$v\"; done",
        &[root, kernel],
    );
}

/// Boots a kernel of the lab with a root of Debian and these files, of which `init` or
/// `sbin/init` is started, and returns what was written to the console. It must contain
/// "done"; the machine ends when init does. None, with the reason printed, if that is not
/// possible here.
pub fn run(test: &str, version: &str, debian: &Debian, files: impl Fn(&Path)) -> Option<String> {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        skipped(test, "needs root, to make Debian's root file system");
        return None;
    }
    let tools = ["mmdebstrap", "qemu-system-x86_64", "cpio"];
    if let Some(tool) = tools.iter().find(|tool| !found(tool)) {
        skipped(test, &format!("{tool} is not installed"));
        return None;
    }
    let Some(files_of_debian) = debian.archive() else {
        skipped(test, "mmdebstrap cannot fetch Debian's packages");
        return None;
    };
    let kernel = kernel(version);
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(&root).unwrap();
    add_modules(&root, &kernel);
    files(&root);
    let archive = dir.path().join("initrd");
    shell(
        "cp \"$1\" \"$2\" && cd \"$3\" && find . | cpio -o -H newc --quiet | gzip -1 >>\"$2\"",
        &[&files_of_debian, &archive, &root],
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
            &debian.memory_mb.to_string(),
        ])
        .args(["-icount", "shift=0,sleep=off"])
        .args(["-cpu", "max,cx16=off,erms=off,fsrm=off"])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(&archive)
        .args([
            "-append",
            "console=ttyS0 quiet systemd.show_status=0 nolapic_timer panic=-1",
        ])
        .args(["-nographic", "-no-reboot", "-nic", "none"])
        .stdin(Stdio::null())
        .stdout(File::create(&output).unwrap())
        .status()
        .unwrap();
    let said = String::from_utf8_lossy(&fs::read(&output).unwrap()).into_owned();
    assert!(
        status.success() && said.contains("done"),
        "Linux {version}: {status}\n{said}"
    );
    Some(said)
}

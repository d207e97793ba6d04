// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Kills a command in the middle of its work: just after a system call that made a
//! lasting change.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Runs a command and kills it after its n-th system call that makes a lasting change;
/// false if the command ended before.
pub fn killed_after(command: &mut Command, n: usize) -> bool {
    // SAFETY: ptrace is a plain system call.
    unsafe {
        command.pre_exec(|| {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            Ok(())
        });
    }
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id() as i32;
    let (mut status, mut seen, mut inside) = (0, 0, false);
    let killed = loop {
        // SAFETY: this thread started the child and traces it.
        unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
        if !libc::WIFSTOPPED(status) {
            break false;
        }
        if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 {
            inside = !inside;
            if !inside && Call::of(pid).changes() {
                seen += 1;
            }
            if seen == n {
                child.kill().unwrap();
                break true;
            }
        }
        // SAFETY: as above.
        unsafe {
            let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
            libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options);
            libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, 0);
        }
    };
    // fails if the command ended by itself: it was waited for above
    let _ = child.wait();
    killed
}

/// The system call that a traced process has just finished.
struct Call {
    number: libc::c_long,
    first: u64,
}

impl Call {
    fn of(pid: i32) -> Self {
        // SAFETY: a zeroed record is valid, and its size is passed along.
        unsafe {
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            let mut into = libc::iovec {
                iov_base: (&raw mut registers).cast(),
                iov_len: size_of_val(&registers),
            };
            const NT_PRSTATUS: usize = 1;
            libc::ptrace(libc::PTRACE_GETREGSET, pid, NT_PRSTATUS, &raw mut into);
            #[cfg(target_arch = "x86_64")]
            let (number, first) = (registers.orig_rax, registers.rdi);
            // the register of the first argument holds the result by now
            #[cfg(target_arch = "aarch64")]
            let (number, first) = (registers.regs[8], 0);
            Self {
                number: number as libc::c_long,
                first,
            }
        }
    }

    /// Whether it makes a change that outlives the process.
    fn changes(&self) -> bool {
        /// Commands of bpf() with lasting changes: update and delete map elements, pin
        /// objects, create, update and detach links. The other commands only query, or
        /// create objects that end with the process.
        const LASTING: [u64; 6] = [2, 3, 6, 28, 29, 34];
        const FILES: [libc::c_long; 12] = [
            libc::SYS_sendto,
            libc::SYS_sendmsg,
            libc::SYS_ioctl,
            libc::SYS_mkdirat,
            libc::SYS_unlinkat,
            libc::SYS_mount,
            libc::SYS_umount2,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mkdir,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rmdir,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename,
            libc::SYS_renameat2,
        ];
        match self.number {
            libc::SYS_bpf => cfg!(target_arch = "aarch64") || LASTING.contains(&self.first),
            other => FILES.contains(&other),
        }
    }
}

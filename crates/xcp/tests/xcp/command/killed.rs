// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A command that is killed in the middle of its work: just after it has told
//! the kernel to change something that stays when it ends.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Runs a command and kills it when its n-th system call that changes something
/// is done; false if it ended before.
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
        // SAFETY: the child is ours and traced by this thread.
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
    // one that ended by itself has been waited for
    let _ = child.wait();
    killed
}

/// The system call that a traced process has just done.
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
            // the first argument's register has the result by now
            #[cfg(target_arch = "aarch64")]
            let (number, first) = (registers.regs[8], 0);
            Self {
                number: number as libc::c_long,
                first,
            }
        }
    }

    /// Whether it leaves something behind in the system.
    fn changes(&self) -> bool {
        /// Commands of bpf(): maps are updated and entries deleted, objects
        /// pinned, links made, changed and detached. The others make what goes
        /// with the process, or only ask.
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

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp run`: runs one program with XCP on its sockets, and removes everything when it
//! ends.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};

use xcp_datapath::host::RunGroup;

use xcp_cli::failure::{print_error, Failure};

/// Signals that end programs. They are passed on to the child and must not end `xcp`
/// before it.
const PASSED_ON: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

pub fn act(command: &[OsString]) -> Result<ExitCode, Failure> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::new("CMD", "nothing to run", "give a program"));
    };
    if starts_elsewhere(program) {
        let name = program.to_string_lossy();
        print_error(&format!(
            "xcp: warning: {name}: asks a service to start programs, which run outside the control \
             group of xcp run and do not use XCP\n  help: switch XCP on for their control group: \
             xcp host on --default --cgroup PATH"
        ));
    }
    // a signal may end the wait for another command here: nothing is set up yet
    let lock = RunGroup::lock()?;
    let signals = Signals::block()?;
    let group = RunGroup::new(lock)?;
    if signals.take_pending() {
        let failure = Failure::new(
            "xcp run",
            "interrupted before the program was started",
            "run it again",
        );
        return Err(failure.interrupted());
    }
    let mut child = start(program, arguments, &group.procs(), &signals)?;
    let status = signals.attend(&mut child)?;
    drop(group);
    Ok(ExitCode::from(code(status)))
}

/// Whether a program only asks a service to start others. These are children of that
/// service, in other control groups.
fn starts_elsewhere(program: &OsStr) -> bool {
    const CLIENTS: [&str; 11] = [
        "at",
        "ctr",
        "docker",
        "kubectl",
        "lxc",
        "machinectl",
        "nerdctl",
        "podman",
        "systemctl",
        "systemd-run",
        "virsh",
    ];
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| CLIENTS.contains(&name))
}

/// Starts the program inside the control group.
fn start(
    program: &OsStr,
    arguments: &[OsString],
    procs: &Path,
    signals: &Signals,
) -> Result<Child, Failure> {
    let door = OpenOptions::new()
        .write(true)
        .open(procs)
        .map_err(|e| Failure::io(procs.display().to_string(), &e))?;
    let (fd, mask) = (door.as_raw_fd(), signals.before);
    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: both calls may be made between fork and exec; `door` is open
    // until the child has been started, and `mask` is a copy.
    unsafe {
        command.pre_exec(move || {
            if libc::write(fd, c"0".as_ptr().cast(), 1) != 1 {
                return Err(io::Error::last_os_error());
            }
            libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            Ok(())
        });
    }
    command
        .spawn()
        .map_err(|e| Failure::not_started(program, &e))
}

fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    code as u8 // a process's status is one byte
}

/// Blocked signals, which are received one by one with `sigwaitinfo`.
struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    fn block() -> Result<Self, Failure> {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the calls initialise both sets before they are assumed to
        // be; the disposition of SIGCHLD is ours, no handler is involved.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let set = set.assume_init();
            if libc::sigprocmask(libc::SIG_BLOCK, &set, before.as_mut_ptr()) != 0 {
                return Err(Failure::io("signals", &io::Error::last_os_error()));
            }
            // the parent may have set SIGCHLD to be ignored
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            Ok(Self {
                set,
                before: before.assume_init(),
            })
        }
    }

    /// Whether a signal came before the child was started, and so cannot have reached it.
    fn take_pending(&self) -> bool {
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        loop {
            // SAFETY: both records are initialised; no information about the signal is asked for.
            match unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &now) } {
                libc::SIGCHLD => {}
                signal => return signal > 0,
            }
        }
    }

    /// Passes signals on until the child has ended.
    fn attend(&self, child: &mut Child) -> Result<ExitStatus, Failure> {
        loop {
            let ended = child.try_wait().map_err(|e| Failure::io("child", &e))?;
            if let Some(status) = ended {
                return Ok(status);
            }
            let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
            // SAFETY: the set is initialised, and so is the record if the
            // call succeeds.
            let (signal, origin) = unsafe {
                match libc::sigwaitinfo(&self.set, info.as_mut_ptr()) {
                    -1 => continue, // interrupted, by a stop for example
                    signal => (signal, info.assume_init().si_code),
                }
            };
            // signals of the terminal's keys reach the child directly; a hangup may reach
            // only the leader of the session
            let from_terminal = origin == libc::SI_KERNEL && signal != libc::SIGHUP;
            if signal != libc::SIGCHLD && !from_terminal {
                // SAFETY: the child has not been waited for, so its number
                // is still its own.
                unsafe { libc::kill(child.id() as libc::pid_t, signal) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_is_that_of_the_command() {
        assert_eq!(code(ExitStatus::from_raw(0)), 0);
        assert_eq!(code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code(ExitStatus::from_raw(libc::SIGTERM)), 143);
    }
}

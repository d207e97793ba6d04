// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Finds out why the kernel did not load an object, from the messages that libbpf prints,
//! because the error number is ambiguous. The verifier returns EACCES, EINVAL, E2BIG and
//! others (seen: EACCES on Linux 7.2 as root, E2BIG with 40 CPUs). So do a kernel without
//! a feature and a container that forbids BPF.

use std::cell::RefCell;

use libbpf_rs::{ErrorKind, PrintLevel};

use crate::error::{Error, FORBIDDEN, NOT_ROOT};
use crate::probes::kernel_release;

/// The remedy if the verifier rejected a program.
pub const REPORT: &str = "report it as a bug, with the output of `xcp doctor --json` and the last \
                          lines of this command with --verbose";

/// What libbpf printed while it loaded an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadLog {
    /// The last warning that names a reason.
    warning: Option<String>,
    /// The program that failed to load, and the name of the error.
    failed: Option<(String, String)>,
    /// The end of the verifier's log of that program.
    verifier: Option<String>,
}

thread_local! {
    static CAPTURED: RefCell<Option<LoadLog>> = const { RefCell::new(None) };
}

/// Runs `act`, which uses libbpf, and records libbpf's messages. libbpf calls its print
/// callback on the calling thread.
pub fn capture_log<T>(act: impl FnOnce() -> T) -> (T, LoadLog) {
    CAPTURED.set(Some(LoadLog::default()));
    let result = act();
    (result, CAPTURED.take().unwrap_or_default())
}

/// Handles a message from libbpf.
pub fn record_message(level: PrintLevel, text: &str) {
    if level == PrintLevel::Warn {
        CAPTURED.with_borrow_mut(|log| {
            if let Some(log) = log {
                log.record_message(text);
            }
        });
    }
}

impl LoadLog {
    fn record_message(&mut self, text: &str) {
        let text = text.strip_prefix("libbpf: ").unwrap_or(text).trim_end();
        if let Some((program, error)) = text
            .strip_prefix("prog '")
            .and_then(|t| t.split_once("': BPF program load failed: "))
        {
            let error = error.trim_start_matches('-');
            self.failed = Some((program.to_owned(), error.to_owned()));
            self.verifier = None;
        } else if text.contains("-- BEGIN PROG LOAD LOG --") {
            self.verifier = verdict(text);
            return;
        } else if is_summary(text) {
            return;
        }
        self.warning = text.lines().last().map(str::to_owned);
    }
}

/// Whether a message is the summary that libbpf prints after every failure.
fn is_summary(text: &str) -> bool {
    text.contains(": failed to load: ") || text.starts_with("failed to load object")
}

/// The verifier's messages after the last instruction that it checked; None if there are only
/// statistics.
fn verdict(log: &str) -> Option<String> {
    const MOST_LINES: usize = 3;
    let is_statistics = |line: &str| {
        ["processed ", "verification time ", "stack depth "]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let mut lines: Vec<&str> = log
        .lines()
        .rev()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.contains("PROG LOAD LOG --"))
        .filter(|line| !is_statistics(line))
        .take_while(|line| !is_trace(line))
        .take(MOST_LINES)
        .collect();
    lines.reverse();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Whether a line shows an instruction, its source code or the registers.
fn is_trace(line: &str) -> bool {
    let number = line.split(':').next().unwrap_or_default();
    line.starts_with("; ")
        || line.starts_with("from ")
        || line.starts_with("func#")
        || !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

/// Parts of verifier messages which mean that the kernel lacks a feature.
const LACKS: &[&str] = &[
    "func unknown#",
    "unknown func ",
    "cannot use helper",
    "CO-RE relocation",
    "kfunc '",
    "calling kernel function",
    "JIT does not support",
    "is not modifiable",
    "unsupported member",
];

/// Why an object was not loaded.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadError {
    NotRoot,
    /// BPF is forbidden, even for root.
    Forbidden,
    /// The verifier rejected a program that it should accept.
    Verifier {
        program: String,
        error: String,
        line: String,
    },
    /// The kernel lacks a feature that a program needs; libbpf's message.
    Lacks(String),
}

impl LoadError {
    pub fn new(err: &libbpf_rs::Error, log: LoadLog, root: bool) -> Self {
        let denied = err.kind() == ErrorKind::PermissionDenied;
        match (log.failed, log.verifier) {
            _ if denied && !root => Self::NotRoot,
            (_, Some(line)) if LACKS.iter().any(|words| line.contains(words)) => Self::Lacks(line),
            (Some((program, error)), Some(line)) => Self::Verifier {
                program,
                error,
                line,
            },
            _ if denied => Self::Forbidden,
            _ => Self::Lacks(log.warning.unwrap_or_else(|| err.to_string())),
        }
    }

    pub fn describe(self, thing: &str) -> Error {
        match self {
            Self::NotRoot => Error::new(thing, "only root may load BPF programs", NOT_ROOT),
            Self::Forbidden => Error::new(
                thing,
                "the kernel (lockdown) or the container that this runs in forbids BPF",
                FORBIDDEN,
            ),
            Self::Verifier {
                program,
                error,
                line,
            } => Error::new(
                thing,
                format!("this kernel's verifier rejected the program ({program}, {error}): {line}"),
                REPORT,
            ),
            Self::Lacks(what) => Error::new(
                thing,
                format!("Linux {} lacks what it needs ({what})", kernel_release()),
                "use Linux 6.6 or later; `xcp doctor` shows what is missing, --verbose shows \
                 the kernel's messages",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "libbpf: prog 'xcp_router': -- BEGIN PROG LOAD LOG --\n\
        0: R1=ctx() R10=fp0\n\
        5: (71) r0 = *(u8 *)(r1 +0)\n\
        invalid access to packet, off=0 size=1, R1(id=0,off=0,r=0)\n\
        R1 offset is outside of the packet\n\
        processed 3 insns (limit 1000000) max_states_per_insn 0 total_states 0\n\
        -- END PROG LOAD LOG --\n";
    const SUMMARY: [&str; 2] = [
        "libbpf: prog 'xcp_router': failed to load: -EACCES\n",
        "libbpf: failed to load object 'router'\n",
    ];

    fn log(lines: &[&str]) -> LoadLog {
        let ((), log) = capture_log(|| {
            for line in lines.iter().chain(&SUMMARY) {
                record_message(PrintLevel::Warn, line);
            }
        });
        log
    }

    fn told(errno: i32, root: bool, lines: &[&str]) -> String {
        let err = libbpf_rs::Error::from_raw_os_error(errno);
        let e = LoadError::new(&err, log(lines), root).describe("router");
        format!("{e}; {}", e.remedy)
    }

    #[test]
    fn verifier_errors_are_recognized_for_every_errno() {
        for (errno, name) in [
            (libc::EACCES, "EACCES"),
            (libc::EPERM, "EPERM"),
            (libc::EINVAL, "EINVAL"),
            (libc::E2BIG, "E2BIG"),
        ] {
            let failed = format!("libbpf: prog 'xcp_router': BPF program load failed: -{name}\n");
            let text = told(errno, true, &[&failed, LOG]);
            assert!(
                text.starts_with(&format!(
                    "router: this kernel's verifier rejected the program (xcp_router, {name}): \
                     invalid access to packet, off=0 size=1, R1(id=0,off=0,r=0); \
                     R1 offset is outside of the packet; "
                )),
                "{text}"
            );
            assert!(
                text.contains("`xcp doctor --json`") && text.contains("--verbose"),
                "{text}"
            );
            assert!(!text.contains("root"), "{text}");
        }
    }

    #[test]
    fn only_non_root_users_are_asked_to_become_root() {
        for errno in [libc::EPERM, libc::EACCES] {
            let text = told(errno, false, &[]);
            assert!(text.contains("run it as root"), "{text}");
            let text = told(errno, true, &[]);
            assert!(text.contains("forbids BPF"), "{text}");
            assert!(!text.contains("as root"), "{text}");
        }
    }

    #[test]
    fn missing_kernel_features_are_reported() {
        let missing = "extern (func ksym) 'bpf_qdisc_x': not found in kernel or module BTFs";
        for errno in [libc::EINVAL, libc::ESRCH, libc::ENOTSUP] {
            let text = told(errno, true, &[&format!("libbpf: {missing}\n")]);
            assert!(
                text.contains(&format!("lacks what it needs ({missing})")),
                "{text}"
            );
            assert!(!text.contains("root"), "{text}");
        }
        let failed = "libbpf: prog 'p': BPF program load failed: -EINVAL\n";
        for line in [
            "unknown func bpf_sk_x#999",
            "kfunc 'bpf_qdisc_x' is referenced but wasn't resolved",
            "failed to resolve CO-RE relocation <byte_off> [7] struct tcp_sock.x (0:1)",
        ] {
            let log = format!(
                "prog 'p': -- BEGIN PROG LOAD LOG --\n0: (85)\n{line}\n-- END PROG LOAD LOG --\n"
            );
            let text = told(libc::EINVAL, true, &[failed, &log]);
            assert!(
                text.contains(&format!("lacks what it needs ({line})")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_log_with_only_statistics_is_not_a_verifier_error() {
        let failed = "libbpf: prog 'p': BPF program load failed: -ENOMEM\n";
        let log = "libbpf: prog 'p': -- BEGIN PROG LOAD LOG --\nprocessed 3 insns\n-- END PROG LOAD LOG --\n";
        let text = told(libc::ENOMEM, true, &[failed, log]);
        assert!(
            text.contains("(prog 'p': BPF program load failed: -ENOMEM)"),
            "{text}"
        );
    }
}

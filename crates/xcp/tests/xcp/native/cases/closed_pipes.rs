// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp doctor --verbose 2>&1 | head`: a command ends with its usual exit status if its
//! output cannot be written.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::command::XCP;
use xcp_testbed::shared_test_lock;

/// An output that cannot be written.
#[derive(Clone, Copy, Debug)]
enum Broken {
    /// A pipe whose reader is gone.
    Pipe,
    FullDisk,
    Closed,
}

impl Broken {
    fn stdio(self) -> Stdio {
        match self {
            Self::Pipe => {
                let (reader, writer) = io::pipe().unwrap();
                drop(reader);
                writer.into()
            }
            Self::FullDisk => File::options()
                .write(true)
                .open("/dev/full")
                .unwrap()
                .into(),
            Self::Closed => Stdio::null(),
        }
    }
}

/// The exit status of a command if these of its descriptors cannot be written.
fn status(args: &str, broken: Option<(Broken, &'static [i32])>) -> String {
    let mut command = Command::new(XCP);
    command.args(args.split_whitespace());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some((kind, descriptors)) = broken {
        for descriptor in descriptors {
            match descriptor {
                1 => command.stdout(kind.stdio()),
                _ => command.stderr(kind.stdio()),
            };
        }
        if matches!(kind, Broken::Closed) {
            // SAFETY: close may be called between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    for descriptor in descriptors {
                        libc::close(*descriptor);
                    }
                    Ok(())
                });
            }
        }
    }
    command.status().unwrap().to_string()
}

#[test]
fn a_command_does_not_abort_when_its_output_cannot_be_written() {
    let _lock = shared_test_lock().unwrap();
    for args in [
        "doctor --verbose",
        "doctor --verbose --json",
        "router show",
        "host show",
        "host on --without care",
        "--help",
        "completions bash",
        "config schema",
        "no-such-command",
    ] {
        let usual = status(args, None);
        for broken in [Broken::Pipe, Broken::FullDisk, Broken::Closed] {
            assert_eq!(
                status(args, Some((broken, &[2]))),
                usual,
                "{args}: {broken:?}"
            );
        }
        // as with `2>&1 | head`
        for broken in [Broken::Pipe, Broken::Closed] {
            let both = status(args, Some((broken, &[1, 2])));
            assert_eq!(both, usual, "{args}: {broken:?}");
        }
        // a full disk is reported at least by the exit status
        let full = status(args, Some((Broken::FullDisk, &[1, 2])));
        assert!(full.starts_with("exit status: "), "{args}: {full}");
    }
}

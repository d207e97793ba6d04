// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The init process of the virtual machine. It mounts file systems, loads
//! modules, reads its request and answers through the debug port, or by
//! semihosting on aarch64. Both work without interrupts and without buffering.

use std::cell::Cell;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::capture_chunk::{self, CaptureChunk};
use crate::experiment::Experiment;
use crate::play;
use crate::result::{Series, VariantResult};
use crate::{Error, Result};

/// The directory of the modules that the machine loads, numbered in order.
pub const MODULE_DIR: &str = "modules";
/// The file with the request to the machine.
pub const REQUEST: &str = "request.json";

/// The I/O port of the machine's debug console, set up in `architecture.rs` of
/// the lab.
#[cfg(target_arch = "x86_64")]
const DEBUG_PORT: u16 = 0xe9;
/// Enough for 10,000 connections through two gateways.
const OPEN_FILES_MAX: libc::rlim_t = 1 << 17;
/// Progress is reported in steps of 2 %.
const PROGRESS_STEP: f64 = 0.02;

/// A request to the machine to play one variant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The experiment with only this variant, [`Experiment::without_descriptions`].
    pub experiment: Experiment,
    pub seed: u64,
    /// Where to capture packets.
    pub points: Vec<String>,
}

impl Request {
    /// A request for one variant, without the parts that cannot change its
    /// result.
    pub fn new(
        experiment: &Experiment,
        variant: &str,
        seed: u64,
        points: &[String],
    ) -> Result<Self> {
        Ok(Self {
            experiment: experiment
                .keep(&[variant.to_owned()])?
                .without_descriptions(),
            seed,
            points: points.to_vec(),
        })
    }
}

/// A message from the machine, one JSON line each. `A` is the answer to its
/// request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message<A> {
    /// The machine has booted this kernel release.
    Booted(String),
    /// The completed fraction of the request, 0 to 1.
    Done(f64),
    Answer(A),
    /// The request is completed, and no message follows.
    Finished,
    Failed {
        thing: String,
        reason: String,
        remedy: String,
    },
}

/// The machine's answer to a [`Request`].
#[derive(Debug, Serialize, Deserialize)]
pub enum Played {
    /// A chunk of a capture; all chunks are sent before the result.
    CaptureChunk(CaptureChunk),
    Result(Box<(VariantResult, Series)>),
}

/// Sends the machine's messages.
pub struct Channel {
    port: Port,
    reported: Cell<f64>,
}

impl Channel {
    fn open() -> Result<Self> {
        Ok(Self {
            port: Port::open()?,
            reported: Cell::new(0.0),
        })
    }

    /// Sends a part of the answer.
    pub fn answer<A: Serialize>(&self, answer: A) {
        self.send(&Message::Answer(answer));
    }

    /// Reports the completed fraction of the request, 0 to 1.
    pub fn progress(&self, done: f64) {
        if done >= self.reported.get() + PROGRESS_STEP {
            self.reported.set(done);
            self.send(&Message::<()>::Done(done));
        }
    }

    fn send<A: Serialize>(&self, message: &Message<A>) {
        self.port
            .write(serde_json::to_vec(message).unwrap_or_default());
    }
}

/// The machine's output port: its debug port, or semihosting.
struct Port(());

#[cfg(target_arch = "x86_64")]
impl Port {
    fn open() -> Result<Self> {
        // SAFETY: requests access to one port, on which only QEMU's debug
        // console listens.
        if unsafe { libc::ioperm(DEBUG_PORT.into(), 1, 1) } != 0 {
            return Err(Error::io("ioperm", &std::io::Error::last_os_error()));
        }
        Ok(Self(()))
    }

    fn write(&self, mut line: Vec<u8>) {
        line.push(b'\n');
        // SAFETY: the port may be written, since a Port exists; pointer and
        // length describe the line.
        unsafe {
            std::arch::asm!(
                "rep outsb",
                in("dx") DEBUG_PORT,
                inout("rsi") line.as_ptr() => _,
                inout("rcx") line.len() => _,
                options(nostack, readonly)
            );
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl Port {
    fn open() -> Result<Self> {
        Ok(Self(()))
    }

    fn write(&self, mut line: Vec<u8>) {
        /// The semihosting call that writes a zero-terminated string to the
        /// console.
        const SYS_WRITE0: u64 = 4;
        line.extend(b"\n\0");
        // SAFETY: QEMU reads the line, which ends with 0. A machine without
        // semihosting stops here.
        unsafe {
            std::arch::asm!(
                "hlt #0xf000",
                inout("x0") SYS_WRITE0 => _,
                in("x1") line.as_ptr(),
                options(nostack, readonly)
            );
        }
    }
}

/// The main function of the init process: runs `work` on the request, and stops
/// the machine.
pub fn main<R: DeserializeOwned>(work: impl FnOnce(R, &Channel) -> Result<()>) -> ! {
    match Channel::open() {
        Ok(channel) => {
            let message = match begin(&channel).and_then(|request| work(request, &channel)) {
                Ok(()) => Message::Finished,
                Err(e) => Message::Failed {
                    thing: e.thing,
                    reason: e.reason,
                    remedy: e.remedy,
                },
            };
            channel.send::<()>(&message);
        }
        Err(e) => {
            let _ = writeln!(io::stderr(), "{e}");
        }
    }
    // SAFETY: the machine has nothing left to save.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    // SAFETY: as above; a machine without power management stops by panic.
    unsafe { libc::reboot(libc::RB_AUTOBOOT) };
    std::process::exit(0)
}

/// Prepares the machine, and reads the request.
fn begin<R: DeserializeOwned>(channel: &Channel) -> Result<R> {
    mount_all()?;
    load_modules()?;
    allow_open_files()?;
    let release =
        fs::read_to_string("/proc/sys/kernel/osrelease").map_err(|e| Error::io("osrelease", &e))?;
    channel.send(&Message::<()>::Booted(release.trim().to_owned()));
    let text = fs::read(format!("/{REQUEST}")).map_err(|e| Error::io(REQUEST, &e))?;
    serde_json::from_slice(&text).map_err(|e| Error::new(REQUEST, e.to_string(), "report this"))
}

/// Plays a variant, and answers with [`Played`].
pub fn play(request: Request, channel: &Channel) -> Result<()> {
    for variant in &request.experiment.variants {
        let outcome = play::play(
            &request.experiment,
            variant,
            request.seed,
            &request.points,
            "",
            &mut |done| channel.progress(done),
        )?;
        for parcel in outcome.recordings.into_iter().flat_map(capture_chunk::pack) {
            channel.answer(Played::CaptureChunk(parcel));
        }
        let result = Box::new((outcome.result, outcome.series));
        channel.answer(Played::Result(result));
    }
    Ok(())
}

/// All sockets of an experiment belong to one process.
fn allow_open_files() -> Result<()> {
    let limit = libc::rlimit {
        rlim_cur: OPEN_FILES_MAX,
        rlim_max: OPEN_FILES_MAX,
    };
    // SAFETY: the pointer is to a valid limit.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(Error::io("open files", &io::Error::last_os_error()));
    }
    Ok(())
}

fn mount_all() -> Result<()> {
    for (kind, at) in [
        ("devtmpfs", "/dev"),
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("tmpfs", "/run"),
        ("bpf", "/sys/fs/bpf"),
        ("cgroup2", "/sys/fs/cgroup"),
    ] {
        mount(kind, at)?;
    }
    Ok(())
}

fn mount(kind: &str, at: &str) -> Result<()> {
    let c = |s: &str| CString::new(s).unwrap_or_default();
    let (kind_c, at_c) = (c(kind), c(at));
    // SAFETY: C strings that live through the call.
    let rc = unsafe {
        libc::mount(
            kind_c.as_ptr(),
            at_c.as_ptr(),
            kind_c.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    let e = std::io::Error::last_os_error();
    if rc != 0 && e.raw_os_error() != Some(libc::EBUSY) {
        return Err(Error::io(format!("mounting {kind} in the machine"), &e));
    }
    Ok(())
}

fn load_modules() -> Result<()> {
    let dir = Path::new("/").join(MODULE_DIR);
    let mut files: Vec<_> = fs::read_dir(&dir)
        .map_err(|e| Error::io(MODULE_DIR, &e))?
        .flatten()
        .map(|e| e.path())
        .collect();
    files.sort();
    for path in files {
        let name = path.display().to_string();
        let file = File::open(&path).map_err(|e| Error::io(&name, &e))?;
        // SAFETY: the descriptor is open and the parameters a C string.
        let rc =
            unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
        let e = std::io::Error::last_os_error();
        if rc != 0 && e.raw_os_error() != Some(libc::EEXIST) {
            return Err(Error::io(format!("loading module {name}"), &e));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_variant_and_no_checks_or_texts() {
        let whole = {
            let text = include_str!("../../../experiments/zh-validation.toml");
            Experiment::parse("zh-validation", text).expect("valid")
        };
        assert!(!whole.checks.is_empty() && whole.variants.len() > 1);
        let request = Request::new(&whole, "xcp", 1, &[]).expect("has this variant");
        let asked = request.experiment;
        assert_eq!(asked.variants.len(), 1);
        assert_eq!(asked.variants[0].name, "xcp");
        assert!(asked.checks.is_empty());
        assert_eq!((asked.about.as_str(), asked.source.as_str()), ("", ""));
        assert!(Request::new(&whole, "vegas", 1, &[]).is_err());
    }
}

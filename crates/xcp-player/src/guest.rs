// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Inside the machine: its init. It mounts what is needed, loads the modules,
//! does its task and says what came of it through the debug port, or by
//! semihosting on aarch64, which cost no interrupts and no buffering.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cost::{self, Cost, Subject};
use crate::exec::{self, Program, Stream};
use crate::experiment::Experiment;
use crate::parcel::{self, Parcel};
use crate::play;
use crate::programs::Loaded;
use crate::qdisc::{self, Check};
use crate::result::{Series, VariantResult};
use crate::{Error, Result};

/// Where the machine finds the modules to load, numbered in order.
pub const MODULE_DIR: &str = "modules";
/// And what it is asked to do.
pub const REQUEST: &str = "request.json";

/// I/O port of the machine's debug console, which `architecture.rs` of the lab
/// puts there.
#[cfg(target_arch = "x86_64")]
const DEBUG_PORT: u16 = 0xe9;

/// What the machine is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    Play(Box<Request>),
    /// Replaces, changes and deletes the queue discipline so often.
    CheckQdisc {
        cycles: u32,
    },
    /// Loads every program for several numbers of processors, and sends traffic
    /// through them.
    CheckPrograms,
    /// Counts what a part of the data path costs.
    Bench(Subject),
    /// Runs a program of the user's.
    Exec(Program),
}

/// A play that the machine is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// With the one variant to play, and bare.
    pub experiment: Experiment,
    pub seed: u64,
    /// Where to capture packets.
    pub points: Vec<String>,
}

impl Task {
    /// Does it need the guest that has XCP-i's edges?
    pub fn has_edges(&self) -> bool {
        match self {
            Self::Play(request) => request.has_edges(),
            Self::CheckPrograms => true,
            Self::CheckQdisc { .. } | Self::Bench(_) | Self::Exec(_) => false,
        }
    }
}

impl Request {
    /// As a task's.
    pub fn has_edges(&self) -> bool {
        self.experiment.variants.iter().any(|v| v.edges)
    }

    /// A request for one variant, without what cannot change its result.
    pub fn new(
        experiment: &Experiment,
        variant: &str,
        seed: u64,
        points: &[String],
    ) -> Result<Self> {
        Ok(Self {
            experiment: experiment.keep(&[variant.to_owned()])?.bare(),
            seed,
            points: points.to_vec(),
        })
    }
}

/// What the machine says, one JSON line each.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    /// Up and running this kernel release.
    Booted(String),
    /// How far it is, 0 to 1.
    Done(f64),
    /// A piece of a capture; all come before the result.
    Parcel(Parcel),
    Result(Box<(VariantResult, Series)>),
    Loaded(Vec<Loaded>),
    Checks(Vec<Check>),
    Costs(Vec<Cost>),
    /// What the program of [`Task::Exec`] wrote, see [`exec::text_of`].
    Output(Stream, String),
    /// Its exit status, or 128 + the number of the signal that ended it.
    Exited(u8),
    /// Nothing more will be said.
    Finished,
    Failed {
        thing: String,
        reason: String,
        remedy: String,
    },
}

/// The way out of the machine: its debug port, or semihosting.
struct Voice(());

#[cfg(target_arch = "x86_64")]
impl Voice {
    fn open() -> Result<Self> {
        // SAFETY: asks for the right to one port that only QEMU's debug
        // console listens to.
        if unsafe { libc::ioperm(DEBUG_PORT.into(), 1, 1) } != 0 {
            return Err(Error::io("ioperm", &std::io::Error::last_os_error()));
        }
        Ok(Self(()))
    }

    fn say(&self, word: &Word) {
        let mut line = serde_json::to_vec(word).unwrap_or_default();
        line.push(b'\n');
        // SAFETY: the port may be written, since a Voice exists; the buffer
        // is as long as said.
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
impl Voice {
    fn open() -> Result<Self> {
        Ok(Self(()))
    }

    fn say(&self, word: &Word) {
        /// Semihosting's call that writes a string to the console, up to its 0.
        const SYS_WRITE0: u64 = 4;
        let mut line = serde_json::to_vec(word).unwrap_or_default();
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

/// What the first process of the machine does. Never returns.
pub fn main() -> ! {
    match Voice::open() {
        Ok(voice) => {
            if let Err(e) = mount_all().and_then(|()| work(&voice)) {
                voice.say(&Word::Failed {
                    thing: e.thing,
                    reason: e.reason,
                    remedy: e.remedy,
                });
            }
        }
        Err(e) => {
            let _ = writeln!(io::stderr(), "{e}");
        }
    }
    // SAFETY: nothing is left to lose in here.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    // SAFETY: as above; a machine without power management stops by panic.
    unsafe { libc::reboot(libc::RB_AUTOBOOT) };
    std::process::exit(0)
}

fn work(voice: &Voice) -> Result<()> {
    load_modules()?;
    let release =
        fs::read_to_string("/proc/sys/kernel/osrelease").map_err(|e| Error::io("osrelease", &e))?;
    voice.say(&Word::Booted(release.trim().to_owned()));
    let text = fs::read(format!("/{REQUEST}")).map_err(|e| Error::io(REQUEST, &e))?;
    let task: Task = serde_json::from_slice(&text)
        .map_err(|e| Error::new(REQUEST, e.to_string(), "report this"))?;
    let mut last = 0.0;
    let mut progress = |done: f64| {
        if done >= last + 0.02 {
            last = done;
            voice.say(&Word::Done(done));
        }
    };
    match task {
        Task::Play(request) => play_all(&request, voice, &mut progress)?,
        Task::CheckQdisc { cycles } => {
            voice.say(&Word::Checks(qdisc::check(cycles, &mut progress)?));
        }
        #[cfg(not(feature = "edges"))]
        Task::CheckPrograms => return Err(crate::edges::missing("programs")),
        #[cfg(feature = "edges")]
        Task::CheckPrograms => {
            voice.say(&Word::Loaded(crate::programs::load()?));
            voice.say(&Word::Checks(crate::programs::check(&mut progress)?));
        }
        Task::Bench(subject) => {
            voice.say(&Word::Costs(cost::count(subject, &mut progress)?));
        }
        Task::Exec(program) => {
            let mut write = |stream, text| voice.say(&Word::Output(stream, text));
            let status = exec::run(&program, &mut write)?;
            voice.say(&Word::Exited(status));
        }
    }
    voice.say(&Word::Finished);
    Ok(())
}

fn play_all(request: &Request, voice: &Voice, progress: &mut dyn FnMut(f64)) -> Result<()> {
    for variant in &request.experiment.variants {
        let outcome = play::play(
            &request.experiment,
            variant,
            request.seed,
            &request.points,
            "",
            progress,
        )?;
        for parcel in outcome.recordings.into_iter().flat_map(parcel::pack) {
            voice.say(&Word::Parcel(parcel));
        }
        voice.say(&Word::Result(Box::new((outcome.result, outcome.series))));
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
            Experiment::parse("zh-validation", text).expect("is well")
        };
        assert!(!whole.checks.is_empty() && whole.variants.len() > 1);
        let request = Request::new(&whole, "xcp", 1, &[]).expect("it has this variant");
        let asked = request.experiment;
        assert_eq!(asked.variants.len(), 1);
        assert_eq!(asked.variants[0].name, "xcp");
        assert!(asked.checks.is_empty());
        assert_eq!((asked.about.as_str(), asked.source.as_str()), ("", ""));
        assert!(Request::new(&whole, "vegas", 1, &[]).is_err());
    }
}

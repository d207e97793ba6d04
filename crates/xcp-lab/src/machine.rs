// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The virtual-time machine: an unmodified kernel in QEMU whose clock counts
//! instructions, so that a run is the same on any host, however busy.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::Serialize;

use crate::architecture::Architecture;
use crate::capture::{Recording, ROOM_BYTES};
use crate::capture_chunk::Unpacker;
use crate::guest::{self, Message, Request, REQUEST};
use crate::initramfs::Archive;
use crate::kernel::Kernel;
use crate::result::{Series, VariantResult};
use crate::{interrupt, Error, Result};

/// Boot timeout, in processor time of QEMU; in real time it is ten times as long.
const BOOT_PATIENCE: Duration = Duration::from_secs(300);
/// Console messages after which the kernel has stopped.
const LAST_WORDS: &[&str] = &["Kernel panic", "System halted"];
const MEMORY_MB: u32 = 768;
/// Additional memory for captures, which are kept in memory until the end of the run.
const MEMORY_FOR_CAPTURES_MB: u32 = (2 * (ROOM_BYTES >> 20)) as u32;
/// A clock that counts instructions and skips idle time. Recording (to /dev/null) makes
/// QEMU run one thread at a time. Otherwise its threads race: the thread that skips idle
/// time may read the clock of a processor that has just halted before its last
/// instructions are counted. (Seen without recording: two runs differed about once in 100 s
/// of pacing timers.)
const CLOCK: &str = "shift=0,sleep=off,rr=record,rrfile=/dev/null";
/// QEMU can record only one processor. With more, runs may differ.
const CLOCK_OF_MANY: &str = "shift=0,sleep=off";

/// Kernel parameters on every architecture. With DAMON (from Linux 6.17 on) runs differ: it
/// samples whether pages were accessed. QEMU marks a page as accessed when it refills its TLB,
/// whose size depends on the host's clock. The kernel's self-tests of its cryptography, and
/// zeroing all allocated memory, only cost instructions.
const PARAMETERS: &str = " loglevel=4 panic=-1 norandmaps random.trust_cpu=off mitigations=off \
                          damon_stat.enabled=0 cryptomgr.notests init_on_alloc=0";

/// The output of a machine: its kernel's release, the figures and the samples.
pub struct Played {
    pub kernel: String,
    pub result: VariantResult,
    pub series: Series,
    pub recordings: Vec<Recording>,
}

/// Boots a machine that runs one variant, and waits for it.
pub fn play(
    kernel: &Kernel,
    base: &[u8],
    request: &Request,
    progress: &dyn Fn(f64),
) -> Result<Played> {
    let setup = Setup::of(request);
    let mut release = None;
    let mut unpacker = Unpacker::default();
    let played = run_machine(kernel, base, request, setup, &mut |message| match message {
        Message::Booted(r) => {
            release = Some(r);
            Ok(None)
        }
        Message::Answer(guest::Played::CaptureChunk(parcel)) if !unpacker.add(&parcel) => {
            Err(Error::new("capture", "damaged in transfer", "report this"))
        }
        Message::Done(done) => {
            progress(done);
            Ok(None)
        }
        Message::Answer(guest::Played::Result(played)) => Ok(Some(played)),
        _ => Ok(None),
    })?;
    let (result, series) = *played;
    Ok(Played {
        kernel: release.unwrap_or_default(),
        result,
        series,
        recordings: unpacker.finish(),
    })
}

/// The parameters of a machine, apart from its kernel.
#[derive(Clone, Copy)]
pub struct Setup {
    pub seed: u64,
    pub memory_mb: u32,
    pub processors: u32,
}

impl Setup {
    /// The setup that a request needs.
    pub fn of(request: &Request) -> Self {
        let mut memory_mb = MEMORY_MB;
        if !request.points.is_empty() {
            memory_mb += MEMORY_FOR_CAPTURES_MB;
        }
        Self {
            seed: request.seed,
            memory_mb,
            ..Self::default()
        }
    }

    /// QEMU's arguments, except for the paths of files, for a kernel of this
    /// architecture and release.
    pub fn arguments(&self, architecture: &Architecture, release: &str) -> Vec<String> {
        let processors = self.processors.to_string();
        let clock = if self.processors > 1 {
            CLOCK_OF_MANY
        } else {
            CLOCK
        };
        let parameters = parameters(architecture, release);
        let memory_mb = self.memory_mb.to_string();
        let seed = (self.seed as u32).to_string();
        let arguments: &[&[&str]] = &[
            &["-nodefaults", "-no-user-config", "-no-reboot"],
            &["-display", "none", "-smp", &processors],
            &["-m", &memory_mb],
            &["-accel", "tcg", "-icount", clock],
            &["-cpu", architecture.cpu],
            &["-seed", &seed],
            &["-rtc", "base=2026-01-01,clock=vm"],
            &["-append", &parameters],
            &["-chardev", "stdio,id=voice,signal=off"],
            architecture.voice,
        ];
        arguments.concat().into_iter().map(str::to_owned).collect()
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 1,
            memory_mb: MEMORY_MB,
            processors: 1,
        }
    }
}

/// Boots a machine with a request, and passes its messages to `hear` until that returns a
/// value. Its files are in a temporary folder, which is removed when it ends.
pub fn run_machine<A: DeserializeOwned + Send + 'static, T>(
    kernel: &Kernel,
    base: &[u8],
    request: &impl Serialize,
    setup: Setup,
    hear: &mut dyn FnMut(Message<A>) -> Result<Option<T>>,
) -> Result<T> {
    let work = tempfile::Builder::new()
        .prefix("xcp-lab-")
        .tempdir()
        .map_err(|e| Error::io("temporary folder", &e))?;
    let initrd = work.path().join("initrd");
    let console = work.path().join("console");
    let text = serde_json::to_vec(request)
        .map_err(|e| Error::new(REQUEST, e.to_string(), "report this"))?;
    let mut archive = Archive::default();
    archive.file(REQUEST, false, &text);
    let mut bytes = base.to_vec();
    bytes.extend(archive.finish());
    fs::write(&initrd, bytes).map_err(|e| Error::io(initrd.display().to_string(), &e))?;

    let mut child = Running(start(kernel, &initrd, &console, setup)?);
    let messages = listen(&mut child.0);
    let mut booted = false;
    let begin = Instant::now();
    loop {
        if interrupt::requested() {
            return Err(interrupt::error());
        }
        match messages.recv_timeout(Duration::from_millis(100)) {
            Ok(Message::Failed {
                thing,
                reason,
                remedy,
            }) => return Err(Error::new(thing, reason, remedy)),
            Ok(message) => {
                booted |= matches!(message, Message::Booted(_));
                if let Some(wanted) = hear(message)? {
                    return Ok(wanted);
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout)
                if !has_given_up(&console)
                    && (booted
                        || (processor_time(&child.0) < BOOT_PATIENCE
                            && begin.elapsed() < 10 * BOOT_PATIENCE)) => {}
            Err(_) => return Err(silent(kernel, &console, booted, &mut child.0)),
        }
    }
}

/// The processor time of a process.
fn processor_time(child: &Child) -> Duration {
    // the name may contain any character; after it, fields 14 and 15 are user and system time
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    // SAFETY: asks for a constant.
    let per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Duration::from_secs(ticks / u64::try_from(per_s).unwrap_or(100).max(1))
}

fn has_given_up(console: &Path) -> bool {
    let said = fs::read_to_string(console).unwrap_or_default();
    LAST_WORDS.iter().any(|words| said.contains(words))
}

/// Kills the machine when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(kernel: &Kernel, initrd: &Path, console: &Path, setup: Setup) -> Result<Child> {
    let mut command = Command::new(kernel.architecture.qemu);
    command
        .args(setup.arguments(kernel.architecture, &kernel.release))
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initrd)
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .process_group(0) // Ctrl-C ends xcp-lab, which ends QEMU
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: the call may be made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command
        .spawn()
        .map_err(|e| missing(kernel.architecture, &e))
}

/// The error for a QEMU that cannot be started.
pub fn missing(architecture: &Architecture, e: &std::io::Error) -> Error {
    Error::new(
        architecture.qemu,
        e.to_string(),
        format!("install it: apt-get install {}", architecture.package),
    )
}

/// The kernel's command line.
fn parameters(architecture: &Architecture, release: &str) -> String {
    let major = release.split('.').next().and_then(|n| n.parse().ok());
    let mut parameters = architecture.parameters.to_owned() + PARAMETERS;
    if major.is_some_and(|major: u32| major >= 7) {
        parameters += architecture.parameters_7;
    }
    parameters
}

/// Reads the machine's messages in a separate thread.
fn listen<A: DeserializeOwned + Send + 'static>(child: &mut Child) -> mpsc::Receiver<Message<A>> {
    let (to, messages) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(|l| l.ok()) {
                let Ok(message) = serde_json::from_str(&line) else {
                    return;
                };
                if to.send(message).is_err() {
                    return;
                }
            }
        });
    }
    messages
}

/// The error of a machine that ended or hangs without a result.
fn silent(kernel: &Kernel, console: &Path, booted: bool, child: &mut Child) -> Error {
    // a process that has begun to end keeps its exit status
    let _ = child.kill();
    let status = child.wait().ok();
    let failed = status.filter(|s| !s.success() && s.signal() != Some(libc::SIGKILL));
    let mut said = fs::read(console).unwrap_or_default();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = std::io::Read::read_to_end(&mut stderr, &mut said);
    }
    let said = String::from_utf8_lossy(&said);
    let tail: Vec<&str> = said.lines().rev().take(8).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    if let Some(status) = failed {
        return Error::new(
            kernel.architecture.qemu,
            format!("ended with {status}:\n{}", tail.join("\n")),
            "see its message; `xcp lab doctor` checks what it needs",
        );
    }
    let (reason, remedy) = if booted {
        (
            "the virtual machine stopped before the run was complete",
            "report this".to_owned(),
        )
    } else {
        (
            "the kernel image does not boot in the machine",
            format!(
                "it needs CONFIG_BLK_DEV_INITRD, CONFIG_DEVTMPFS, {}; try --kernel 6.12",
                kernel.architecture.configuration
            ),
        )
    };
    Error::new(
        kernel.image.display().to_string(),
        format!("{reason}; end of its console:\n{}", tail.join("\n")),
        remedy,
    )
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Runs programs on single packets without a device, and measures the time of a run
//! (BPF_PROG_TEST_RUN).

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use libbpf_rs::{MapHandle, Object, ProgramInput};
use xcp_abi::xcp_router_counters;
use xcp_datapath::internal::{cloud, object, router};
use xcp_datapath::router::Options;
use xcp_datapath::trace::Ring;
use xcp_datapath::Result;

use crate::{image, last_os};

/// A loaded program that is not attached: the router's by default.
pub struct Bench {
    object: Object,
    program: &'static str,
}

impl Bench {
    /// Loads a router.
    pub fn new(options: Options) -> Result<Self> {
        Ok(Self {
            object: router::load(14, options)?,
            program: "xcp_router",
        })
    }

    /// Loads the virtual router of an upstream router, given its identifier in last_xcp_router.
    pub fn of_cloud(upstream: u32) -> Result<Self> {
        Ok(Self {
            object: cloud::load_for(object::cpus()?, 14, upstream)?,
            program: "xcp_virtual",
        })
    }

    /// Loads a program that does nothing: the baseline of time measurements.
    pub fn empty() -> Result<Self> {
        Ok(Self {
            object: image::load_only("xcp_empty")?,
            program: "xcp_empty",
        })
    }

    /// Runs the program on one Ethernet frame. Returns the resulting frame and the verdict.
    pub fn packet(&self, frame: &[u8]) -> Result<(Vec<u8>, i32)> {
        let mut out = vec![0; frame.len() + 256];
        let program = object::program(&self.object, self.program)?;
        let result = program
            .test_run(ProgramInput {
                data_in: Some(frame),
                data_out: Some(&mut out),
                repeat: 1,
                ..Default::default()
            })
            .map_err(|e| object::failure("test run", &e))?;
        let length = result.data.as_ref().map_or(0, |d| d.len());
        let verdict = result.return_value as i32;
        out.truncate(length);
        Ok((out, verdict))
    }

    /// Measures the mean time of one run.
    pub fn time(&self, frame: &[u8], repeat: u32) -> Result<Duration> {
        object::program(&self.object, self.program)?
            .test_run(ProgramInput {
                data_in: Some(frame),
                repeat,
                ..Default::default()
            })
            .map(|out| out.duration)
            .map_err(|e| object::failure("test run", &e))
    }

    /// Measures the mean time of one run on several CPUs at once, with one router. Returns a
    /// mean per CPU.
    pub fn time_on(&self, cpus: &[usize], frame: &[u8], repeat: u32) -> Result<Vec<Duration>> {
        self.run_on(cpus, |program| test_run(program, frame, &mut [], repeat))
    }

    /// Runs the program on a frame several times, on several CPUs at once. Returns the
    /// resulting frames per CPU.
    pub fn send_on(&self, cpus: &[usize], frame: &[u8], times: usize) -> Result<Vec<Vec<Vec<u8>>>> {
        self.run_on(cpus, |program| {
            let packet = |_| {
                let mut out = vec![0; frame.len()];
                test_run(program, frame, &mut out, 1).map(|_| out)
            };
            (0..times).map(packet).collect()
        })
    }

    fn run_on<T: Send>(
        &self,
        cpus: &[usize],
        work: impl Fn(BorrowedFd<'_>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let program = object::program(&self.object, self.program)?;
        let program = program.as_fd();
        let ready = Barrier::new(cpus.len());
        thread::scope(|scope| {
            let runs: Vec<_> = cpus
                .iter()
                .map(|&cpu| {
                    let (ready, work) = (&ready, &work);
                    scope.spawn(move || {
                        pin(cpu);
                        ready.wait();
                        work(program)
                    })
                })
                .collect();
            runs.into_iter()
                .map(|run| run.join().unwrap_or_else(|e| resume_unwind(e)))
                .collect()
        })
    }

    /// The sum of the router's counters over all CPUs.
    pub fn counters(&self) -> Result<xcp_router_counters> {
        router::sum_counters(&object::map(&self.object, "cpus")?)
    }

    /// Traces the router's control intervals from now on.
    pub fn trace(&self) -> Result<Ring> {
        let holder = MapHandle::try_from(&object::map(&self.object, "trace")?)
            .map_err(|e| object::failure("trace", &e))?;
        Ring::insert(holder)
    }

    /// The loaded object, for its type information.
    pub fn object(&self) -> &Object {
        &self.object
    }
}

/// Pins this thread to a CPU. Errors are ignored.
fn pin(cpu: usize) {
    // SAFETY: a cpu_set_t is plain bits, valid for any value, and outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Measures the mean time of one run; `out` receives the frame from the last run. Calls
/// libbpf directly, since programs of libbpf-rs cannot be shared between threads.
fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    out: &mut [u8],
    repeat: u32,
) -> Result<Duration> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: match out {
            [] => std::ptr::null_mut(),
            _ => out.as_mut_ptr().cast(),
        },
        data_size_out: out.len() as u32,
        repeat: repeat as i32,
        ..Default::default()
    };
    // SAFETY: the descriptor is open; frame and options live through the call.
    let rc = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    if rc < 0 {
        return Err(last_os("test run"));
    }
    Ok(Duration::from_nanos(options.duration.into()))
}

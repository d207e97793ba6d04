// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! For tests and benches: the router on single packets without a device, and
//! accidents on a real one.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object, ProgramInput};
use libbpf_sys::bpf_map_create_opts;

use crate::cloud;
use crate::error::is_root;
use crate::link::{Direction, Place};
use crate::rtnl::Device;
use crate::trace::Interval;
pub use crate::trace::Ring;
use crate::{
    device, features, host, link, netns, object, peers, router, socket, wire, Cgroup, Error,
    Result, Wire,
};
use xcp_abi::{xcp_host_counters, xcp_router_counters, xcp_router_link, Record};

/// A loaded router that is attached to nothing (BPF_PROG_TEST_RUN).
pub struct Bench {
    object: Object,
    program: &'static str,
}

impl Bench {
    pub fn new(options: router::Options) -> Result<Self> {
        Ok(Self {
            object: router::load(14, options)?,
            program: "xcp_router",
        })
    }

    /// The virtual router of an upstream router, as it is in last_xcp_router.
    pub fn of_cloud(upstream: u32) -> Result<Self> {
        Ok(Self {
            object: cloud::load_for(object::cpus()?, 14, upstream)?,
            program: "xcp_virtual",
        })
    }

    /// Sends one Ethernet frame through the router and returns what comes
    /// out: `(bytes, verdict)`.
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

    /// Mean time of one run of a program (`xcp_router` or `xcp_empty`).
    pub fn time(&self, program: &str, frame: &[u8], repeat: u32) -> Result<Duration> {
        object::program(&self.object, program)?
            .test_run(ProgramInput {
                data_in: Some(frame),
                repeat,
                ..Default::default()
            })
            .map(|out| out.duration)
            .map_err(|e| object::failure("test run", &e))
    }

    /// The same on several CPUs at once, in one router: a mean for each.
    pub fn time_on(&self, cpus: &[usize], frame: &[u8], repeat: u32) -> Result<Vec<Duration>> {
        self.run_on(cpus, |program| test_run(program, frame, &mut [], repeat))
    }

    /// Sends a frame through the router again and again, on several CPUs at
    /// once; what comes out on each.
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

    pub fn counters(&self) -> Result<xcp_router_counters> {
        router::sum_counters(&object::map(&self.object, "cpus")?)
    }

    /// Reads its control intervals from now on.
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

/// A program that the kernel has loaded.
#[derive(Clone, Debug)]
pub struct Verified {
    pub name: String,
    /// Instructions that the verifier looked at: some of them many times.
    pub instructions: u32,
}

/// Loads every program that this kernel can have, the router's as for machines
/// of so many processors.
pub fn load_all(processors: &[u32]) -> Result<Vec<Verified>> {
    let plain = |image| object::load(image, object::open(image)?);
    let mut objects = vec![
        host::load_control(object::open(&object::CC)?)?,
        plain(&object::OPTION)?,
        object::load(
            &object::DEVICE,
            device::open(netns::cookie()?, 14, wire::IP_PROTO)?,
        )?,
        plain(&object::MEDIUM)?,
        plain(&object::TEST_TC)?,
    ];
    for processors in processors {
        objects.push(router::load_for(
            *processors,
            14,
            router::Options::default(),
        )?);
        objects.push(cloud::load_for(*processors, 14, 1)?);
    }
    if features::has_qdisc() {
        objects.push(plain(&object::QDISC)?);
    }
    if let Ok(protocol) = socket::load(None, socket::DEFAULT_NUMBER) {
        objects.push(protocol);
    }
    let programs = objects.iter().flat_map(Object::progs);
    programs
        .filter(|p| p.autoload())
        .map(|p| {
            Ok(Verified {
                name: p.name().to_string_lossy().into_owned(),
                instructions: verified_instructions(p.as_fd())?,
            })
        })
        .collect()
}

fn verified_instructions(program: BorrowedFd<'_>) -> Result<u32> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the descriptor is open; the record is as long as said.
    let rc =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut size) };
    if rc < 0 {
        return Err(Error::last_os("loaded program"));
    }
    Ok(info.verified_insns)
}

/// Binds this thread to a CPU; where that is not allowed it stays free.
fn pin(cpu: usize) {
    // SAFETY: a cpu_set_t is plain bits, valid for any value, and outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Mean time of one run; `out` is what comes out of the last. libbpf-rs keeps
/// its programs to one thread.
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
        return Err(Error::last_os("test run"));
    }
    Ok(Duration::from_nanos(options.duration.into()))
}

/// The host's program for what arrives, attached to nothing, in this network
/// namespace, where every address may speak headers.
pub struct Ingress {
    object: Object,
}

impl Ingress {
    pub fn new() -> Result<Self> {
        let netns = netns::cookie()?;
        let open = device::open(netns, 14, wire::IP_PROTO)?;
        let object = object::load(&object::DEVICE, open)?;
        object::map(&object, "peers")?
            .update(
                peers::key(netns, None).bytes(),
                &[Wire::Header as u8],
                MapFlags::ANY,
            )
            .map_err(|e| object::failure("map of peers", &e))?;
        Ok(Self { object })
    }

    /// Sends one Ethernet frame in; what TCP or the kernel would see. None if
    /// the kernel's test run does not take the frame.
    pub fn packet(&self, frame: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut out = vec![0; frame.len() + 256];
        let program = object::program(&self.object, "xcp_ingress")?;
        let result = program.test_run(ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat: 1,
            ..Default::default()
        });
        match result {
            Ok(result) => {
                let length = result.data.as_ref().map_or(0, |d| d.len());
                out.truncate(length);
                Ok(Some(out))
            }
            Err(e) if e.kind() == libbpf_rs::ErrorKind::InvalidInput => Ok(None),
            Err(e) => Err(object::failure("test run", &e)),
        }
    }

    /// Headers that did not parse, so far.
    pub fn malformed(&self) -> Result<u64> {
        let map = object::map(&self.object, "counters")?;
        let all = object::read_per_cpu::<xcp_host_counters>(&map)?;
        Ok(all.iter().map(|c| c.malformed).sum())
    }
}

/// What an accident does to and tells of the XCP packets that leave a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AccidentPlan {
    /// Strip the option from SYNs (bit 0), SYN-ACKs (bit 1), pure ACKs (bit 2);
    /// what says that totals are understood from SYNs (bit 3), SYN-ACKs (bit 4).
    pub strip: u32,
    /// Of every n XCP packets drop the first and the third; 0 for none.
    pub drop_every: u32,
    /// Drop pure ACKs rather than data.
    pub drop_return: u32,
    /// Drop so many SYN-ACKs, in any format or none.
    pub drop_syn_acks: u32,
}

/// What it did.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AccidentAccount {
    pub stripped: u64,
    pub seen: u64,
    pub dropped: u64,
    pub lost_delta_bytes_per_s: i64,
    pub lost_feedback_bytes_per_s: i64,
    /// Options `option` that tell of the way.
    pub forward: u64,
    /// Routers that were not XCP, as they tell, of all.
    pub other_hops: u64,
    /// Callbacks of [`Neighbour::of_sockets`].
    pub rtts: u64,
    /// Super-packets of [`Neighbour::who_forgets`].
    pub forgotten: u64,
    /// Wire packets with a forward header, as the device's programs see them:
    /// all packets of a GSO packet have its header.
    pub forward_packets: u64,
    /// The sum of their deltas, in the unit of their format.
    pub delta: i64,
}

// SAFETY: integers only, in C order.
unsafe impl Record for AccidentPlan {}
// SAFETY: integers only, in C order.
unsafe impl Record for AccidentAccount {}

/// An accident in progress on a device, over when dropped.
pub struct Accident {
    object: Object,
    _link: OwnedFd,
}

impl Accident {
    pub fn start(dev: &str, plan: AccidentPlan) -> Result<Self> {
        let device = Device::find(dev)?;
        let mut open = object::open(&object::TEST_TC)?;
        object::set_data(&mut open, ".data.config", &plan)?;
        let object = object::load(&object::TEST_TC, open)?;
        let program = object::program(&object, "xcp_accident")?;
        let link = link::attach_tcx(program.as_fd(), &device, Direction::Egress, Place::Last)?;
        Ok(Self {
            object,
            _link: link,
        })
    }

    pub fn account(&self) -> Result<AccidentAccount> {
        object::read_record(&object::map(&self.object, ".data.account")?, 0)
    }

    /// Changes the plan while it goes on.
    pub fn plan(&self, plan: AccidentPlan) -> Result<()> {
        object::write_record(&object::map(&self.object, ".data.config")?, &plan)
    }
}

/// A program of someone else's, gone when dropped.
pub struct Neighbour {
    object: Object,
    _link: OwnedFd,
}

impl Neighbour {
    /// Ends the chain of the programs at a device's egress, before or behind
    /// those that are there.
    pub fn who_ends_the_chain(dev: &str, first: bool) -> Result<Self> {
        let place = if first { Place::First } else { Place::Last };
        Self::on(dev, "xcp_ends", Direction::Egress, place)
    }

    /// An XDP program on a device.
    pub fn who_redirects(dev: &str) -> Result<Self> {
        let object = Self::load("xcp_redirects")?;
        let program = object::program(&object, "xcp_redirects")?;
        let link = link::attach_xdp(program.as_fd(), &Device::find(dev)?)?;
        Ok(Self {
            object,
            _link: link,
        })
    }

    /// Super-packets that come in by a device are as from a guest's.
    pub fn who_forgets(dev: &str) -> Result<Self> {
        Self::on(dev, "xcp_forgets", Direction::Ingress, Place::First)
    }

    /// Asks for a callback with each RTT of all connections that are made.
    pub fn of_sockets() -> Result<Self> {
        Self::on_sockets("xcp_neighbour")
    }

    /// Puts a TCP option of 12 bytes on all segments of all connections.
    pub fn with_an_option() -> Result<Self> {
        Self::on_sockets("xcp_foreign_option")
    }

    fn on_sockets(name: &str) -> Result<Self> {
        let object = Self::load(name)?;
        let program = object::program(&object, name)?;
        let group = Cgroup::open(None)?;
        let kind = libbpf_sys::BPF_CGROUP_SOCK_OPS;
        let link = link::attach_cgroup(program.as_fd(), group.fd(), kind)?;
        Ok(Self {
            object,
            _link: link,
        })
    }

    pub fn account(&self) -> Result<AccidentAccount> {
        object::read_record(&object::map(&self.object, ".data.account")?, 0)
    }

    fn on(dev: &str, name: &str, direction: Direction, place: Place<'_>) -> Result<Self> {
        let object = Self::load(name)?;
        let program = object::program(&object, name)?;
        let device = Device::find(dev)?;
        let link = link::attach_tcx(program.as_fd(), &device, direction, place)?;
        Ok(Self {
            object,
            _link: link,
        })
    }

    fn load(name: &str) -> Result<Object> {
        let mut open = object::open(&object::TEST_TC)?;
        for mut program in open.progs_mut() {
            let wanted = program.name() == name;
            program.set_autoload(wanted);
        }
        object::load(&object::TEST_TC, open)
    }
}

/// A sock_ops program of someone else's that has a control group to itself, until
/// dropped.
pub struct Exclusive {
    object: Object,
    group: Cgroup,
}

impl Exclusive {
    /// `flags`: 0, or BPF_F_ALLOW_OVERRIDE.
    pub fn on(group: &Path, flags: u32) -> Result<Self> {
        let object = Neighbour::load("xcp_neighbour")?;
        let group = Cgroup::open(Some(group))?;
        let program = object::program(&object, "xcp_neighbour")?
            .as_fd()
            .as_raw_fd();
        let kind = libbpf_sys::BPF_CGROUP_SOCK_OPS;
        // SAFETY: both descriptors are open.
        let rc =
            unsafe { libbpf_sys::bpf_prog_attach(program, group.fd().as_raw_fd(), kind, flags) };
        match rc {
            0 => Ok(Self { object, group }),
            _ => Err(Error::last_os(group.path().display().to_string())),
        }
    }
}

impl Exclusive {
    /// The number that the program has in this kernel.
    pub fn id(&self) -> Result<u32> {
        let programs = link::cgroup_programs(self.group.fd(), libbpf_sys::BPF_CGROUP_SOCK_OPS)?;
        programs
            .0
            .first()
            .copied()
            .ok_or_else(|| object::missing("program"))
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        if let Ok(program) = object::program(&self.object, "xcp_neighbour") {
            let (program, group) = (program.as_fd().as_raw_fd(), self.group.fd().as_raw_fd());
            // SAFETY: both descriptors are open.
            unsafe {
                libbpf_sys::bpf_prog_detach2(program, group, libbpf_sys::BPF_CGROUP_SOCK_OPS)
            };
        }
    }
}

/// The name of the congestion control `xcp`, taken until dropped.
pub struct NameTaken {
    _link: libbpf_rs::Link,
    _object: Object,
}

impl NameTaken {
    pub fn new() -> Result<Self> {
        let mut object = object::open(&object::CC).and_then(host::load_control)?;
        let link = object::map_mut(&mut object, "xcp")?
            .attach_struct_ops()
            .map_err(|e| object::failure("congestion control xcp", &e))?;
        Ok(Self {
            _link: link,
            _object: object,
        })
    }
}

/// Loads a program that every verifier refuses: it reads past a packet's end.
pub fn load_refused() -> Result<()> {
    Neighbour::load("xcp_refused").map(drop)
}

/// Has the router of a device say that it is of another build.
pub fn call_another_version(dev: &str) -> Result<()> {
    router::call_another_build(&Device::find(dev)?)
}

/// Has the host say that its programs are of another build.
pub fn call_host_another_version() -> Result<()> {
    host::call_another_build()
}

/// The same, and that its maps hold records of another layout.
pub fn call_host_another_layout() -> Result<()> {
    host::call_another_layout()
}

/// Has the router of a device say that its records have another layout.
pub fn call_another_layout(dev: &str) -> Result<()> {
    router::call_another_layout(&Device::find(dev)?)
}

/// What the router of a device keeps of its link.
pub fn router_link(dev: &str) -> Result<xcp_router_link> {
    router::link(&Device::find(dev)?)
}

/// Whether the router of a device has a ring buffer for its trace, and the
/// kernel memory of its maps and its program, bytes, by name.
pub fn router_memory(dev: &str) -> Result<(bool, Vec<(String, u64)>)> {
    let (dir, pins) = router::pins(&Device::find(dev)?)?;
    let of = |name: &str| -> Result<(String, u64)> {
        let fd = link::open(&dir.join(name))?;
        let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, &e))?;
        let line = text.lines().find_map(|l| l.strip_prefix("memlock:"));
        let bytes = line.and_then(|value| value.trim().parse().ok());
        Ok((name.to_owned(), bytes.unwrap_or(0)))
    };
    let bytes: Result<Vec<_>> = pins.iter().map(|name| of(name)).collect();
    Ok((crate::trace::has_ring(&dir)?, bytes?))
}

/// Number of BPF programs and maps loaded in the whole system.
pub fn loaded() -> Result<(usize, usize)> {
    let ids = loaded_ids()?;
    Ok((ids.programs.len(), ids.maps.len()))
}

/// The BPF objects of the whole system. The kernel gives no id twice.
#[derive(Debug)]
pub struct Loaded {
    pub programs: BTreeSet<u32>,
    pub maps: BTreeSet<u32>,
}

/// What is loaded now.
pub fn loaded_ids() -> Result<Loaded> {
    use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
    crate::error::require_root("counting BPF objects")?;
    Ok(Loaded {
        programs: ProgInfoIter::default().map(|p| p.id).collect(),
        maps: MapInfoIter::default().map(|m| m.id).collect(),
    })
}

/// How long a test waits for what must happen. It only bounds a test that
/// fails: on a busy machine everything takes longer, but not that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds; false if it does not within [`PATIENCE`].
pub fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        // read first: a thread that did not run for long looks once more
        let over = Instant::now() >= end;
        if holds() {
            return true;
        }
        if over {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Programs, pins and namespaces belong to the whole system, so tests take
/// turns, also those of other processes.
const TURN: &str = "/run/xcp-tests.lock";

/// A test's turn, over when dropped.
pub struct Turn {
    _lock: Option<File>,
}

/// Waits until no other test has a turn.
pub fn turn() -> Result<Turn> {
    lock(libc::LOCK_EX)
}

/// The turn of a test that only loads programs: beside others of its kind,
/// but not while a test looks at what is loaded.
pub fn shared_turn() -> Result<Turn> {
    lock(libc::LOCK_SH)
}

fn lock(operation: libc::c_int) -> Result<Turn> {
    if !is_root() {
        // such tests are skipped
        return Ok(Turn { _lock: None });
    }
    let mut options = File::options();
    let file = options.create(true).append(true).open(TURN);
    let file = file.map_err(|e| Error::io(TURN, &e))?;
    loop {
        // SAFETY: the descriptor is open.
        if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
            return Ok(Turn { _lock: Some(file) });
        }
        let e = std::io::Error::last_os_error();
        if e.kind() != std::io::ErrorKind::Interrupted {
            return Err(Error::io(TURN, &e));
        }
    }
}

/// Says that a test does not run here, and why, past the test runner's
/// capture of what passing tests print.
pub fn skipped(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// Whether the tests that load programs can run here; says so if not. A
/// program that the kernel turns down is no reason to skip.
pub fn can_run(test: &str) -> bool {
    if !is_root() {
        skipped(test, "not root: run `sudo ./x test`");
        return false;
    }
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let probe = MapHandle::create(MapType::Array, Some("xcp_probe"), 4, 4, 1, &options);
    if let Err(e) = &probe {
        skipped(test, &format!("BPF is not permitted here: {e}"));
    }
    probe.is_ok()
}

/// A control interval as a router tells it.
#[must_use]
pub fn interval() -> Interval {
    Interval {
        time_s: 100.25,
        interval_s: 0.1,
        average_rtt_s: 0.1,
        capacity_bps: 10_000_000,
        link_bps: None,
        input_rate_bps: 9_500_000,
        other_rate_bps: 0,
        queue_bytes: 4_500,
        persistent_queue_bytes: 1_500,
        feedback_bps: -120_000,
        increase_bps: 830_000,
        decrease_bps: 950_000,
        xcp_share: Some(0.5),
        xcp_flows: 2.0,
    }
}

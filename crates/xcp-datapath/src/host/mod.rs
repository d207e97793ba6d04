// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A host that speaks XCP: the congestion control `xcp` and the option's
//! programs, pinned in `host`.

use std::fs;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{Object, OpenObject};
use serde::Serialize;

use crate::bpffs::Access;
use crate::command_lock::CommandLock;
use crate::rtnl::Device;
use crate::wire::IP_PROTO;
use crate::{
    bpffs, cgroup, layout, link, netns, object, probes, Cgroup, Error, Fallbacks, PeerPolicy,
    Prefix, Result, SenderFeature, Wire,
};
use xcp_abi::{xcp_host_config, xcp_host_counters, Record};

pub mod connections;
pub(crate) mod device;
pub(crate) mod fallback;
pub(crate) mod peers;
pub mod socket;

#[doc(hidden)]
pub const PART: &str = "host";
/// The settings, which all programs share.
const CONFIG: &str = "config";
/// Marks programs that `xcp run` loaded for itself.
const TRANSIENT: &str = "transient";
/// In it, which build the programs are of.
#[doc(hidden)]
pub const BUILD: &str = "build";
/// The folder of another build's programs, until they take the place of these.
const NEXT: &str = "next";
/// Maps that outlive the programs.
const SHARED: [&str; 8] = [
    "sockets",
    "counters",
    "fallback_reasons",
    "peers",
    "handshake_cache",
    "chosen",
    "callbacks",
    CONFIG,
];
const RUN_PREFIX: &str = "xcp-run-";

/// What `xcp host on` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The control group whose sockets may speak; all if absent.
    pub cgroup: Option<PathBuf>,
    /// Only sockets of this network namespace may speak.
    pub this_netns: bool,
    /// New sockets of the group that did not choose use `xcp`.
    pub make_default: bool,
    /// How to speak in this network namespace.
    pub speech: PeerPolicies,
    /// Feedback in whole packets in the wire format `option-2005`: what it
    /// must not be (Zhang & Henderson 2005, II-E.2), for the lab.
    pub whole_feedback: bool,
    /// What senders are not to do, to see what then goes wrong.
    pub without: Vec<SenderFeature>,
    /// The protocol number by which sockets are opened that use `xcp`.
    pub socket_protocol: socket::Wanted,
}

/// How the hosts of one network namespace speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPolicies {
    pub spoken: Vec<PeerPolicy>,
    /// Devices that carry headers, or whose crowded ACKs make room.
    pub devices: Vec<String>,
    /// IP protocol of headers.
    pub ip_proto: u8,
}

impl Default for PeerPolicies {
    fn default() -> Self {
        Self {
            spoken: Vec::new(),
            devices: Vec::new(),
            ip_proto: IP_PROTO,
        }
    }
}

impl PeerPolicies {
    /// One wire format, with these peers and nobody else, or with all.
    ///
    /// # Errors
    /// A header without devices or without peers.
    pub fn new(wire: Wire, devices: &[String], peers: &[Prefix], ip_proto: u8) -> Result<Self> {
        if wire.is_header() && (devices.is_empty() || peers.is_empty()) {
            return Err(Error::new(
                format!("wire format {wire}"),
                "needs the devices that carry it and the peers that understand it: \
                 others answer that they do not know the protocol",
                format!("name them: xcp host on --wire {wire} --dev eth0 --peers 10.0.0.0/8"),
            ));
        }
        let some = peers.iter().map(|p| PeerPolicy {
            wire: Some(wire),
            peers: Some(*p),
        });
        let mut spoken: Vec<PeerPolicy> = some.collect();
        let leaves_some = !peers.iter().any(Prefix::is_all);
        if leaves_some && (!spoken.is_empty() || wire != Wire::default()) {
            spoken.push(PeerPolicy {
                wire: peers.is_empty().then_some(wire),
                peers: None,
            });
        }
        Ok(Self {
            spoken,
            devices: devices.to_vec(),
            ip_proto,
        })
    }

    fn has_headers(&self) -> bool {
        let wires = || self.spoken.iter().filter_map(|s| s.wire);
        wires().any(Wire::is_header)
    }
}

/// Network namespaces, seen from this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NetnsScope {
    All,
    This,
    Another,
}

pub use crate::pinned::change::Change;

/// What `xcp host on` did.
#[derive(Clone, Debug, Serialize)]
pub struct TurnedOn {
    pub change: Change,
    #[serde(flatten)]
    pub sockets: socket::Outcome,
}

/// What the host's programs are set to and have done.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The control group, or none where only `xcp run` uses the programs.
    pub cgroup: Option<PathBuf>,
    /// Whose sockets may speak, of all network namespaces.
    pub netns: NetnsScope,
    pub default: bool,
    /// What senders do not do, for it is switched off.
    pub without: Vec<SenderFeature>,
    /// Wire formats in this network namespace; `option` where none fits.
    pub wires: Vec<PeerPolicy>,
    /// Devices of this network namespace.
    pub devices: Vec<String>,
    /// The protocol number that opens a socket with `xcp`, if any does.
    pub socket_protocol: Option<u8>,
    pub counters: Counters,
}

/// Sums over all CPUs since `host on`.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Counters {
    /// Connections that speak XCP, both directions.
    pub sockets: u64,
    /// Times that a connection was left to the default congestion control.
    pub fallbacks: Fallbacks,
    pub forward_sent: u64,
    pub forward_received: u64,
    pub return_sent: u64,
    pub return_received: u64,
    /// ACKs that TCP left no room on for the option.
    pub return_crowded: u64,
    /// Of those, how many gave up a SACK block for it.
    pub sacks_trimmed: u64,
    /// Packets that went without the header that they should have.
    pub header_left_out: u64,
    pub malformed: u64,
    /// Headers whose sequence or acknowledgement number fits no window: not
    /// believed.
    pub implausible: u64,
    /// Sum of the deltas that arrived, bytes per second.
    pub received_bytes_per_s: i64,
    /// Sum of the feedback sent back.
    pub returned_bytes_per_s: i64,
    /// Feedback still pending when its socket closed.
    pub unreturned_bytes_per_s: i64,
    /// Sum of the feedback that came back.
    pub feedback_bytes_per_s: i64,
    /// Of it, applied to a window.
    pub applied_bytes_per_s: i64,
    /// The same sums in the wire format `option-2005`, which counts in 2^-12
    /// packets.
    pub option_2005: Sums2005,
}

/// Sums of feedback, 2^-12 packets.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Sums2005 {
    pub received: i64,
    pub returned: i64,
    pub unreturned: i64,
    pub feedback: i64,
    pub applied: i64,
}

/// Whether `xcp` can be selected now.
pub fn is_on() -> bool {
    object::exists(&bpffs::dir(PART).join("cc"))
}

/// Makes `xcp` selectable and the option spoken by sockets that select it.
pub fn on(options: &Options) -> Result<TurnedOn> {
    bpffs::require("xcp host on", Access::Change)?;
    let _turn = CommandLock::take()?;
    let group = Cgroup::open(options.cgroup.as_deref())?;
    find(&options.speech.devices)?;
    let fresh = !is_on();
    let other = !fresh && !object::exists(&bpffs::dir(PART).join(BUILD).join(build()));
    if fresh {
        load(false)?;
    } else if other {
        renew()?;
    }
    let (sockets, configured) = configure(&group, options).inspect_err(|_| {
        if fresh {
            let _ = take_down();
        }
    })?;
    let dir = bpffs::dir(PART);
    let _ = fs::remove_dir(dir.join(TRANSIENT));
    let change = match (fresh, configured) {
        (true, _) => Change::Added,
        (false, configured) if configured || other => Change::Changed,
        (false, _) => Change::Unchanged,
    };
    Ok(TurnedOn { change, sockets })
}

fn find(devices: &[String]) -> Result<Vec<Device>> {
    devices.iter().map(|name| Device::find(name)).collect()
}

/// Speaks so in this network namespace; the host must be on. Returns whether
/// anything was different.
pub fn speak(speech: &PeerPolicies) -> Result<bool> {
    let devices = find(&speech.devices)?;
    let peers = object::pinned_map(&bpffs::dir(PART).join("peers"))?;
    let here = netns::cookie()?;
    // whom a header may come from is known before any goes out
    let attached = device::set(&devices, speech.has_headers(), speech.ip_proto)?;
    let spoken = peers::set(&peers, here, &speech.spoken)?;
    Ok(attached || spoken)
}

/// Sets default, group and protocol number; returns whether anything was
/// different. The number goes first: it is what a kernel may refuse.
fn configure(group: &Cgroup, options: &Options) -> Result<(socket::Outcome, bool)> {
    let dir = bpffs::dir(PART);
    let (sockets, mut changed) = socket::configure(&dir, group, options.socket_protocol)?;
    let wanted = xcp_host_config {
        make_default: u32::from(options.make_default),
        whole_feedback: options.whole_feedback.into(),
        without: SenderFeature::bits(&options.without),
        unused: 0,
        netns: match options.this_netns {
            true => netns::cookie()?,
            false => 0,
        },
    };
    let map = object::pinned_map(&dir.join(CONFIG))?;
    let present: xcp_host_config = object::read_record(&map, 0)?;
    if present.bytes() != wanted.bytes() {
        object::write_record(&map, &wanted)?;
        changed = true;
    }
    changed |= speak(&options.speech)?;
    let pin = dir.join("link");
    if attached_group()? != Some(group.id()?) {
        if object::exists(&pin) {
            link::detach(link::open(&pin)?.as_fd());
            fs::remove_file(&pin).map_err(|e| Error::io(pin.display().to_string(), &e))?;
        }
        let attached = attach("option", group)?;
        link::pin(attached.as_fd(), &pin)?;
        changed = true;
    }
    Ok((sockets, changed))
}

/// The number of the group that `host on` attached to.
fn attached_group() -> Result<Option<u64>> {
    let pin = bpffs::dir(PART).join("link");
    if !object::exists(&pin) {
        return Ok(None);
    }
    link::cgroup_of(link::open(&pin)?.as_fd()).map(Some)
}

fn attach(program: &str, group: &Cgroup) -> Result<OwnedFd> {
    let program = link::open(&bpffs::dir(PART).join(program))?;
    let kind = libbpf_sys::BPF_CGROUP_SOCK_OPS;
    link::attach_cgroup(program.as_fd(), group.fd(), kind).map_err(|e| {
        let refused = || Error::new(group.path().display().to_string(), e.reason, e.remedy);
        cgroup::kept_off(group, kind).unwrap_or_else(refused)
    })
}

/// `transient`: for the time of an `xcp run`.
fn load(transient: bool) -> Result<()> {
    // what a command that was killed has left half done
    if object::exists(&bpffs::dir(PART)) {
        take_down()?;
    }
    let dir = bpffs::create(PART)?;
    if transient {
        bpffs::mark(&dir.join(TRANSIENT))?;
    }
    load_into(&dir).inspect_err(|_| {
        let _ = bpffs::remove(PART);
    })
}

fn load_into(dir: &Path) -> Result<()> {
    let mut option = object::load(&object::OPTION, object::open(&object::OPTION)?)?;
    for map in SHARED {
        object::pin_map(&mut option, map, &dir.join(map))?;
    }
    pin_programs(&option, dir)?;
    device::create_table(dir)?;
    layout::mark(dir, &object::OPTION, &SHARED)?;
    bpffs::mark(&dir.join(BUILD).join(build()))?;
    register(&mut load_control(open_control(dir)?)?, dir)
}

/// Pins those that are attached to control groups.
fn pin_programs(option: &Object, dir: &Path) -> Result<()> {
    for (program, pin) in [("xcp_option", "option"), ("xcp_choose", "choose")] {
        let program = object::program(option, program)?;
        link::pin(program.as_fd(), &dir.join(pin))?;
    }
    Ok(())
}

fn open_control(dir: &Path) -> Result<OpenObject> {
    let mut open = object::open(&object::CC)?;
    let shared = ["sockets", "counters", "fallback_reasons", CONFIG];
    object::reuse(&mut open, &shared, dir)?;
    Ok(open)
}

fn register(cc: &mut Object, dir: &Path) -> Result<()> {
    object::register(cc, "xcp", "congestion control xcp", &dir.join("cc"))
}

/// Tells this build of the host's programs from others.
fn build() -> String {
    [&object::OPTION, &object::CC, &object::DEVICE]
        .map(object::Image::build)
        .concat()
}

/// Puts this build's programs in the place of another's, newer or older. The
/// maps stay, and with them what is known of each connection: those that there
/// are go on. Their congestion control stays the one that they began with.
fn renew() -> Result<()> {
    let dir = bpffs::dir(PART);
    if !layout::is_ours(&dir, &object::OPTION, &SHARED)? {
        return Err(object::other_version("records of connections"));
    }
    let mut open = object::open(&object::OPTION)?;
    object::reuse(&mut open, &SHARED, &dir)?;
    let option = object::load(&object::OPTION, open)?;
    let mut cc = load_control(open_control(&dir)?)?;
    device::renew()?;
    let next = dir.join(NEXT);
    let _ = fs::remove_dir_all(&next);
    bpffs::mark(&next)?;
    pin_programs(&option, &next)?;
    let attached = dir.join("link");
    if object::exists(&attached) {
        let program = object::program(&option, "xcp_option")?;
        link::replace(link::open(&attached)?.as_fd(), program.as_fd())?;
    }
    for pin in ["option", "choose"] {
        let to = dir.join(pin);
        fs::rename(next.join(pin), &to).map_err(|e| Error::io(to.display().to_string(), &e))?;
    }
    let _ = fs::remove_dir_all(&next);
    // two of one name cannot be: for a moment nobody can choose it
    let pin = dir.join("cc");
    link::detach(link::open(&pin)?.as_fd());
    fs::remove_file(&pin).map_err(|e| Error::io(pin.display().to_string(), &e))?;
    register(&mut cc, &dir)?;
    let _ = fs::remove_dir_all(dir.join(BUILD));
    bpffs::mark(&dir.join(BUILD).join(build()))
}

/// Loads the congestion control, with the hooks that this kernel has.
#[doc(hidden)]
pub fn load_control(mut open: OpenObject) -> Result<Object> {
    /// Where `cwnd_event_tx_start` is in bpf/kernel.h's `tcp_congestion_ops`.
    const TX_START_AT: usize = 64;
    if !probes::has_tx_start() {
        let mut map = object::open_map(&mut open, "xcp")?;
        if let Some(hooks) = map.initial_value_mut() {
            hooks[TX_START_AT..TX_START_AT + size_of::<usize>()].fill(0);
        }
    }
    object::load(&object::CC, open)
}

/// Takes everything down. Sockets that use `xcp` keep it until they close.
pub fn off() -> Result<()> {
    bpffs::require("xcp host off", Access::Change)?;
    let _turn = CommandLock::take()?;
    if !object::exists(&bpffs::dir(PART)) {
        return Err(not_on());
    }
    take_down()
}

fn take_down() -> Result<()> {
    let pin = bpffs::dir(PART).join("link");
    if object::exists(&pin) {
        link::detach(link::open(&pin)?.as_fd());
    }
    let cleared = device::clear();
    bpffs::remove(PART)?;
    cleared
}

pub(crate) fn not_on() -> Error {
    Error::new("XCP", "is not on", "turn it on: xcp host on")
}

/// What is set and what has happened so far.
pub fn status() -> Result<Status> {
    bpffs::require("xcp host show", Access::Read)?;
    if !is_on() {
        return Err(not_on());
    }
    let dir = bpffs::dir(PART);
    let config: xcp_host_config = object::read_record(&object::pinned_map(&dir.join(CONFIG))?, 0)?;
    Ok(Status {
        cgroup: attached_group()?.and_then(cgroup::path_of),
        netns: reach()?,
        default: config.make_default != 0,
        without: SenderFeature::of_bits(config.without),
        wires: peers::get(&object::pinned_map(&dir.join("peers"))?, netns::cookie()?),
        devices: device::names()?,
        socket_protocol: socket::number(&dir)?,
        counters: counters()?,
    })
}

/// The wire format for a peer of this network namespace; None if XCP is not spoken with
/// it.
///
/// # Errors
/// XCP is not on.
pub fn wire_for(peer: IpAddr) -> Result<Option<Wire>> {
    let map = object::pinned_map(&bpffs::dir(PART).join("peers"))?;
    let all = peers::get(&map, netns::cookie()?);
    Ok(peers::wire_of(&all, peer))
}

/// What [`on`] has set for this network namespace, in the form in which
/// [`settled`] tells it; None if XCP is not on here.
///
/// # Errors
/// The records cannot be read.
pub fn options() -> Result<Option<Options>> {
    bpffs::require("the configuration", Access::Read)?;
    let dir = bpffs::dir(PART);
    if !is_on() || attached_group()?.is_none() || reach()? == NetnsScope::Another {
        return Ok(None);
    }
    let config: xcp_host_config = object::read_record(&object::pinned_map(&dir.join(CONFIG))?, 0)?;
    let cgroup = attached_group()?.and_then(cgroup::path_of);
    let asked = Options {
        cgroup,
        this_netns: config.netns != 0,
        make_default: config.make_default != 0,
        speech: PeerPolicies {
            spoken: peers::get(&object::pinned_map(&dir.join("peers"))?, netns::cookie()?),
            devices: device::names()?,
            ip_proto: device::ip_proto()?.unwrap_or(IP_PROTO),
        },
        whole_feedback: config.whole_feedback != 0,
        without: SenderFeature::of_bits(config.without),
        socket_protocol: match socket::number(&dir)? {
            Some(number) => socket::Wanted::Number(number),
            None => socket::Wanted::Off,
        },
    };
    settled(asked).map(Some)
}

/// Where two ways of asking come to the same on this system, one of them.
///
/// # Errors
/// There is no such control group.
pub fn settled(asked: Options) -> Result<Options> {
    let root = cgroup::mount_point()?;
    let mut settled = asked;
    settled.cgroup = settled.cgroup.filter(|path| *path != root);
    settled.without = SenderFeature::of_bits(SenderFeature::bits(&settled.without));
    settled.speech.devices.sort();
    if settled.speech.devices.is_empty() {
        settled.speech.ip_proto = IP_PROTO; // kept with devices only
    }
    let permitted = || socket::probe().is_ok();
    settled.socket_protocol = match settled.socket_protocol {
        socket::Wanted::Number(socket::DEFAULT_NUMBER) => socket::Wanted::IfPermitted,
        socket::Wanted::Off if !permitted() => socket::Wanted::IfPermitted,
        other => other,
    };
    Ok(settled)
}

/// Whose sockets may speak.
fn reach() -> Result<NetnsScope> {
    let map = object::pinned_map(&bpffs::dir(PART).join(CONFIG))?;
    let config: xcp_host_config = object::read_record(&map, 0)?;
    Ok(match config.netns {
        0 => NetnsScope::All,
        here if here == netns::cookie()? => NetnsScope::This,
        _ => NetnsScope::Another,
    })
}

/// The counters alone.
pub fn counters() -> Result<Counters> {
    let map = object::pinned_map(&bpffs::dir(PART).join("counters"))?;
    let mut total = Counters::default();
    for cpu in object::read_per_cpu::<xcp_host_counters>(&map)? {
        total.sockets += cpu.sockets;
        total.fallbacks.add(&cpu.fallbacks);
        total.forward_sent += cpu.forward_sent;
        total.forward_received += cpu.forward_received;
        total.return_sent += cpu.return_sent;
        total.return_received += cpu.return_received;
        total.return_crowded += cpu.return_crowded;
        total.sacks_trimmed += cpu.sacks_trimmed;
        total.header_left_out += cpu.header_left_out;
        total.malformed += cpu.malformed;
        total.implausible += cpu.implausible;
        total.received_bytes_per_s += cpu.sums.received;
        total.returned_bytes_per_s += cpu.sums.returned;
        total.unreturned_bytes_per_s += cpu.sums.unreturned;
        total.feedback_bytes_per_s += cpu.sums.feedback;
        total.applied_bytes_per_s += cpu.sums.applied;
        let packets = &mut total.option_2005;
        packets.received += cpu.sums_2005.received;
        packets.returned += cpu.sums_2005.returned;
        packets.unreturned += cpu.sums_2005.unreturned;
        packets.feedback += cpu.sums_2005.feedback;
        packets.applied += cpu.sums_2005.applied;
    }
    Ok(total)
}

/// A control group of its own in which new sockets use `xcp`, for one
/// command. Dropping it takes everything down that it has set up.
pub struct RunGroup {
    group: Cgroup,
    /// The group of this process, in which the program would be without it.
    origin: PathBuf,
    links: Vec<OwnedFd>,
}

impl RunGroup {
    /// Waits until no other command changes anything.
    pub fn turn() -> Result<CommandLock> {
        bpffs::require("xcp run", Access::Change)?;
        CommandLock::take()
    }

    /// Creates the group; loads the programs if the host is not on.
    pub fn new(_turn: CommandLock) -> Result<Self> {
        if is_on() && reach()? == NetnsScope::Another {
            return Err(Error::new(
                "xcp run",
                "XCP is on for another network namespace only (host on --netns)",
                "run it there, or turn XCP on without --netns",
            ));
        }
        let origin = cgroup::own()?;
        let path = cgroup::mount_point()?.join(format!("{RUN_PREFIX}{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| Error::io(path.display().to_string(), &e))?;
        let mut run = Self {
            group: Cgroup::open(Some(&path))?,
            origin,
            links: Vec::new(),
        };
        if !is_on() {
            load(true)?;
        }
        run.links.push(attach("choose", &run.group)?);
        if !run.is_covered()? {
            run.links.push(attach("option", &run.group)?);
        }
        Ok(run)
    }

    /// Whether `host on` reaches this group already: it speaks for all below.
    fn is_covered(&self) -> Result<bool> {
        Ok(attached_group()?
            .and_then(cgroup::path_of)
            .is_some_and(|above| self.group.path().starts_with(above)))
    }

    /// Where a process writes 0 to move itself into the group.
    pub fn procs(&self) -> PathBuf {
        self.group.path().join("cgroup.procs")
    }
}

impl Drop for RunGroup {
    fn drop(&mut self) {
        // without it, what is left is what a kill leaves
        let Ok(_turn) = CommandLock::take() else {
            return;
        };
        self.links.clear();
        // processes that the program has left behind go on without XCP
        let group = self.group.path();
        cgroup::dissolve(group, &self.origin);
        let others = group.parent().is_some_and(|all| any_run_left(all, group));
        if !others && object::exists(&bpffs::dir(PART).join(TRANSIENT)) {
            let _ = off();
        }
    }
}

/// Whether any `xcp run` but the one with this group goes on; removes the groups
/// of those that were killed.
fn any_run_left(groups: &Path, own: &Path) -> bool {
    let mut left = false;
    for entry in fs::read_dir(groups).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.strip_prefix(RUN_PREFIX)) else {
            continue;
        };
        if entry.path() == own {
            continue;
        }
        if Path::new("/proc").join(pid).exists() {
            left = true;
        } else {
            let _ = fs::remove_dir(entry.path());
        }
    }
    left
}

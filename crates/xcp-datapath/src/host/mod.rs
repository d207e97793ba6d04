// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A host that uses XCP: the congestion control `xcp` and the programs for TCP options, pinned
//! in `host`.

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
    bpf_link, bpffs, cgroup, layout, netns, object, probes, Cgroup, Error, Fallbacks, PeerPolicy,
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
/// The map of settings, which all programs share.
const CONFIG: &str = "config";
/// A folder that marks programs as loaded by `xcp run` for itself.
const TRANSIENT: &str = "transient";
/// A folder; the folder in it names the build of the programs.
#[doc(hidden)]
pub const BUILD: &str = "build";
/// The folder of the new programs, until they replace the present ones.
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

/// The options of `xcp host on`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The control group whose sockets may use XCP; all sockets if absent.
    pub cgroup: Option<PathBuf>,
    /// Only sockets of this network namespace may use XCP.
    pub this_netns: bool,
    /// New sockets of the group use `xcp` unless they choose another congestion control.
    pub make_default: bool,
    /// The policies for peers of this network namespace.
    pub peer_policies: PeerPolicies,
    /// For the lab: feedback in whole packets in the wire format `option-2005`, which Zhang &
    /// Henderson 2005, II-E.2, forbid.
    pub whole_feedback: bool,
    /// Features that senders do not use, to show what they are needed for.
    pub without: Vec<SenderFeature>,
    /// The protocol number that opens sockets with `xcp`.
    pub socket_protocol: socket::Wanted,
}

/// Which wire formats a network namespace uses with which peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPolicies {
    pub policies: Vec<PeerPolicy>,
    /// Devices that carry headers, or that make room for the option on full ACKs.
    pub devices: Vec<String>,
    /// The IP protocol number of headers.
    pub ip_proto: u8,
}

impl Default for PeerPolicies {
    fn default() -> Self {
        Self {
            policies: Vec::new(),
            devices: Vec::new(),
            ip_proto: IP_PROTO,
        }
    }
}

impl PeerPolicies {
    /// Uses one wire format with these peers only, or with all peers if there are none.
    ///
    /// # Errors
    /// The wire format is a header, but devices or peers are missing.
    pub fn new(wire: Wire, devices: &[String], peers: &[Prefix], ip_proto: u8) -> Result<Self> {
        if wire.is_header() && (devices.is_empty() || peers.is_empty()) {
            return Err(Error::new(
                format!("wire format {wire}"),
                "needs the devices that carry it and the peers that understand it: \
                 others do not know the protocol and reject it",
                format!("name them: xcp host on --wire {wire} --dev eth0 --peers 10.0.0.0/8"),
            ));
        }
        let some = peers.iter().map(|p| PeerPolicy {
            wire: Some(wire),
            peers: Some(*p),
        });
        let mut policies: Vec<PeerPolicy> = some.collect();
        let leaves_some = !peers.iter().any(Prefix::is_all);
        if leaves_some && (!policies.is_empty() || wire != Wire::default()) {
            policies.push(PeerPolicy {
                wire: peers.is_empty().then_some(wire),
                peers: None,
            });
        }
        Ok(Self {
            policies,
            devices: devices.to_vec(),
            ip_proto,
        })
    }

    fn has_headers(&self) -> bool {
        let wires = || self.policies.iter().filter_map(|s| s.wire);
        wires().any(Wire::is_header)
    }
}

/// A set of network namespaces, relative to the present one.
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

/// The settings and counters of the host's programs.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The control group; None if only `xcp run` uses the programs.
    pub cgroup: Option<PathBuf>,
    /// The network namespaces whose sockets may use XCP.
    pub netns: NetnsScope,
    pub default: bool,
    /// The features of senders that are switched off.
    pub without: Vec<SenderFeature>,
    /// Wire formats in this network namespace; peers without an entry use `option`.
    pub wires: Vec<PeerPolicy>,
    /// The host's devices in this network namespace.
    pub devices: Vec<String>,
    /// The protocol number that opens a socket with `xcp`, if any.
    pub socket_protocol: Option<u8>,
    pub counters: Counters,
}

/// Counters since `host on`, summed over all CPUs.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Counters {
    /// Connections that use XCP, both directions.
    pub sockets: u64,
    /// Connections that fell back to the default congestion control, by reason.
    pub fallbacks: Fallbacks,
    pub forward_sent: u64,
    pub forward_received: u64,
    pub return_sent: u64,
    pub return_received: u64,
    /// ACKs without room for the option.
    pub return_no_room: u64,
    /// ACKs of those from which a SACK block was removed to make room.
    pub sacks_trimmed: u64,
    /// Packets sent without the header that they should have.
    pub header_omitted: u64,
    pub malformed: u64,
    /// Headers that were ignored, because the sequence or acknowledgement number is outside the
    /// window.
    pub implausible: u64,
    /// The sum of the deltas that arrived, bytes per second.
    pub received_bytes_per_s: i64,
    /// The sum of the feedback sent back to peers.
    pub returned_bytes_per_s: i64,
    /// Feedback that was still pending when its socket closed.
    pub unreturned_bytes_per_s: i64,
    /// The sum of the feedback that arrived.
    pub feedback_bytes_per_s: i64,
    /// The part of it that was applied to a window.
    pub applied_bytes_per_s: i64,
    /// The same sums for the wire format `option-2005`, which counts in 2^-12 packets.
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

/// Makes `xcp` selectable, and attaches the programs that add XCP headers to sockets that select
/// it.
pub fn on(options: &Options) -> Result<TurnedOn> {
    bpffs::require("xcp host on", Access::Change)?;
    let _lock = CommandLock::take()?;
    let group = Cgroup::open(options.cgroup.as_deref())?;
    find(&options.peer_policies.devices)?;
    let fresh = !is_on();
    let other = !fresh && !object::exists(&bpffs::dir(PART).join(BUILD).join(build()));
    if fresh {
        load(false)?;
    } else if other {
        replace_programs()?;
    }
    let (sockets, configured) = configure(&group, options).inspect_err(|_| {
        if fresh {
            let _ = remove_all();
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

/// Sets the policies of this network namespace; the host must be on. Returns whether this
/// changed anything.
pub fn set_peer_policies(peer_policies: &PeerPolicies) -> Result<bool> {
    let devices = find(&peer_policies.devices)?;
    let peers = object::pinned_map(&bpffs::dir(PART).join("peers"))?;
    let here = netns::cookie()?;
    // devices are set first: they must accept headers before any are sent
    let attached = device::set(
        &devices,
        peer_policies.has_headers(),
        peer_policies.ip_proto,
    )?;
    let policies = peers::set(&peers, here, &peer_policies.policies)?;
    Ok(attached || policies)
}

/// Sets the default, the group and the protocol number; returns whether this changed anything.
/// A group or a number that the kernel refuses changes nothing.
fn configure(group: &Cgroup, options: &Options) -> Result<(socket::Outcome, bool)> {
    let dir = bpffs::dir(PART);
    // first, because it may be refused; dropping the link detaches it
    let attached = match attached_group()? == Some(group.id()?) {
        true => None,
        false => Some(attach("option", group)?),
    };
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
    changed |= set_peer_policies(&options.peer_policies)?;
    let pin = dir.join("link");
    if let Some(attached) = attached {
        if object::exists(&pin) {
            bpf_link::detach(bpf_link::open(&pin)?.as_fd());
            fs::remove_file(&pin).map_err(|e| Error::io(pin.display().to_string(), &e))?;
        }
        bpf_link::pin(attached.as_fd(), &pin)?;
        changed = true;
    }
    Ok((sockets, changed))
}

/// The ID of the control group that `host on` attached to.
fn attached_group() -> Result<Option<u64>> {
    let pin = bpffs::dir(PART).join("link");
    if !object::exists(&pin) {
        return Ok(None);
    }
    bpf_link::cgroup_of(bpf_link::open(&pin)?.as_fd()).map(Some)
}

fn attach(program: &str, group: &Cgroup) -> Result<OwnedFd> {
    let program = bpf_link::open(&bpffs::dir(PART).join(program))?;
    let kind = libbpf_sys::BPF_CGROUP_SOCK_OPS;
    bpf_link::attach_to(program.as_fd(), group.fd(), kind).map_err(|e| {
        let refused = || Error::new(group.path().display().to_string(), e.reason, e.remedy);
        cgroup::explain_attach_failure(group, kind).unwrap_or_else(refused)
    })
}

/// Loads the programs; with `transient`, only until `xcp run` ends.
fn load(transient: bool) -> Result<()> {
    // remove what a killed command left incomplete
    if object::exists(&bpffs::dir(PART)) {
        remove_all()?;
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

/// Pins the programs that are attached to control groups.
fn pin_programs(option: &Object, dir: &Path) -> Result<()> {
    for (program, pin) in [("xcp_option", "option"), ("xcp_choose", "choose")] {
        let program = object::program(option, program)?;
        bpf_link::pin(program.as_fd(), &dir.join(pin))?;
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

/// An identifier of this build of the host's programs.
fn build() -> String {
    [&object::OPTION, &object::CC, &object::DEVICE]
        .map(object::Image::build)
        .concat()
}

/// Replaces the programs of another build, newer or older, by those of this build. The maps
/// stay, with the state of each connection, so present connections continue. They keep the
/// congestion control program with which they started.
fn replace_programs() -> Result<()> {
    let dir = bpffs::dir(PART);
    if !layout::is_ours(&dir, &object::OPTION, &SHARED)? {
        return Err(object::other_version("records of connections"));
    }
    let mut open = object::open(&object::OPTION)?;
    object::reuse(&mut open, &SHARED, &dir)?;
    let option = object::load(&object::OPTION, open)?;
    let mut cc = load_control(open_control(&dir)?)?;
    device::replace_programs()?;
    let next = dir.join(NEXT);
    let _ = fs::remove_dir_all(&next);
    bpffs::mark(&next)?;
    pin_programs(&option, &next)?;
    let attached = dir.join("link");
    if object::exists(&attached) {
        let program = object::program(&option, "xcp_option")?;
        bpf_link::replace(bpf_link::open(&attached)?.as_fd(), program.as_fd())?;
    }
    for pin in ["option", "choose"] {
        let to = dir.join(pin);
        fs::rename(next.join(pin), &to).map_err(|e| Error::io(to.display().to_string(), &e))?;
    }
    let _ = fs::remove_dir_all(&next);
    // two congestion controls cannot have one name: for a short time, none can be selected
    let pin = dir.join("cc");
    bpf_link::detach(bpf_link::open(&pin)?.as_fd());
    fs::remove_file(&pin).map_err(|e| Error::io(pin.display().to_string(), &e))?;
    register(&mut cc, &dir)?;
    let _ = fs::remove_dir_all(dir.join(BUILD));
    bpffs::mark(&dir.join(BUILD).join(build()))
}

/// Loads the congestion control, with the hooks that this kernel supports.
#[doc(hidden)]
pub fn load_control(mut open: OpenObject) -> Result<Object> {
    /// The offset of `cwnd_event_tx_start` in the `tcp_congestion_ops` of bpf/kernel.h.
    const TX_START_AT: usize = 64;
    if !probes::has_tx_start() {
        let mut map = object::open_map(&mut open, "xcp")?;
        if let Some(hooks) = map.initial_value_mut() {
            hooks[TX_START_AT..TX_START_AT + size_of::<usize>()].fill(0);
        }
    }
    object::load(&object::CC, open)
}

/// Detaches and removes everything. Sockets that use `xcp` keep it until they close.
pub fn off() -> Result<()> {
    bpffs::require("xcp host off", Access::Change)?;
    let _lock = CommandLock::take()?;
    if !object::exists(&bpffs::dir(PART)) {
        return Err(not_on());
    }
    remove_all()
}

fn remove_all() -> Result<()> {
    let pin = bpffs::dir(PART).join("link");
    if object::exists(&pin) {
        bpf_link::detach(bpf_link::open(&pin)?.as_fd());
    }
    let cleared = device::clear();
    bpffs::remove(PART)?;
    cleared
}

pub(crate) fn not_on() -> Error {
    Error::new("XCP", "is not on", "turn it on: xcp host on")
}

/// The settings and counters of the host.
pub fn status() -> Result<Status> {
    bpffs::require("xcp host show", Access::Read)?;
    if !is_on() {
        return Err(not_on());
    }
    let dir = bpffs::dir(PART);
    let config: xcp_host_config = object::read_record(&object::pinned_map(&dir.join(CONFIG))?, 0)?;
    Ok(Status {
        cgroup: attached_group()?.and_then(cgroup::path_of),
        netns: netns_scope()?,
        default: config.make_default != 0,
        without: SenderFeature::of_bits(config.without),
        wires: peers::get(&object::pinned_map(&dir.join("peers"))?, netns::cookie()?),
        devices: device::names()?,
        socket_protocol: socket::number(&dir)?,
        counters: counters()?,
    })
}

/// The wire format for a peer of this network namespace; None if XCP is not used with it.
///
/// # Errors
/// XCP is not on.
pub fn wire_for(peer: IpAddr) -> Result<Option<Wire>> {
    let map = object::pinned_map(&bpffs::dir(PART).join("peers"))?;
    let all = peers::get(&map, netns::cookie()?);
    Ok(peers::wire_of(&all, peer))
}

/// The options that [`on`] has set for this network namespace, in the form that [`normalized_options`]
/// returns; None if XCP is not on here.
///
/// # Errors
/// The records cannot be read.
pub fn options() -> Result<Option<Options>> {
    bpffs::require("the configuration", Access::Read)?;
    let dir = bpffs::dir(PART);
    if !is_on() || attached_group()?.is_none() || netns_scope()? == NetnsScope::Another {
        return Ok(None);
    }
    let config: xcp_host_config = object::read_record(&object::pinned_map(&dir.join(CONFIG))?, 0)?;
    let cgroup = attached_group()?.and_then(cgroup::path_of);
    let asked = Options {
        cgroup,
        this_netns: config.netns != 0,
        make_default: config.make_default != 0,
        peer_policies: PeerPolicies {
            policies: peers::get(&object::pinned_map(&dir.join("peers"))?, netns::cookie()?),
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
    normalized_options(asked).map(Some)
}

/// Normalizes options: those that have the same effect on this system become equal.
///
/// # Errors
/// The cgroup2 file system is not mounted.
pub fn normalized_options(asked: Options) -> Result<Options> {
    let root = cgroup::mount_point()?;
    let mut normalized_options = asked;
    normalized_options.cgroup = normalized_options.cgroup.filter(|path| *path != root);
    normalized_options.without =
        SenderFeature::of_bits(SenderFeature::bits(&normalized_options.without));
    normalized_options.peer_policies.devices.sort();
    if normalized_options.peer_policies.devices.is_empty() {
        normalized_options.peer_policies.ip_proto = IP_PROTO; // it is stored only with devices
    }
    let permitted = || socket::probe().is_ok();
    normalized_options.socket_protocol = match normalized_options.socket_protocol {
        socket::Wanted::Number(socket::DEFAULT_NUMBER) => socket::Wanted::IfPermitted,
        socket::Wanted::Off if !permitted() => socket::Wanted::IfPermitted,
        other => other,
    };
    Ok(normalized_options)
}

/// The network namespaces whose sockets may use XCP.
fn netns_scope() -> Result<NetnsScope> {
    let map = object::pinned_map(&bpffs::dir(PART).join(CONFIG))?;
    let config: xcp_host_config = object::read_record(&map, 0)?;
    Ok(match config.netns {
        0 => NetnsScope::All,
        here if here == netns::cookie()? => NetnsScope::This,
        _ => NetnsScope::Another,
    })
}

/// The counters of the host.
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
        total.return_no_room += cpu.return_no_room;
        total.sacks_trimmed += cpu.sacks_trimmed;
        total.header_omitted += cpu.header_omitted;
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

/// A separate control group for one command, whose sockets may use `xcp`. Dropping it undoes
/// everything that it has set up.
pub struct RunGroup {
    group: Cgroup,
    /// The group of this process, in which the program would otherwise run.
    origin: PathBuf,
    links: Vec<OwnedFd>,
}

impl RunGroup {
    /// Waits until no other command holds the lock, and takes it.
    pub fn lock() -> Result<CommandLock> {
        bpffs::require("xcp run", Access::Change)?;
        CommandLock::take()
    }

    /// Creates a group in which new sockets use `xcp`; loads the programs if the host is not on.
    pub fn new(lock: CommandLock) -> Result<Self> {
        Self::create(lock, true)
    }

    /// The same, but sockets use `xcp` only if the program sets it.
    pub fn without_default(lock: CommandLock) -> Result<Self> {
        Self::create(lock, false)
    }

    fn create(_lock: CommandLock, make_default: bool) -> Result<Self> {
        if is_on() && netns_scope()? == NetnsScope::Another {
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
        // before the program that offers XCP on sockets that use it
        if make_default {
            run.links.push(attach("choose", &run.group)?);
        }
        if !run.is_covered()? {
            run.links.push(attach("option", &run.group)?);
        }
        Ok(run)
    }

    /// Whether `host on` covers this group already, because it covers a parent.
    fn is_covered(&self) -> Result<bool> {
        Ok(attached_group()?
            .and_then(cgroup::path_of)
            .is_some_and(|above| self.group.path().starts_with(above)))
    }

    /// Moves this process into the group, with all its threads.
    pub fn enter(&self) -> Result<()> {
        let procs = self.procs();
        fs::write(&procs, "0").map_err(|e| Error::io(procs.display().to_string(), &e))
    }

    /// Where a process writes 0 to move itself into the group.
    pub fn procs(&self) -> PathBuf {
        self.group.path().join("cgroup.procs")
    }
}

impl Drop for RunGroup {
    fn drop(&mut self) {
        // without the lock, everything stays, as after a kill
        let Ok(_lock) = CommandLock::take() else {
            return;
        };
        self.links.clear();
        // remaining processes of the program continue without XCP
        let group = self.group.path();
        cgroup::dissolve(group, &self.origin);
        let others = group.parent().is_some_and(|all| any_run_left(all, group));
        if !others && object::exists(&bpffs::dir(PART).join(TRANSIENT)) {
            let _ = off();
        }
    }
}

/// Removes what a killed `xcp run` or `xcp gateway run` has left, unless another one still runs.
/// Returns whether there was anything.
pub fn remove_left() -> Result<bool> {
    let _lock = CommandLock::take()?;
    let groups = cgroup::mount_point()?;
    if any_run_left(&groups, Path::new("")) || !object::exists(&bpffs::dir(PART).join(TRANSIENT)) {
        return Ok(false);
    }
    remove_all().map(|()| true)
}

/// Whether another `xcp run` than that of this group still runs. Removes the groups of those
/// that were killed.
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

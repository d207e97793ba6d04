// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The definition of the command line.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use xcp_datapath::socket::Wanted;
use xcp_datapath::{Prefix, SenderFeature, Wire};
use xcp_edged::status::SOCKET as EDGED_SOCKET;
use xcp_gateway::status::SOCKET as GATEWAY_SOCKET;

use crate::capacity::{Capacity, Rate};
use crate::path::NetworkPath;
use crate::value;

/// The default of `xcp gateway run --max-connections`.
pub const GATEWAY_CONNECTIONS: u32 = 10_000;
/// The default of `xcp gateway run --max-per-source`.
pub const GATEWAY_PER_SOURCE: u32 = 1_000;

/// Explicit congestion control (XCP) for Linux, in eBPF on stock kernels
#[derive(Parser)]
#[command(name = "xcp", version, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  xcp lab run zh-validation                    see XCP at work, without root
  sudo xcp router add eth0 --capacity 10mbit   hand out 10 Mb/s on eth0
  sudo xcp run -- curl -O http://example.org/  use XCP for one program
  sudo xcp host on --default                   use XCP for all programs

Exit status: 0 done; 1 failed, or a check of a lab run failed; 2 wrong usage;
3 `xcp apply` failed in part; 130 interrupted. `xcp run` and `xcp lab exec` exit
with the status of their command: 127 if it is not found, 126 if it cannot be
executed.")]
pub struct Cli {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub action: Action,
}

/// Output options of all commands.
#[derive(Args)]
pub struct Output {
    /// Print JSON, including errors
    #[arg(long, global = true)]
    pub json: bool,
    /// Show messages of libbpf and of the kernel's verifier
    #[arg(long, global = true)]
    pub verbose: bool,
}

/// Run experiments
#[derive(Parser)]
#[command(
    name = "xcp-lab",
    bin_name = "xcp lab",
    version,
    arg_required_else_help = true
)]
pub struct Lab {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub action: LabAction,
}

#[derive(Subcommand)]
pub enum Action {
    /// Use XCP on this host
    #[command(subcommand)]
    Host(HostAction),
    /// Run a program with XCP on its sockets
    ///
    /// Removes everything again when the program ends. Needs root, and the program
    /// runs as root, too; to drop privileges: `xcp run -- setpriv --reuid=1000
    /// --clear-groups curl ...`.
    Run {
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Make devices XCP routers
    #[command(subcommand)]
    Router(RouterAction),
    /// Join XCP routers across networks without XCP (XCP-i)
    ///
    /// Measures the available bandwidth of these networks and represents each of them
    /// by a virtual router, which `xcp router show` lists.
    #[command(subcommand)]
    Edged(EdgedAction),
    /// Use XCP on a link for hosts that do not use it
    ///
    /// Splits the TCP connections that this system forwards between LAN and WAN: the
    /// gateway accepts each one, and connects to its destination from the address and
    /// port of its source. On the WAN side it uses XCP if the other end of the link has
    /// a gateway too.
    #[command(subcommand)]
    Gateway(GatewayAction),
    /// Apply a configuration file, xcp.toml(5), to the host, its routers and a running gateway
    ///
    /// Adds what is missing, changes what differs and removes what is not in the
    /// file. A device is changed completely or not at all. If the file has an error,
    /// nothing is changed. Exit status: 3 if a device, the host or the gateway could not
    /// be changed.
    Apply(Apply),
    /// Print the running configuration, or the schema of the configuration file
    #[command(subcommand)]
    Config(ConfigAction),
    /// Export counters and gauges for Prometheus, in OpenMetrics format
    ///
    /// Covers the network namespace that the command runs in. Serves
    /// http://ADDR/metrics until Ctrl-C, or writes a file once, for node_exporter's
    /// textfile collector.
    Metrics(Metrics),
    /// Show links and connections live on a terminal
    ///
    /// The first table has the links of this network namespace's routers: capacity,
    /// utilisation, queueing delay, XCP flows and XCP's share, each with bars for the
    /// last seconds. The second table has the connections that use XCP, that look for a
    /// router (probing) or that fell back, with the reason. A long list of connections
    /// is refreshed less often.
    ///
    /// Keys: Tab other table; s sort by the next column; r reverse the order; / show
    /// only rows that contain a text; Esc show all rows; arrows, Page Up, Page Down,
    /// Home and End scroll; p pause; q quit.
    Top(Top),
    /// Explain why connections to a host do not use XCP, and what to do
    ///
    /// Examines the connections of this network namespace to the peer. If there are none
    /// and a port is given, it opens one with XCP and, if the peer supports XCP, sends an
    /// empty line on it to look for routers. If the peer does not answer with XCP, it sends
    /// SYNs with a small TTL to find out whether the path removes the option.
    ///
    /// Exit status: 0 if XCP is used, 1 if not.
    Why {
        /// Address or name of the peer; with a port, examine only that port
        #[arg(value_name = "HOST[:PORT]")]
        host: String,
    },
    /// Show the state of host, routers, edges and gateway on one screen
    Status,
    /// Check kernel support
    Doctor {
        /// Also check whether this system's limits let TCP fill a path of this rate
        /// and round-trip time, such as 10mbit,500ms
        #[arg(long, value_name = "RATE,RTT", allow_hyphen_values = true)]
        path: Option<NetworkPath>,
    },
    /// Run experiments, with the program xcp-lab
    #[command(subcommand)]
    Lab(LabAction),
    /// Print completions for a shell
    Completions {
        /// Shell that the completions are for
        shell: Shell,
    },
    /// Print the man page
    Man {
        /// Write the pages of all subcommands to this folder instead
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// The configuration file of this system.
pub const CONFIG_PATH: &str = "/etc/xcp/xcp.toml";

#[derive(Args)]
pub struct Apply {
    /// Configuration file, or - for standard input
    #[arg(value_name = "FILE", default_value = CONFIG_PATH)]
    pub file: PathBuf,
    /// Only check the file; change nothing
    #[arg(long)]
    pub check: bool,
    /// Print the old and new value of each setting that differs
    #[arg(long)]
    pub diff: bool,
    /// Ignore devices that do not exist (yet)
    #[arg(long)]
    pub ignore_missing: bool,
}

#[derive(Args)]
#[group(required = true)]
pub struct Metrics {
    /// Listen on this address and port
    #[arg(
        long,
        value_name = "ADDR",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:9920"
    )]
    pub listen: Option<SocketAddr>,
    /// Write the metrics to this file, which is replaced atomically
    #[arg(long, value_name = "PATH")]
    pub textfile: Option<PathBuf>,
}

#[derive(Args)]
pub struct Top {
    /// Time between two refreshes, seconds
    #[arg(
        long,
        value_name = "S",
        default_value = "0.2",
        value_parser = value::duration,
        allow_hyphen_values = true
    )]
    pub interval: Duration,
    /// Show only rows that contain this text
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
}

#[derive(Subcommand)]
pub enum ConfigAction {
    /// Print the running configuration of this network namespace, in the format that
    /// `xcp apply` reads
    Show,
    /// Print the JSON schema of the configuration file
    Schema,
}

#[derive(Subcommand)]
pub enum HostAction {
    /// Make `xcp` selectable as a congestion control
    ///
    /// The setting remains after this command ends, until `xcp host off`. Each call sets
    /// all options: those that are left out return to their defaults. Wire format, devices
    /// and peers apply to this network namespace. A host next to a network without XCP can
    /// be an edge, too: xcp edged run.
    On(HostOn),
    /// Remove XCP from this host
    ///
    /// Open connections fall back to the default congestion control after 100 ACKs without
    /// feedback.
    Off,
    /// Show settings and counters
    Show {
        /// List the connections of this network namespace that use XCP or fell back,
        /// with the reason
        #[arg(long)]
        connections: bool,
    },
}

/// The option on which hosts and routers must agree.
#[derive(Args)]
pub struct Header {
    /// IP protocol of the wire formats header and header-2004; Mosebekk (2005) uses 200
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "253",
        value_parser = value::ip_proto,
        allow_hyphen_values = true
    )]
    pub ip_proto: u8,
}

#[derive(Args)]
pub struct HostOn {
    /// Restrict XCP to sockets of this control group and of the groups below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// Restrict XCP to sockets of this network namespace [default: also those of
    /// containers in the control group]
    #[arg(long)]
    pub netns: bool,
    /// Make XCP the default congestion control of new sockets
    #[arg(long)]
    pub default: bool,
    /// Protocol number that opens a TCP socket with XCP, or off
    /// [default: 200 if the kernel permits]
    #[arg(
        long,
        value_name = "N",
        value_parser = value::socket_protocol,
        allow_hyphen_values = true
    )]
    pub socket_protocol: Option<Wanted>,
    /// Wire format of outgoing connections: option, option-2005, header or
    /// header-2004; incoming ones use the peer's format
    #[arg(long, value_name = "FORMAT", default_value_t = Wire::Option, value_parser = value::wire)]
    pub wire: Wire,
    /// Device on which XCP headers are added and read, and on which a SACK block or
    /// padding is removed from an ACK that has no room for feedback; may be given several
    /// times
    #[arg(long = "dev", value_name = "DEV")]
    pub devices: Vec<String>,
    /// Use XCP only with these addresses, such as 10.0.0.0/8; may be given several
    /// times
    #[arg(long, value_name = "PREFIX", value_parser = value::prefix)]
    pub peers: Vec<Prefix>,
    /// Switch off sender features that go beyond the drafts, for tests: losses (treat
    /// losses and marks that XCP's own queues do not explain as congestion), idle
    /// (halve the window for each timeout without sending), app-limit (limit windows and
    /// requested deltas to what the application sends), totals (send feedback as a
    /// running total, so that lost ACKs lose none)
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = value::sender_feature)]
    pub without: Vec<SenderFeature>,
    #[command(flatten)]
    pub header: Header,
}

#[derive(Subcommand)]
pub enum RouterAction {
    /// Make a device an XCP router for the traffic that it sends
    ///
    /// The router remains after this command ends, until `xcp router del`. Each call sets
    /// all options: those that are left out return to their defaults.
    Add(RouterAdd),
    /// Change only the capacity of a router
    ///
    /// Takes effect at once and is cheap enough for ten calls a second. Programs that
    /// have new values all the time should write them to `xcp router feed`.
    Set(RouterSet),
    /// Send a router capacity hints from a modem or a satellite terminal
    ///
    /// Reads one rate from each line: bits per second, or a number with a unit
    /// such as 10mbit. The measured capacity follows each change of the rate at
    /// once, and measuring continues: values that are late, or wrong by a constant
    /// factor, do little harm. Ends at the end of the input, or with Ctrl-C.
    Feed(RouterFeed),
    /// Remove the router from a device
    Del {
        /// Network device
        #[arg(value_name = "DEV")]
        device: String,
    },
    /// Show one router in detail, or all routers with a line each
    Show {
        /// Network device
        #[arg(value_name = "DEV")]
        device: Option<String>,
        /// Print a line for each router 5 times a second, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Print each control interval with XCP packets, until Ctrl-C
    ///
    /// Rates are in bits per second, times in seconds. Unknown values are empty, or
    /// null in JSON.
    Trace(RouterTrace),
}

#[derive(Args)]
pub struct RouterSet {
    /// Network device
    #[arg(value_name = "DEV")]
    pub device: String,
    /// Capacity of the link, as for `xcp router add`
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub capacity: Capacity,
}

#[derive(Args)]
pub struct RouterFeed {
    /// Network device
    #[arg(value_name = "DEV")]
    pub device: String,
    /// Pipe, file or Unix socket to read from [default: standard input]
    #[arg(value_name = "FROM")]
    pub from: Option<PathBuf>,
    /// Lifetime of a value, seconds
    #[arg(
        long,
        value_name = "S",
        default_value = "2",
        value_parser = value::duration,
        allow_hyphen_values = true
    )]
    pub expires: Duration,
}

#[derive(Args)]
pub struct RouterTrace {
    /// Network device
    #[arg(value_name = "DEV")]
    pub device: String,
    /// Print comma-separated values with a header line
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// End after this number of control intervals
    #[arg(long, value_name = "N", value_parser = value::count, allow_hyphen_values = true)]
    pub count: Option<u64>,
    /// End after this number of seconds
    #[arg(
        long,
        value_name = "S",
        value_parser = value::duration,
        allow_hyphen_values = true
    )]
    pub duration: Option<Duration>,
}

#[derive(Args)]
pub struct RouterAdd {
    /// Network device
    #[arg(value_name = "DEV")]
    pub device: String,
    /// Capacity of the link, such as 10mbit or 2.5gbit; auto to measure it, if the
    /// device driver holds packets back while the link is busy
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub capacity: Capacity,
    /// Do not measure the capacity: use the given one even if the link carries less
    #[arg(long)]
    pub no_measure: bool,
    /// Use the published control law, without the changes that docs/design/law.md lists
    #[arg(long)]
    pub no_anticipate: bool,
    /// Limit for RTTs in headers, so that a false one cannot slow the router down; set
    /// it above the longest RTT of your paths
    #[arg(long, value_name = "TIME", default_value = value::MAX_RTT.as_str(), value_parser = value::max_rtt)]
    pub max_rtt: Duration,
    /// Percentage of the link for XCP when it competes with other traffic
    /// [default: in proportion to the numbers of flows]
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = value::percent,
        allow_hyphen_values = true
    )]
    pub xcp_share: Option<u8>,
    /// Keep the device's queue discipline [default: replace it by `xcp`, which shapes
    /// to the capacity, if the kernel supports BPF queue disciplines]
    #[arg(long)]
    pub no_qdisc: bool,
    /// Shape the device to this rate [default: the capacity], with the queue
    /// discipline xcp or, if the kernel does not support it, a token bucket
    #[arg(
        long,
        value_name = "RATE",
        num_args = 0..=1,
        conflicts_with = "no_qdisc"
    )]
    pub shape: Option<Option<Rate>>,
    /// Queue limit for --shape, packets [default: 1000 in each queue of the queue
    /// discipline xcp; 200 ms at its rate, at least 100 packets, in a token bucket]
    #[arg(
        long,
        value_name = "PACKETS",
        requires = "shape",
        value_parser = value::packets,
        allow_hyphen_values = true
    )]
    pub limit: Option<u32>,
    #[command(flatten)]
    pub framing: RouterFraming,
    #[command(flatten)]
    pub header: Header,
}

/// The link's framing, with the names of tc-cake.
#[derive(Args)]
pub struct RouterFraming {
    /// Bytes that the link adds to every packet; negative if it removes some
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "0",
        value_parser = value::overhead,
        allow_hyphen_values = true
    )]
    pub overhead: i32,
    /// Minimum bytes of a packet on the link; shorter ones are padded
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "0",
        value_parser = value::mpu,
        allow_hyphen_values = true
    )]
    pub mpu: u32,
    /// Account for ATM cells: 53 bytes for 48 (ADSL)
    #[arg(long, conflicts_with = "ptm")]
    pub atm: bool,
    /// Account for PTM: 65 bytes for 64 (VDSL2)
    #[arg(long)]
    pub ptm: bool,
}

#[derive(Subcommand)]
pub enum GatewayAction {
    /// Run the gateway, until Ctrl-C or a signal ends it
    ///
    /// When it ends, its connections are reset, and new ones are forwarded as if there were
    /// no gateway. With --config, SIGHUP makes it read the file again; present connections
    /// stay.
    Run(GatewayRun),
    /// Show the state of the gateway
    Show {
        /// Socket of the gateway: its option --socket
        #[arg(long, value_name = "PATH", default_value = GATEWAY_SOCKET)]
        socket: PathBuf,
        /// Print a line 5 times a second, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// End the gateway, and remove what a killed one left behind
    Off {
        /// Socket of the gateway: its option --socket
        #[arg(long, value_name = "PATH", default_value = GATEWAY_SOCKET)]
        socket: PathBuf,
        /// Only remove what a killed gateway left behind; fail if a gateway is running
        #[arg(long)]
        only_left: bool,
    },
}

#[derive(Args)]
pub struct GatewayRun {
    /// Device to which the hosts without XCP are connected; may be given several times
    #[arg(long, value_name = "DEV", required_unless_present = "config")]
    pub lan: Vec<String>,
    /// Device of the link to use XCP on
    #[arg(long, value_name = "DEV", required_unless_present = "config")]
    pub wan: Option<String>,
    /// Capacity of the link, such as 10mbit, or auto: makes the WAN device an XCP
    /// router while the gateway runs. A rate also shapes the device. Without this, the
    /// device must be a router already
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub capacity: Option<Capacity>,
    /// Split only connections from or to these addresses, such as 10.0.0.0/8; may be
    /// given several times. The longest prefix that matches an address decides
    #[arg(long, value_name = "PREFIX", value_parser = value::prefix)]
    pub include: Vec<Prefix>,
    /// Forward connections from or to these addresses; may be given several times
    #[arg(long, value_name = "PREFIX", value_parser = value::prefix)]
    pub exclude: Vec<Prefix>,
    /// Split only connections to these ports
    #[arg(long, value_name = "PORT", value_delimiter = ',', value_parser = value::port)]
    pub port: Vec<u16>,
    /// Forward connections to these ports
    #[arg(long, value_name = "PORT", value_delimiter = ',', value_parser = value::port)]
    pub exclude_port: Vec<u16>,
    /// Maximum number of connections; further ones are forwarded, not split
    #[arg(long, value_name = "N", default_value_t = GATEWAY_CONNECTIONS, value_parser = value::connections)]
    pub max_connections: u32,
    /// Maximum number of connections from one source address; further ones are forwarded,
    /// not split
    #[arg(long, value_name = "N", default_value_t = GATEWAY_PER_SOURCE, value_parser = value::connections)]
    pub max_per_source: u32,
    /// Take all this from the table `gateway` of a configuration file
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = CONFIG_PATH,
        conflicts_with_all = ["lan", "wan", "capacity", "include", "exclude", "port",
            "exclude_port", "max_connections", "max_per_source"]
    )]
    pub config: Option<PathBuf>,
    /// Unix socket for `xcp gateway show`
    #[arg(long, value_name = "PATH", default_value = GATEWAY_SOCKET)]
    pub socket: PathBuf,
}

#[derive(Subcommand)]
pub enum EdgedAction {
    /// Run the daemon: request probes from upstream edges, send them to downstream ones
    ///
    /// At most one can run in each network namespace. When Ctrl-C or a signal ends it,
    /// it notifies the other edges and exits with status 0.
    Run(EdgedRun),
    /// Show the state of the daemon
    ///
    /// A probe train is a burst of packets that measures what a network has free.
    Show {
        /// Socket of the daemon: its option --socket
        #[arg(long, value_name = "PATH", default_value = EDGED_SOCKET)]
        socket: PathBuf,
        /// Print a line for each upstream edge 5 times a second, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Generate a key in a new file; all edges need the same key
    Key {
        /// File to create; only its owner can read it
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Args)]
pub struct EdgedRun {
    /// File with the key that all edges share; only its owner may read it
    #[arg(long, value_name = "FILE", required_unless_present = "config")]
    pub key: Option<PathBuf>,
    /// Request probes from the upstream edge with this address; may be given several
    /// times. Requests from downstream edges are answered in any case
    #[arg(long, value_name = "ADDRESS", value_parser = value::router)]
    pub upstream: Vec<IpAddr>,
    /// Take key and addresses from the table `edge` of a configuration file
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = CONFIG_PATH,
        conflicts_with_all = ["key", "upstream"]
    )]
    pub config: Option<PathBuf>,
    /// Unix socket for `xcp edged show`
    #[arg(long, value_name = "PATH", default_value = EDGED_SOCKET)]
    pub socket: PathBuf,
}

#[derive(Subcommand)]
pub enum LabAction {
    /// Check whether experiments can run here
    Doctor,
    /// List the experiments
    List,
    /// Run an experiment and check its expected results
    Run(LabRun),
    /// Run all experiments, each variant on each of its kernels
    ///
    /// Variants with a result from an earlier run are skipped, so that an interrupted
    /// run can be continued. A run that fails does not stop the others.
    All(LabAll),
    /// Verify published results: run some rows of the results document again
    Verify(LabVerify),
    /// List the results of earlier runs, which are used instead of running again
    Cache(LabCache),
    /// Plot the trace of a link, for the field rates_file of experiments
    Trace(LabTrace),
    /// Check the BPF programs or the queue discipline xcp in a virtual machine
    Check(LabCheck),
    /// Count the instructions per packet of the data path in a virtual machine
    Bench(LabBench),
    /// Run a program from this computer as root in a virtual machine
    ///
    /// Its output is printed as it is written, and `xcp` exits with its status. Apart from
    /// the program, the machine has only the files given with --file, and tools such as ip,
    /// tc, nsenter, ethtool and sh if they are installed.
    Exec(LabExec),
}

#[derive(Args)]
pub struct LabRun {
    /// Name of an experiment, or path of a TOML file
    #[arg(value_name = "NAME")]
    pub experiment: String,
    /// Seed of the random numbers; the same seed gives the same result
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = value::seed,
        allow_hyphen_values = true
    )]
    pub seed: u64,
    /// Run only this variant; may be given several times
    #[arg(long = "variant", value_name = "NAME")]
    pub variants: Vec<String>,
    /// Wire format of all XCP flows: option, option-2005, header or header-2004
    #[arg(long, value_name = "FORMAT", value_parser = value::wire)]
    pub wire: Option<Wire>,
    /// Internet protocol version, 4 or 6
    #[arg(long, value_name = "VERSION", value_parser = value::ip_version)]
    pub ip: Option<u8>,
    #[command(flatten)]
    pub kernel: KernelOption,
    /// Run in network namespaces of this host, in real time; needs root
    #[arg(long, conflicts_with = "kernel")]
    pub native: bool,
    /// Run variants again that have a result from an earlier run
    #[arg(long)]
    pub fresh: bool,
    /// Write the packets that node R sends to node D to a pcap file; may be given
    /// several times
    #[arg(long = "pcap", value_name = "R-D")]
    pub points: Vec<String>,
    /// Folder for the report and the CSV and pcap files [default: report/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Args)]
pub struct LabAll {
    /// Run only the quick variants, on one kernel; check the others only if they have
    /// a result from an earlier run
    #[arg(long)]
    pub quick: bool,
    /// Run variants again that have a result from an earlier run
    #[arg(long)]
    pub fresh: bool,
    /// Write a table of all results to this document, and update the figures quoted in
    /// the other documents of its folder and in README.md of the folder above
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
}

#[derive(Args)]
pub struct LabVerify {
    /// The results document
    #[arg(value_name = "FILE", default_value = "docs/results.md")]
    pub document: PathBuf,
    /// Number of rows to run again
    #[arg(long, value_name = "N", default_value = "3")]
    pub rows: usize,
    /// Text that selects the rows pseudo-randomly, such as the hash of a commit
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub draw: String,
}

#[derive(Args)]
pub struct LabCache {
    /// Remove all of them
    #[arg(long)]
    pub clear: bool,
}

#[derive(Args)]
pub struct LabTrace {
    /// Trace in mahimahi's format, plain or gzip: each line has the time (ms) at which
    /// the link can send a packet of 1500 bytes
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Averaging period of the rates, milliseconds: the field rates_step_ms
    #[arg(long, value_name = "MS", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub step_ms: u32,
    /// Write the plot also to this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

#[derive(Args)]
pub struct LabCheck {
    /// programs: check that all load, for 1 to 1024 processors, and carry traffic in
    /// every wire format; qdisc: check that it holds under stress
    #[arg(value_name = "WHAT", value_parser = ["programs", "qdisc"])]
    pub what: String,
    /// Times to replace, change and delete the queue discipline (qdisc) [default: 1000]
    #[arg(long, value_name = "N")]
    pub cycles: Option<u32>,
    /// Processors of the virtual machine (programs) [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    pub processors: Option<u32>,
    #[command(flatten)]
    pub kernel: KernelOption,
    /// Run again even if there is a result from an earlier run
    #[arg(long)]
    pub fresh: bool,
}

/// The kernel of the virtual machine.
#[derive(Args)]
pub struct KernelOption {
    /// Kernel: 6.12, 6.18, newest, 6.18-arm64, or IMAGE[:MODULES], the paths of a kernel
    /// image and of the folder of its modules
    #[arg(id = "kernel", long = "kernel", value_name = "KERNEL")]
    pub name: Option<String>,
}

#[derive(Args)]
pub struct LabBench {
    /// Part of the data path to measure [default: all of them]
    #[arg(value_name = "WHAT", value_parser = ["router", "qdisc", "hosts", "connections"])]
    pub what: Vec<String>,
    #[command(flatten)]
    pub kernel: KernelOption,
    /// Run again even if there is a result from an earlier run
    #[arg(long)]
    pub fresh: bool,
}

#[derive(Args)]
pub struct LabExec {
    #[command(flatten)]
    pub kernel: KernelOption,
    /// Copy a file into the machine, to the same absolute path, with the libraries
    /// that it needs; may be given several times
    #[arg(long = "file", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }
}

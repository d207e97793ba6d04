// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What can be said on the command line.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use xcp_datapath::socket::Wanted;
use xcp_datapath::{Prefix, SenderFeature, Wire};
use xcp_edged::status_socket;

use crate::capacity::{Capacity, Rate};
use crate::path::NetworkPath;
use crate::value;

/// Explicit congestion control (XCP) for Linux, in eBPF on stock kernels
#[derive(Parser)]
#[command(name = "xcp", version, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  xcp lab run zh-validation                    see XCP at work, without root
  sudo xcp router add eth0 --capacity 10mbit   hand out 10 Mb/s on eth0
  sudo xcp run -- curl -O http://example.org/  use XCP for one program
  sudo xcp host on --default                   use XCP for all programs

Exit status: 0 done; 1 failed, or a check of a lab run failed; 2 bad usage;
130 interrupted. `xcp run` and `xcp lab exec` exit as their command does, 127 if
there is none.")]
pub struct Cli {
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub action: Action,
}

/// How all commands say what they have to say.
#[derive(Args)]
pub struct Output {
    /// Print JSON, for programs; errors too
    #[arg(long, global = true)]
    pub json: bool,
    /// Show what libbpf and the kernel's verifier say
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
    /// Make this host speak XCP
    #[command(subcommand)]
    Host(HostAction),
    /// Run a program with XCP on its sockets
    ///
    /// Takes everything down again when the program ends. Needs root, which
    /// the program gets too; give it up with, say, `xcp run -- setpriv
    /// --reuid=1000 --clear-groups curl ...`.
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
    /// It measures what they carry, and stands for them with virtual routers, which
    /// `xcp router show` lists.
    #[command(subcommand)]
    Edged(EdgedAction),
    /// Bring hosts and routers to the state in a file, xcp.toml(5)
    ///
    /// Adds what is missing, changes what differs and removes what is not in the
    /// file. A device is changed completely or not at all. If the file has an error,
    /// nothing is changed.
    Apply(Apply),
    /// Print the configuration that is in force, or what a file of it can contain
    #[command(subcommand)]
    Config(ConfigAction),
    /// Export counters and gauges for Prometheus, in OpenMetrics
    ///
    /// For the network namespace that it runs in. Serves http://ADDR/metrics until
    /// Ctrl-C, or writes a file once, for node_exporter's textfile collector.
    Metrics(Metrics),
    /// Show links and connections live, on a terminal
    ///
    /// Links are those of this network namespace's routers: capacity, how much of it
    /// is used, queueing delay, XCP flows and XCP's share, each with its last seconds
    /// as bars. Connections are those that use XCP, look for a router (probing) or fell
    /// back, and why. A long list of connections is read less often.
    ///
    /// Keys: Tab to the other table; s sort by the next column, r in the other order;
    /// / show only rows that contain a text, Esc all again; arrows, Page Up and Down,
    /// Home and End scroll; p pause; q quit.
    Top(Top),
    /// Tell why connections to a host do not use XCP, and what to do about it
    ///
    /// Looks at the connections that there are from this network namespace. If there
    /// is none, it opens one with XCP and, if the peer speaks XCP, sends an empty line on
    /// it to look for routers. If the peer does not answer with XCP, SYNs with few hops
    /// to live find out whether the path removes the option.
    ///
    /// Exit status: 0 if XCP is used, 1 if not.
    Why {
        /// Address or name, with a port to look at, or to open a connection to
        #[arg(value_name = "HOST[:PORT]")]
        host: String,
    },
    /// Show hosts, routers and edges on one screen
    Status,
    /// Tell what this kernel can do, what it cannot, and what that costs
    Doctor {
        /// Whether this system's limits let TCP fill a path of this rate and
        /// round-trip time, such as 10mbit,500ms
        #[arg(long, value_name = "RATE,RTT", allow_hyphen_values = true)]
        path: Option<NetworkPath>,
    },
    /// Run experiments, by the program xcp-lab
    #[command(subcommand)]
    Lab(LabAction),
    /// Print completions for a shell
    Completions { shell: Shell },
    /// Print the man page
    Man {
        /// Write the pages of all subcommands into this folder instead
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// The configuration file of this system.
pub const CONFIG_PATH: &str = "/etc/xcp/xcp.toml";

#[derive(Args)]
pub struct Apply {
    #[arg(value_name = "FILE", default_value = CONFIG_PATH)]
    pub file: PathBuf,
    /// Only check the file; change nothing
    #[arg(long)]
    pub check: bool,
    /// Print each setting that differs, before and after
    #[arg(long)]
    pub diff: bool,
    /// Leave out devices that are not there (yet)
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
    /// Write them to this file, which is replaced at once
    #[arg(long, value_name = "PATH")]
    pub textfile: Option<PathBuf>,
}

#[derive(Args)]
pub struct Top {
    /// Time between two refreshes
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
    /// Print the configuration in force in this network namespace, as `xcp apply`
    /// reads it
    Show,
    /// Print the JSON schema of the file
    Schema,
}

#[derive(Subcommand)]
pub enum HostAction {
    /// Make `xcp` selectable as a congestion control
    ///
    /// It stays when this command ends. Once more changes only what differs.
    /// Wire format, devices and peers are those of this network namespace.
    /// Beside a network without XCP, a host may be an edge too: xcp edged run.
    On(HostOn),
    /// Take everything down
    ///
    /// Sockets that use XCP keep it until they close.
    Off,
    /// Show what is set and what has happened so far
    Show {
        /// List the connections of this network namespace that use XCP, and
        /// those that fell back, with the reason
        #[arg(long)]
        connections: bool,
    },
}

/// What hosts and routers must agree on.
#[derive(Args)]
pub struct Header {
    /// IP protocol of the wire formats header and header-2004 (the thesis: 200)
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
    /// Only for sockets of this control group and those below
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// Only for sockets of this network namespace; else also for those of
    /// containers that are in the group
    #[arg(long)]
    pub netns: bool,
    /// Make it the default for new sockets
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
    /// Wire format of connections from here: option, option-2005, header or
    /// header-2004; incoming ones use the peer's format
    #[arg(long, value_name = "FORMAT", default_value_t = Wire::Option, value_parser = value::wire)]
    pub wire: Wire,
    /// Device that headers pass, or whose ACKs full of SACK blocks make room
    /// for feedback; may be given several times
    #[arg(long = "dev", value_name = "DEV")]
    pub devices: Vec<String>,
    /// Speak this format with these addresses, such as 10.0.0.0/8, and XCP with
    /// no others; may be given several times
    #[arg(long, value_name = "PREFIX", value_parser = value::prefix)]
    pub peers: Vec<Prefix>,
    /// Do not let senders do what the drafts do not ask for, to see what then
    /// goes wrong: losses (losses and marks that XCP's own queues do not
    /// explain are taken for congestion), idle (a window is halved for each
    /// timeout of a pause), use (windows, and what is asked for, follow what
    /// there is to send), totals (lost ACKs lose no feedback, which is a
    /// running total)
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = value::sender_feature)]
    pub without: Vec<SenderFeature>,
    #[command(flatten)]
    pub header: Header,
}

#[derive(Subcommand)]
pub enum RouterAction {
    /// Hand out a device's capacity to the XCP traffic that leaves by it
    ///
    /// It stays when this command ends. Once more changes only what differs.
    Add(RouterAdd),
    /// Give a router another capacity at once, and change nothing else
    ///
    /// Cheap enough for ten calls a second; a program that has a value again and
    /// again gives it to `xcp router feed`.
    Set(RouterSet),
    /// Give a router hints of its capacity, from a modem or a satellite terminal
    ///
    /// Reads one rate from each line: bits per second, or a number with a unit
    /// such as 10mbit. What the link is found to carry follows each change at
    /// once, and goes on being measured: values that are late or wrong by a
    /// constant factor do little harm. Ends with the source, or with Ctrl-C.
    Feed(RouterFeed),
    /// Take the router off a device
    Del {
        #[arg(value_name = "DEV")]
        device: String,
    },
    /// Show one router, or a line for each
    Show {
        #[arg(value_name = "DEV")]
        device: Option<String>,
        /// A line for each router, 5 times a second, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Print each control interval in which XCP packets came, until Ctrl-C
    ///
    /// Rates are in bits per second, times in seconds; a value that is not
    /// known is empty, or null in JSON.
    Trace(RouterTrace),
}

#[derive(Args)]
pub struct RouterSet {
    #[arg(value_name = "DEV")]
    pub device: String,
    /// Capacity of the link, as for `xcp router add`
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub capacity: Capacity,
}

#[derive(Args)]
pub struct RouterFeed {
    #[arg(value_name = "DEV")]
    pub device: String,
    /// A pipe or file, or a Unix socket to connect to [default: standard input]
    #[arg(value_name = "FROM")]
    pub from: Option<PathBuf>,
    /// After that a value does not count any more
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
    #[arg(value_name = "DEV")]
    pub device: String,
    /// Comma-separated values, with a header
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// End after that many intervals
    #[arg(long, value_name = "N", value_parser = value::count, allow_hyphen_values = true)]
    pub count: Option<u64>,
    /// End after that many seconds
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
    #[arg(value_name = "DEV")]
    pub device: String,
    /// Capacity of the link, such as 10mbit or 2.5gbit; auto on a device that
    /// holds packets back when its link is busy
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub capacity: Capacity,
    /// Believe the capacity, even where the link is found to carry less
    #[arg(long)]
    pub no_measure: bool,
    /// Hand out by the law as it was published: what was granted and is not
    /// seen yet does not count, and a tenth of the traffic is always shuffled
    #[arg(long)]
    pub no_anticipate: bool,
    /// RTTs in headers count at most this, so that a false one cannot slow the
    /// router down; more than the longest RTT there is on your paths
    #[arg(long, value_name = "TIME", default_value = value::MAX_RTT.as_str(), value_parser = value::max_rtt)]
    pub max_rtt: Duration,
    /// Percent of the link for XCP when other traffic wants it too
    /// [default: in proportion to the flows]
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = value::percent,
        allow_hyphen_values = true
    )]
    pub xcp_share: Option<u8>,
    /// Leave the device the queue discipline that it has; else `xcp` takes
    /// its place, where the kernel can have that, and shapes to the capacity
    #[arg(long)]
    pub no_qdisc: bool,
    /// Hold the device to this rate [default: the capacity], by the queue
    /// discipline xcp or, where the kernel cannot have that, a token bucket
    #[arg(
        long,
        value_name = "RATE",
        num_args = 0..=1,
        conflicts_with = "no_qdisc"
    )]
    pub shape: Option<Option<Rate>>,
    /// Packets that may wait for --shape
    /// [default: twice what 100 ms at its rate hold, at least 100]
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

/// What the link adds to packets, as tc-cake names it.
#[derive(Args)]
pub struct RouterFraming {
    /// Bytes that the link adds to every packet, or, if negative, leaves out
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "0",
        value_parser = value::overhead,
        allow_hyphen_values = true
    )]
    pub overhead: i32,
    /// Fewest bytes of a packet on the link; shorter ones are filled up
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "0",
        value_parser = value::mpu,
        allow_hyphen_values = true
    )]
    pub mpu: u32,
    /// The link sends ATM cells: 53 bytes for 48 (ADSL)
    #[arg(long, conflicts_with = "ptm")]
    pub atm: bool,
    /// The link sends PTM: 65 bytes for 64 (VDSL2)
    #[arg(long)]
    pub ptm: bool,
}

#[derive(Subcommand)]
pub enum EdgedAction {
    /// Ask upstream edges, and answer downstream ones, until Ctrl-C
    ///
    /// One for each network namespace. Ended by Ctrl-C or a signal, it tells the
    /// other edges, and its exit status is 0.
    Run(EdgedRun),
    /// Show what the daemon knows
    Show {
        /// The daemon's --socket
        #[arg(long, value_name = "PATH", default_value = status_socket::PATH)]
        socket: PathBuf,
        /// A line for each upstream edge, 5 times a second, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Make a key in a new file; all edges need the same
    Key {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Args)]
pub struct EdgedRun {
    /// File with the key that all edges share; only its owner may read it
    #[arg(long, value_name = "FILE", required_unless_present = "config")]
    pub key: Option<PathBuf>,
    /// Ask the edge with this address; may be given several times. Others are
    /// answered with and without it
    #[arg(long, value_name = "ADDRESS", value_parser = value::router)]
    pub upstream: Vec<IpAddr>,
    /// Take key and addresses from the table edge of a configuration file
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = CONFIG_PATH,
        conflicts_with_all = ["key", "upstream"]
    )]
    pub config: Option<PathBuf>,
    /// Where `xcp edged show` asks
    #[arg(long, value_name = "PATH", default_value = status_socket::PATH)]
    pub socket: PathBuf,
}

#[derive(Subcommand)]
pub enum LabAction {
    /// Tell whether experiments can be run here, and what is missing
    Doctor,
    /// List the experiments
    List,
    /// Run an experiment and check what it must show
    Run(LabRun),
    /// Run all experiments, each variant on each kernel that it is shown on
    ///
    /// What is kept from earlier runs is not run again, so that it goes on
    /// where it was interrupted. A run that fails does not stop the others.
    All(LabAll),
    /// Run some rows of the document of all results again, to see that it is
    /// honest
    Verify(LabVerify),
    /// List the results kept from earlier runs, which are not run again
    Kept(LabKept),
    /// Plot the trace of a link, for the field rates_file of experiments
    Trace(LabTrace),
    /// Check the programs, or the queue discipline xcp, in a virtual machine
    Check(LabCheck),
    /// Count the instructions that the data path costs, in a virtual machine
    Bench(LabBench),
    /// Run a program of this computer in a virtual machine, as root
    ///
    /// Its output appears as it is written, and `xcp` exits as the program does. The
    /// machine has nothing else of this computer but what is given with --file, and
    /// tools such as ip, tc, nsenter, ethtool and sh, as far as they are installed.
    Exec(LabExec),
}

#[derive(Args)]
pub struct LabRun {
    /// An experiment from the list, or a TOML file
    #[arg(value_name = "NAME")]
    pub experiment: String,
    /// The same seed gives the same result
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = value::seed,
        allow_hyphen_values = true
    )]
    pub seed: u64,
    /// Only this variant; may be given several times
    #[arg(long = "variant", value_name = "NAME")]
    pub variants: Vec<String>,
    /// Wire format of all XCP flows: option, option-2005, header or header-2004
    #[arg(long, value_name = "FORMAT", value_parser = value::wire)]
    pub wire: Option<Wire>,
    /// Internet protocol version, 4 or 6
    #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u8).range(4..=6))]
    pub ip: Option<u8>,
    /// 6.12, 6.18, newest, 6.18-arm64, or the path of a kernel image
    #[arg(long, conflicts_with = "native")]
    pub kernel: Option<String>,
    /// In namespaces of this host, in real time; needs root
    #[arg(long)]
    pub native: bool,
    /// Run also the variants whose results are kept from an earlier run
    #[arg(long)]
    pub fresh: bool,
    /// Write what node R sends towards D to a pcap file; may be given several
    /// times
    #[arg(long = "pcap", value_name = "R-D")]
    pub points: Vec<String>,
    /// Folder for the report, the CSV and pcap files [default: report/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Args)]
pub struct LabAll {
    /// Run only the quick variants, on one kernel; check the others if their
    /// results are kept
    #[arg(long)]
    pub quick: bool,
    /// Run also what is kept from an earlier run
    #[arg(long)]
    pub fresh: bool,
    /// Write a table of all results to this document, and update the figures that
    /// documents beside it and README.md above it quote
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
}

#[derive(Args)]
pub struct LabVerify {
    /// The document
    #[arg(value_name = "FILE", default_value = "docs/results.md")]
    pub document: PathBuf,
    /// How many rows
    #[arg(long, value_name = "N", default_value = "3")]
    pub rows: usize,
    /// Text that decides which rows are drawn, such as the hash of a commit
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub draw: String,
}

#[derive(Args)]
pub struct LabKept {
    /// Remove them all
    #[arg(long)]
    pub clear: bool,
}

#[derive(Args)]
pub struct LabTrace {
    /// In mahimahi's format, also gzip: in each line, the time (ms) at which the
    /// link can send a packet of 1500 bytes
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Mean rates of so long, as the field rates_step_ms has it
    #[arg(long, value_name = "MS", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub step_ms: u32,
    /// Write the plot into this file (SVG) too
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

#[derive(Args)]
pub struct LabCheck {
    /// programs: all load, for 1 to 1024 processors, and carry traffic in every
    /// wire format; qdisc: it keeps its promises under load
    #[arg(value_name = "WHAT", value_parser = ["programs", "qdisc"])]
    pub what: String,
    /// How often the queue discipline is replaced, changed and deleted
    #[arg(long, value_name = "N", default_value = "1000")]
    pub cycles: u32,
    /// Processors of the virtual machine, for programs
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=255)
    )]
    pub processors: u32,
    /// 6.12, 6.18, newest, 6.18-arm64, or the path of a kernel image
    #[arg(long)]
    pub kernel: Option<String>,
    /// Run it even if the result of an earlier run is kept
    #[arg(long)]
    pub fresh: bool,
}

#[derive(Args)]
pub struct LabBench {
    /// What is counted [default: all of them]
    #[arg(value_name = "WHAT", value_parser = ["router", "qdisc", "hosts", "connections"])]
    pub what: Vec<String>,
    /// 6.12, 6.18, newest, 6.18-arm64, or the path of a kernel image
    #[arg(long)]
    pub kernel: Option<String>,
    /// Run it even if the result of an earlier run is kept
    #[arg(long)]
    pub fresh: bool,
}

#[derive(Args)]
pub struct LabExec {
    /// 6.12, 6.18, newest, 6.18-arm64, or the path of a kernel image
    #[arg(long)]
    pub kernel: Option<String>,
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
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_documents_commands_are_understood() {
        let documents = concat!(
            include_str!("../../../README.md"),
            include_str!("../../../docs/use.md"),
            include_str!("../../../docs/sockets.md"),
            include_str!("../../../docs/lab.md"),
            include_str!("../../../docs/costs.md"),
            include_str!("../../../docs/xcp-i.md"),
        );
        let blocks = documents.split("```").skip(1).step_by(2);
        let lines = blocks
            .filter_map(|b| b.strip_prefix("sh\n"))
            .flat_map(str::lines);
        let mut seen = 0;
        let commands = lines
            .filter_map(|line| line.split('#').next())
            .flat_map(|line| line.split([';', '|']));
        for line in commands {
            let line = line.trim();
            let line = line.strip_prefix("sudo ").unwrap_or(line);
            if !line.starts_with("xcp ") {
                continue;
            }
            seen += 1;
            if let Err(e) = Cli::try_parse_from(line.split_whitespace()) {
                panic!("{line}: {e}");
            }
        }
        assert!(seen >= 15, "{seen}");
    }

    fn long_options(command: &clap::Command) -> Vec<String> {
        let own = command.get_opts().filter_map(|o| o.get_long());
        own.map(str::to_owned)
            .chain(command.get_subcommands().flat_map(long_options))
            .collect()
    }

    /// An option is a word in backquotes that begins with `--`.
    #[test]
    fn conformance_names_only_options_that_exist() {
        let options = long_options(&Cli::command());
        let document = include_str!("../../../docs/conformance.md");
        let quoted = document.split('`').skip(1).step_by(2);
        let named: Vec<_> = quoted
            .flat_map(str::split_whitespace)
            .filter_map(|word| word.strip_prefix("--"))
            .collect();
        for name in &named {
            assert!(options.iter().any(|o| o == name), "--{name}");
        }
        assert!(named.len() >= 10, "{named:?}");
    }
}

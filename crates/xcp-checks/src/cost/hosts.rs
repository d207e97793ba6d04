// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Instructions per MB that one connection sends and receives through a
//! router, with the segmentation offload that its wire format permits. Only the
//! processor limits the rate. The result is the sum of all three nodes. It includes the
//! sender's copy into the kernel, several bytes per instruction; the receiver discards
//! the data that it reads.

use std::time::{Duration, Instant};

use xcp_datapath::router::{self, Options};
use xcp_datapath::Wire;

use super::figure::Cost;
use super::spare;
use crate::{Error, Result};
use xcp_player::experiment::{Experiment, Variant};
use xcp_player::play::{serve, HostXcpGuard};
use xcp_player::topology::{tool, Topology};
use xcp_player::traffic::Running;

/// Time until each congestion control has reached its rate.
const WARM_UP: Duration = Duration::from_millis(600);
const COUNTED: Duration = Duration::from_millis(400);
/// Higher than the machine can reach.
const CAPACITY_BYTES_PER_S: u64 = 12_500_000_000;
const MB: f64 = 1e6;

const NETWORK: &str = r#"
name = "costs"
source = ""
about = ""
duration_s = 1
warmup_s = 0
bottleneck = ["r", "d"]
buffer_bytes = 4000000
link = [{ between = ["s", "r"] }, { between = ["r", "d"] }]
flow = [{ name = "1", from = "s", to = "d" }]
variant = [{ name = "cost", control = "cubic" }]
"#;

/// A variant that is compared with the others.
pub(super) struct Kind {
    pub name: &'static str,
    pub control: &'static str,
    wire: Wire,
    /// Most segments in a GSO packet of the sender; 0 for the device's default.
    gso_max_segs: u32,
}

impl Kind {
    pub const fn plain(name: &'static str, control: &'static str, gso_max_segs: u32) -> Self {
        Self {
            name,
            control,
            wire: Wire::Option,
            gso_max_segs,
        }
    }

    pub const fn xcp(name: &'static str, wire: Wire) -> Self {
        Self {
            name,
            control: "xcp",
            wire,
            gso_max_segs: 0,
        }
    }

    fn variant(&self, network: &Experiment) -> Variant {
        Variant {
            control: self.control.into(),
            wire: self.wire,
            ..network.variants[0].clone()
        }
    }
}

/// The variants. Headers between IP and TCP do not permit segmentation offload, so CUBIC
/// without offload is included for comparison.
const KINDS: [Kind; 7] = [
    Kind::plain("cubic", "cubic", 0),
    Kind::plain("bbr", "bbr", 0),
    Kind::xcp("option", Wire::Option),
    Kind::xcp("option-2005", Wire::Option2005),
    Kind::plain("cubic, no offload", "cubic", 1),
    Kind::xcp("header", Wire::Header),
    Kind::xcp("header-2004", Wire::Header2004),
];

pub fn count(progress: &mut dyn FnMut(f64)) -> Result<Vec<Cost>> {
    of_each(&KINDS, of, progress)
}

/// Counts each variant; the first one is the baseline.
pub(super) fn of_each(
    kinds: &[Kind],
    of: fn(&Kind) -> Result<f64>,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<Cost>> {
    let mut costs: Vec<Cost> = Vec::new();
    for (i, kind) in kinds.iter().enumerate() {
        let instructions = of(kind)?;
        let first = costs.first().map_or(instructions, |c| c.instructions);
        costs.push(Cost::new(kind.name, instructions, first));
        progress((i + 1) as f64 / kinds.len() as f64);
    }
    Ok(costs)
}

fn of(kind: &Kind) -> Result<f64> {
    with_routers(kind, |stage| {
        if kind.gso_max_segs > 0 {
            let batch = format!("link set dev s-r gso_max_segs {}\n", kind.gso_max_segs);
            stage.within("s", || tool("ip", &["-batch", "-"], &batch))??;
        }
        spare::count_idle_during(|spare| instructions_per_mb(kind, stage, spare))
    })
}

pub(super) fn network() -> Result<Experiment> {
    toml::from_str(NETWORK)
        .map_err(|e| Error::new("the benchmark's network", e.to_string(), "report this"))
}

/// Runs `work` in the network, with routers in both directions and the host programs on.
pub(super) fn with_routers<T>(kind: &Kind, work: impl FnOnce(&Topology) -> Result<T>) -> Result<T> {
    let network = network()?;
    let variant = kind.variant(&network);
    let _host = HostXcpGuard::new(&network, &variant)?;
    let stage = Topology::build(&network, &variant, "")?;
    for device in ["r-d", "r-s"] {
        let options = Options {
            capacity_bytes_per_s: CAPACITY_BYTES_PER_S,
            ..Default::default()
        };
        stage.within("r", || router::add(device, options))??;
    }
    let result = work(&stage);
    for device in ["r-d", "r-s"] {
        stage.within("r", || router::del(device))??;
    }
    result
}

fn instructions_per_mb(kind: &Kind, stage: &Topology, spare: &spare::IdleCounter) -> Result<f64> {
    let network = network()?;
    let variant = kind.variant(&network);
    let flow = Running::start(&network, stage, 0, &variant, Duration::ZERO)?;
    let mut flows = [Some(flow)];
    serve_for(&mut flows, WARM_UP)?;
    let (mark, before) = (spare.mark(), received(&mut flows));
    serve_for(&mut flows, COUNTED)?;
    let bytes = received(&mut flows) - before;
    let used = spare.used_since(mark);
    let control = flows[0].as_mut().map(Running::control).unwrap_or_default();
    if control != kind.control || bytes == 0 {
        return Err(Error::new(
            kind.name,
            format!("{bytes} bytes arrived with the congestion control {control}"),
            "report this",
        ));
    }
    Ok(used / (bytes as f64 / MB))
}

fn serve_for(flows: &mut [Option<Running>], time: Duration) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < time {
        serve(flows, begin, time)?;
    }
    Ok(())
}

fn received(flows: &mut [Option<Running>]) -> u64 {
    let flow = flows[0].as_mut();
    flow.map_or(0, |f| f.sample().received_bytes)
}

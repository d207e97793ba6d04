// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The experiments that are built in, by their names.

use std::fs;
use std::path::Path;

use crate::experiment::Experiment;
use crate::link_trace;
use crate::{Error, Result};

/// The files in `experiments/`.
macro_rules! house {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../experiments/", $name, ".toml"))),)*]
    };
}

const HOUSE: &[(&str, &str)] = house![
    "thesis-window",
    "thesis-queue",
    "thesis-capacity",
    "thesis-flows",
    "thesis-halfduplex",
    "thesis-bursty",
    "zh-fractions",
    "zh-validation",
    "zh-formats",
    "zh-staggered",
    "zh-rtts",
    "zh-overhead",
    "zh-buffers",
    "zh-contention",
    "zh-loss",
    "zh-hybrid-after",
    "zh-hybrid-before",
    "isi-startup",
    "isi-four-flows",
    "isi-rtt",
    "isi-overestimate",
    "xcpi-motivation",
    "xcpi-peering",
    "xcpi-merge",
    "xcpi-compete",
    "xcpi-fork",
    "xcpi-shared",
    "xcpi-tcp",
    "xcpi-accuracy",
    "xcpi-asymmetric",
    "xcpi-asymmetric-sender",
    "xcpi-asymmetric-receiver",
    "xcpi-hybrid-after",
    "xcpi-hybrid-before",
    "xcpi-shallow",
    "xcpi-corruption",
    "xcpi-restart",
    "mixed-formats",
    "sharing",
    "hidden-hop",
    "policer",
    "corruption",
    "idle-restart",
    "router-appears",
    "router-vanishes",
    "rtt-jumps",
    "mtu-jumps",
    "outage",
    "newcomers",
    "parking-lot",
    "path-buffers",
    "two-way",
    "small-buffer",
    "smaller-buffer",
    "small-rtt",
    "small-rtt-unshaped",
    "many-flows",
    "long-rtt",
    "short-flows",
    "varying",
    "varying-trace",
    "varying-jumps",
    "stops",
    "stop-lengths",
    "leo",
    "mmwave",
    "lte",
    "tunnel",
    "umts",
    "modem",
    "brief",
    "brief-halfduplex",
    "brief-hidden-hop",
    "brief-varying",
];

/// The files in `traces/`, as experiments name them.
macro_rules! traces {
    ($($name:literal),* $(,)?) => {
        &[$((
            concat!("../traces/", $name),
            include_bytes!(concat!("../../../traces/", $name)),
        ),)*]
    };
}

const TRACES: &[(&str, &[u8])] = traces![
    "leo.mahi.gz",
    "leo.delay-ms-per-100ms.gz",
    "mmwave.mahi.gz",
    "lte.mahi.gz",
    "tunnel.mahi.gz",
    "umts.mahi.gz",
];

fn parse(name: &str, text: &str) -> Result<Experiment> {
    Experiment::parse_with(
        name,
        text,
        &|file| match TRACES.iter().find(|(n, _)| *n == file) {
            Some((_, bytes)) => link_trace::text(file, bytes),
            None => Err(Error::new(
                file,
                "is not built in",
                "see crates/xcp-lab/src/house.rs",
            )),
        },
    )
}

/// The experiment with this name, or in this file.
pub fn find(name: &str) -> Result<Experiment> {
    if let Some((_, text)) = HOUSE.iter().find(|(n, _)| *n == name) {
        return parse(name, text);
    }
    if !name.ends_with(".toml") {
        return Err(Error::new(
            name,
            "no such experiment",
            "list them with `xcp lab list`, or name a .toml file",
        ));
    }
    let text = fs::read_to_string(Path::new(name)).map_err(|e| Error::io(name, &e))?;
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    Experiment::parse_with(name, &text, &|file| link_trace::read(&folder.join(file)))
}

/// All of them, in the papers' order.
pub fn all() -> impl Iterator<Item = Result<Experiment>> {
    HOUSE.iter().map(|(name, text)| parse(name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_of_the_house_once() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let files = fs::read_dir(folder).expect("the experiments").flatten();
        let stem = |path: &Path| path.file_stem().map(|s| s.to_string_lossy().into_owned());
        let mut files: Vec<String> = files.filter_map(|f| stem(&f.path())).collect();
        let mut names: Vec<&str> = HOUSE.iter().map(|(name, _)| *name).collect();
        files.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, files);
    }

    #[test]
    fn those_of_the_house_are_well_and_have_their_names() {
        for (name, text) in HOUSE {
            let experiment = parse(name, text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(experiment.name, *name);
        }
        let order = |paper: &str| HOUSE.iter().position(|(name, _)| name.starts_with(paper));
        assert!(order("thesis").is_some() && order("thesis") < order("zh"));
        assert!(order("zh") < order("isi") && order("isi") < order("sharing"));
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The paths of packets through an experiment's links, and the fair rate of
//! each flow.

use std::collections::{BTreeMap, VecDeque};

use crate::experiment::{Experiment, Flow};

/// A link on a path: its index, and the end (0 or 1) at which the packets
/// arrive.
pub type Step = (usize, usize);

/// The shortest path from a node to every other node.
pub fn shortest_paths<'a>(
    experiment: &'a Experiment,
    node: &'a str,
) -> BTreeMap<&'a str, Vec<Step>> {
    let mut found: BTreeMap<&str, Vec<Step>> = BTreeMap::new();
    let mut queue = VecDeque::from([(node, Vec::new())]);
    while let Some((at, route)) = queue.pop_front() {
        for (i, link) in experiment.links.iter().enumerate() {
            let Some(side) = link.between.iter().position(|n| n == at) else {
                continue;
            };
            let peer = link.between[1 - side].as_str();
            if peer == node || found.contains_key(peer) {
                continue;
            }
            let route = [&route[..], &[(i, 1 - side)]].concat();
            found.insert(peer, route.clone());
            queue.push_back((peer, route));
        }
    }
    found
}

fn route(experiment: &Experiment, flow: &Flow) -> Vec<Step> {
    let mut all = shortest_paths(experiment, &flow.from);
    all.remove(flow.to.as_str()).unwrap_or_default()
}

/// The minimum RTT of a flow, without queueing, s.
pub fn rtt_s(experiment: &Experiment, flow: &Flow) -> f64 {
    let delays_ms = route(experiment, flow)
        .into_iter()
        .map(|(link, _)| experiment.links[link].least_delay_ms());
    2.0 * delays_ms.sum::<f64>() / 1e3
}

/// The max-min fair rates of the flows between two times, bits per second: no
/// flow can get more without taking it from a flow that has no more. A UDP flow
/// has its configured rate.
pub fn max_min_bps(experiment: &Experiment, from_s: f64, to_s: f64) -> Vec<f64> {
    let flows = &experiment.flows;
    let shortest_paths: Vec<Vec<Step>> = flows.iter().map(|f| route(experiment, f)).collect();
    let mut rates: Vec<Option<f64>> = flows.iter().map(|f| f.udp_mbit.map(|m| m * 1e6)).collect();
    while rates.contains(&None) {
        // the rate of each flow without a rate yet, if this link were the
        // narrowest
        let share = |step: Step| {
            let link = &experiment.links[step.0];
            link.rate_bps(from_s)?;
            let on_it = || (0..flows.len()).filter(|f| shortest_paths[*f].contains(&step));
            let taken: f64 = on_it().filter_map(|f| rates[f]).sum();
            let open = on_it().filter(|f| rates[*f].is_none()).count();
            let offered_bps = link.offered_bits(from_s, to_s) / (to_s - from_s);
            (open > 0).then(|| (step, (offered_bps - taken).max(0.0) / open as f64))
        };
        let steps = (0..experiment.links.len()).flat_map(|link| [(link, 0), (link, 1)]);
        let shares = steps.filter_map(share);
        let Some((narrowest, bps)) = shares.min_by(|a, b| a.1.total_cmp(&b.1)) else {
            break; // links without a rate
        };
        for (rate, route) in rates.iter_mut().zip(&shortest_paths) {
            if rate.is_none() && route.contains(&narrowest) {
                *rate = Some(bps);
            }
        }
    }
    rates.into_iter().map(|r| r.unwrap_or(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lot() -> Experiment {
        let link = |a: u32, rate: u32| {
            format!("[[link]]\nbetween = [\"r{a}\", \"r{}\"]\nrate_mbit = {rate}\nqueue_packets = 10\n\n", a + 1)
        };
        let flow = |name: &str, from: &str, to: &str| {
            format!("[[flow]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\n\n")
        };
        let mut text =
            "name = \"x\"\nsource = \"x\"\nabout = \"x\"\nduration_s = 10\nwarmup_s = 2\n\
                        bottleneck = [\"r2\", \"r3\"]\n\n\
                        [[link]]\nbetween = [\"s\", \"r1\"]\ndelay_ms = 30\nrate_mbit = 100\n\n"
                .to_owned();
        text += &(link(1, 20) + &link(2, 10) + &link(3, 20));
        text += &(flow("long", "s", "r4") + &flow("1", "r1", "r2") + &flow("2", "r2", "r3"));
        text += &(flow("back", "r3", "r2") + &flow("3", "r3", "r4"));
        text += &(flow("udp", "r3", "r4") + "udp_mbit = 4\n\n");
        text += "[[variant]]\nname = \"v\"\ncontrol = \"xcp\"\nqueue = \"xcp\"\n";
        Experiment::parse("x.toml", &text).expect("valid")
    }

    #[test]
    fn narrowest_link_is_divided_first() {
        let rates = max_min_bps(&lot(), 2.0, 10.0);
        // the other flows get what the long one does not use; directions are
        // independent
        assert_eq!(rates, [5e6, 15e6, 5e6, 10e6, 11e6, 4e6]);
    }

    #[test]
    fn rtt_is_twice_the_delay_of_the_path() {
        let lot = lot();
        assert_eq!(rtt_s(&lot, &lot.flows[0]), 0.06);
        assert_eq!(rtt_s(&lot, &lot.flows[1]), 0.0);
    }
}

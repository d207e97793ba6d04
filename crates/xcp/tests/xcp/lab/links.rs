// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Links of the lab with framing, a variable rate or half duplex, and the traffic
//! over them. Most tests use UDP, whose results can be calculated.

use crate::place::{number, Lab, SHORT};
use serde_json::Value;

/// UDP of 8 Mb/s in each direction: 1442 bytes for 1400 bytes of payload.
const BOTH_WAYS: &str = r#"
name = "links"
source = "a test"
about = "UDP"
duration_s = 6
warmup_s = 2
bottleneck = ["r", "d"]

[[link]]
between = ["r", "d"]
rate_mbit = 10
queue_packets = 100

[[flow]]
name = "forward"
from = "r"
to = "d"
udp_mbit = 8

[[flow]]
name = "reverse"
from = "d"
to = "r"
udp_mbit = 8

[[variant]]
name = "v"
control = "cubic"
"#;

fn close(value: f64, wanted: f64, part: f64) -> bool {
    (value - wanted).abs() <= wanted * part
}

/// Runs an experiment and returns the result of its first variant.
fn play(lab: &Lab, text: &str, kernel: &str) -> Value {
    let ran = lab.run(&[&lab.file("x.toml", text), "--json", "--kernel", kernel]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.json()["variants"][0].clone()
}

fn goodputs_mbit(variant: &Value) -> Vec<f64> {
    let flows = variant["flows"].as_array().unwrap().iter();
    flows.map(|f| number(&f["goodput_bps"]) / 1e6).collect()
}

#[test]
fn both_directions_of_a_half_duplex_link_share_its_capacity() {
    let lab = Lab::new();
    let full = play(&lab, BOTH_WAYS, "6.18");
    for goodput in goodputs_mbit(&full) {
        assert!(close(goodput, 8.0, 0.002), "{full}");
    }
    assert!(
        close(number(&full["link_utilisation"]), 8.24 / 10.0, 0.002),
        "{full}"
    );
    assert_eq!(full["drops"], 0, "{full}");

    let half = BOTH_WAYS.replace("rate_mbit = 10", "rate_mbit = 10\nhalf_duplex = true");
    // also with the queue discipline `xcp`, if the kernel supports it
    let own = half.replace(
        "control = \"cubic\"",
        "control = \"cubic\"\nqueue = \"xcp\"",
    );
    // it has two queues: the other one may hold an ARP packet
    for (text, kernel, queue_max) in [
        (&half, "6.12", 100.0),
        (&half, "6.18", 100.0),
        (&own, "6.18", 101.0),
    ] {
        let half = play(&lab, text, kernel);
        // the sum of both directions is the rate of one
        let payload: f64 = goodputs_mbit(&half).iter().sum();
        assert!(close(payload, 10.0 * 1400.0 / 1442.0, 0.005), "{half}");
        assert!(
            close(number(&half["link_utilisation"]), 1.0, 0.005),
            "{half}"
        );
        assert!(number(&half["drops"]) > 100.0, "{half}");
        let queue = &half["queue_packets"];
        assert!(number(&queue["mean"]) > 90.0, "{half}");
        assert!(number(&queue["max"]) <= queue_max, "{half}");
    }
}

#[test]
fn framing_bytes_use_link_capacity() {
    let lab = Lab::new();
    let text = BOTH_WAYS
        .replace("rate_mbit = 10", "rate_mbit = 10\nframing_bytes = 58")
        .replace("udp_mbit = 8", "udp_mbit = 12");
    for half_duplex in [false, true] {
        let text = if half_duplex {
            text.replace("framing_bytes", "half_duplex = true\nframing_bytes")
        } else {
            text.clone()
        };
        let variant = play(&lab, &text, "6.18");
        // 1500 bytes on the link for 1400 bytes of payload
        let payload: f64 = goodputs_mbit(&variant).iter().sum();
        let ways = if half_duplex { 1.0 } else { 2.0 };
        assert!(
            close(payload, ways * 10.0 * 1400.0 / 1500.0, 0.005),
            "{variant}"
        );
        assert!(
            close(number(&variant["link_utilisation"]), 1.0, 0.005),
            "{variant}"
        );
    }
}

#[test]
fn a_link_with_a_variable_rate_is_fully_used() {
    let lab = Lab::new();
    let steps = BOTH_WAYS
        .replace("rate_mbit = 10", "rates = [[0, 10], [3, 2]]\nrepeat_s = 4")
        .replace("udp_mbit = 8", "udp_mbit = 12");
    let variant = play(&lab, &steps, "6.18");
    // after the warm-up: 10, 2, 10 and 10 Mb/s, for 1 s each
    let payload = 8.0 * 1400.0 / 1442.0;
    for goodput in goodputs_mbit(&variant) {
        assert!(close(goodput, payload, 0.01), "{variant}");
    }
    assert!(
        close(number(&variant["link_utilisation"]), 1.0, 0.01),
        "{variant}"
    );
    // the queue is always full: 100 packets at 10 Mb/s and at 2 Mb/s
    let (least_ms, most_ms) = (100.0 * 1442.0 * 8.0 / 1e4, 100.0 * 1442.0 * 8.0 / 2e3);
    let delay = &variant["queue_delay_ms"];
    assert!(close(number(&delay["max"]), most_ms, 0.02), "{variant}");
    assert!(number(&delay["mean"]) > least_ms * 0.98, "{variant}");
    assert!(
        number(&variant["queue_packets"]["max"]) <= 100.0,
        "{variant}"
    );
    // 2 of 32 Mb are sent at the low rate: 1/16 of the packets have the long delay
    assert!(number(&delay["p95"]) > 2.0 * least_ms, "{variant}");
    assert!(number(&delay["mean"]) < 2.0 * least_ms, "{variant}");
}

#[test]
fn xcp_cubic_and_udp_flows_share_a_bottleneck_in_both_directions() {
    let lab = Lab::new();
    let text = SHORT
        .replace(
            "[[variant]]",
            "control = \"cubic\"\n\n[[flow]]\nname = \"udp\"\nfrom = \"s\"\nto = \"d\"\nudp_mbit = 1\n\n\
             [[flow]]\nname = \"reverse\"\nfrom = \"d\"\nto = \"s\"\n\n[[variant]]",
        )
        + "[[check]]\nvariant = \"xcp\"\nmetric = \"share\"\nkind = \"udp\"\nmin = 0.01\n";
    let variant = play(&lab, &text, "6.12");
    let flows = variant["flows"].as_array().unwrap();
    let controls: Vec<&Value> = flows.iter().map(|f| &f["control"]).collect();
    assert_eq!(controls, ["xcp", "cubic", "udp", "xcp"], "{variant}");
    let kinds = variant["kinds"].as_array().unwrap();
    let names: Vec<&Value> = kinds.iter().map(|k| &k["kind"]).collect();
    assert_eq!(names, ["cubic", "udp", "xcp"], "{variant}");
    let shares: f64 = kinds.iter().map(|k| number(&k["share"])).sum();
    assert!(close(shares, 1.0, 0.001), "{variant}");
    assert!(number(&kinds[1]["goodput_bps"]) > 0.5e6, "{variant}");
    // all of them share one queue
    assert_eq!(variant["xcp_queue_packets"], variant["queue_packets"]);
    // the flow in the other direction has the link to itself
    let back = goodputs_mbit(&variant)[3];
    assert!(back > 7.0, "{variant}");
}

#[test]
fn router_options_of_a_variant_take_effect() {
    let lab = Lab::new();
    let told = |more: &str| {
        let text = SHORT.replace(
            "queue = \"xcp\"",
            &format!("queue = \"xcp_fifo\"\nmeasure = false\n{more}"),
        );
        let variant = play(&lab, &text, "6.18");
        let trace = lab.report("xcp-router.csv");
        let mut rows = trace.lines().map(|row| row.split(',').collect::<Vec<_>>());
        let head = rows.next().unwrap();
        let capacity = head
            .iter()
            .position(|name| *name == "capacity_bps")
            .unwrap();
        let rows: Vec<_> = rows.collect();
        // a control interval is one RTT, 100 ms or more
        assert!((50..=100).contains(&rows.len()), "{trace}");
        let capacities = rows.iter().map(|row| row[capacity].to_owned());
        let times = rows.iter().map(|row| row[0].parse::<f64>().unwrap());
        assert!(times.is_sorted() && (0.0..1.0).contains(&rows[0][0].parse().unwrap()));
        let utilisation = number(&variant["link_utilisation"]);
        (utilisation, capacities.collect::<Vec<_>>())
    };
    let (utilisation, capacities) = told("capacity_mbit = 8");
    assert!(close(utilisation, 0.8, 0.01), "{utilisation}");
    assert!(capacities.iter().all(|c| c == "8000000"), "{capacities:?}");
    // 1514 bytes count as 1893: 0.8 of the link again
    let (utilisation, capacities) = told("overhead_bytes = 379");
    assert!(close(utilisation, 0.8, 0.01), "{utilisation}");
    assert!(capacities.iter().all(|c| c == "10000000"), "{capacities:?}");
}

#[test]
fn xcp_packets_have_their_own_queue_if_the_kernel_supports_it() {
    let lab = Lab::new();
    let text = SHORT.replace("[[variant]]", "control = \"cubic\"\n\n[[variant]]");
    let variant = play(&lab, &text, "6.18");
    let (own, all) = (&variant["xcp_queue_packets"], &variant["queue_packets"]);
    assert!(number(&own["max"]) < number(&all["max"]), "{variant}");
    assert!(number(&own["mean"]) < number(&all["mean"]), "{variant}");
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Routers on links that are not what they were told, or not theirs alone: the
//! experiments, with the queue discipline `xcp` (6.18) and without (6.12).

use crate::place::{in_parallel, number, Lab};

#[test]
fn what_the_papers_found_is_cured_with_and_without_the_queue_discipline() {
    let runs = [
        ("thesis-capacity", &["xcp-1250", "xcp-measured"], "6.12"),
        ("thesis-capacity", &["xcp-1250", "xcp-measured"], "6.18"),
        (
            "thesis-halfduplex",
            &["xcp-four", "xcp-four-unmeasured"],
            "6.12",
        ),
        (
            "thesis-halfduplex",
            &["xcp-four", "xcp-four-unmeasured"],
            "6.18",
        ),
    ];
    in_parallel(runs.to_vec(), |(name, variants, kernel)| {
        let lab = Lab::new();
        let mut args = vec![name, "--json", "--kernel", kernel];
        for variant in variants {
            args.extend(["--variant", variant]);
        }
        let ran = lab.run(&args);
        assert_eq!(ran.code, Some(0), "{name}, {kernel}: {ran:?}");
    });
}

#[test]
fn xcp_and_cubic_get_equal_parts_and_xcp_waits_for_none() {
    let ran = Lab::new().run(&[
        "sharing",
        "--variant",
        "two-two",
        "--json",
        "--kernel",
        "6.18",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let both = &ran.json()["variants"][0];
    assert!(number(&both["queue_packets"]["mean"]) > 100.0, "{both}");
    assert!(number(&both["xcp_queue_packets"]["p99"]) < 20.0, "{both}");
}

/// What the experiment asks for holds closely; another compiler moves it. This
/// is what no compiler may move.
#[test]
fn a_link_that_varies_is_followed_without_a_number() {
    in_parallel(vec!["6.12", "6.18"], |kernel| {
        let args = ["varying", "--variant", "xcp", "--json", "--kernel", kernel];
        let ran = Lab::new().run(&args).json();
        let xcp = &ran["variants"][0];
        assert!(number(&xcp["link_utilisation"]) >= 0.87, "{kernel}: {xcp}");
        assert!(
            number(&xcp["queue_delay_ms"]["p95"]) <= 130.0,
            "{kernel}: {xcp}"
        );
        assert_eq!(xcp["drops"], 0, "{kernel}: {xcp}");
    });
}

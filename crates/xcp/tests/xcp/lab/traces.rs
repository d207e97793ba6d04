// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Link traces: `xcp lab trace`, and experiments that use trace files.

use std::path::Path;

use crate::command::xcp;
use crate::place::{Lab, SHORT};

#[test]
fn a_link_trace_is_plotted() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/tunnel.mahi.gz");
    let file = file.display();
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("plot.svg");
    let text = xcp(&format!("lab trace {file} --svg {}", svg.display())).ok();
    assert!(text
        .out
        .contains("stops (below 2 % of the mean):\n  20.0 to 29.9 s\n"));
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    let json = xcp(&format!("lab trace {file} --step-ms 1000 --json"))
        .ok()
        .json();
    assert_eq!(json["duration_s"], 60.0);
    assert_eq!(json["step_ms"], 1000.0);
    assert_eq!(xcp("lab trace /none").code, Some(1));
}

#[test]
fn errors_in_link_trace_files_name_the_line() {
    let lab = Lab::new();
    let with = |link: &str| {
        let text = SHORT.replace("rate_mbit = 10\n", &format!("{link}\n"));
        assert_ne!(text, SHORT);
        lab.file("x.toml", &text)
    };
    lab.file("bad.mahi", "1\n2\nthree\n");
    lab.file("back.mahi", "10\n9\n");
    let none = format!("xcp: {}: ", lab.path("none.mahi").display());
    for (link, start) in [
        (
            "rates_file = \"bad.mahi\"",
            "xcp: bad.mahi:3: \"three\" is not a time in ms\n",
        ),
        (
            "rates_file = \"back.mahi\"",
            "xcp: back.mahi:2: the time is before",
        ),
        ("rates_file = \"none.mahi\"", &none),
        (
            "rates_file = \"bad.mahi\"\nrates_step_ms = 0",
            "xcp: rates_step_ms: must be",
        ),
    ] {
        let ran = lab.run(&[&with(link)]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.starts_with(start), "{ran:?}");
    }
}

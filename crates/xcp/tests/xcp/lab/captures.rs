// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Captures of every wire format, checked with tshark.

use std::fs;

use crate::place::{count_data_packets, has_tshark, Lab, SHORT};

/// Flows of all wire formats share the router; captures before and behind it.
#[test]
fn captures_of_every_wire_format_have_no_malformed_packets() {
    if !has_tshark("captures of every wire format") {
        return;
    }
    let (head, tail) = SHORT.split_once("[[flow]]").unwrap();
    let (_, variant) = tail.split_once("[[variant]]").unwrap();
    let mut text = head.replace("10\nwarmup_s = 4", "4\nwarmup_s = 1");
    for wire in ["option", "option-2005", "header", "header-2004"] {
        let from = wire
            .replace("option", "o")
            .replace("header", "h")
            .replace('-', "");
        text += &format!(
            "[[link]]\nbetween = [\"{from}\", \"r\"]\nrate_mbit = 100\ndelay_ms = 50\n\n\
             [[flow]]\nname = \"{wire}\"\nfrom = \"{from}\"\nto = \"d\"\nwire = \"{wire}\"\n\n"
        );
    }
    text += "[[variant]]";
    text += variant;
    for ip in [4, 6] {
        let lab = Lab::new();
        let name = lab.file("x.toml", &format!("ip = {ip}\n{text}"));
        let points = ["o-r", "o2005-r", "h-r", "h2004-r", "r-d", "d-r"];
        let mut args = vec![name.as_str(), "--json"];
        for point in points {
            args.extend(["--pcap", point]);
        }
        let ran = lab.run(&args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for point in points {
            let data = count_data_packets(&lab, &format!("xcp-{point}.pcap"));
            // towards the senders there are only ACKs, and SYN-ACKs with a request
            let enough = if point == "d-r" {
                data <= 4
            } else {
                data > 200
            };
            assert!(enough, "{point}: {data}");
        }
        assert!(fs::read_dir(lab.path("out")).unwrap().count() >= points.len());
    }
}

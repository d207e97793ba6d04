// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Every wire format in the virtual-time machine: zh-validation holds, formats
//! share a bottleneck, captures are clean, and fractions matter.

use std::fs;

use crate::place::{data_packets_of, in_parallel, number, tshark_is_here, Lab, SHORT};

#[test]
fn zh_validation_holds_in_every_format() {
    let mut all = Vec::new();
    for wire in ["option", "option-2005", "header", "header-2004"] {
        for ip in ["4", "6"] {
            // experiments.rs has the other one, and twice
            if (wire, ip) != ("option", "4") {
                all.push((wire, ip));
            }
        }
    }
    in_parallel(all, |(wire, ip)| {
        let lab = Lab::new();
        let args = ["zh-validation", "--variant", "xcp", "--json"];
        let how = ["--wire", wire, "--ip", ip];
        let ran = lab.run(&[&args[..], &how].concat());
        assert_eq!(ran.code, Some(0), "{wire}, IPv{ip}: {ran:?}");
        let result = ran.json();
        assert_eq!(
            (&result["wire"], &result["ok"]),
            (&wire.into(), &true.into())
        );
        let xcp = &result["variants"][0];
        assert_eq!(xcp["checks"].as_array().unwrap().len(), 4);
        for flow in xcp["flows"].as_array().unwrap() {
            assert_eq!(flow["control"], "xcp", "{wire}, IPv{ip}: {xcp}");
        }
    });
}

#[test]
fn formats_share_a_bottleneck_evenly() {
    let lab = Lab::new();
    let ran = lab.run(&["mixed-formats", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let xcp = &ran.json()["variants"][0];
    assert!(number(&xcp["jain"]) >= 0.98, "{xcp}");
    for flow in xcp["flows"].as_array().unwrap() {
        assert_eq!(flow["control"], "xcp", "{xcp}");
    }
}

/// Zhang & Henderson's figure 3, where each packet's share is smallest.
#[test]
fn whole_packets_lose_feedback() {
    let lab = Lab::new();
    let mut args = vec!["zh-fractions", "--json"];
    for variant in ["fractions-8", "integers-8"] {
        args.extend(["--variant", variant]);
    }
    let ran = lab.run(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for variant in ran.json()["variants"].as_array().unwrap() {
        let utilisation = number(&variant["link_utilisation"]);
        let whole = variant["name"].as_str().unwrap().starts_with("integers");
        assert!(
            if whole {
                utilisation < 0.7
            } else {
                utilisation >= 0.98
            },
            "{variant}"
        );
        assert_eq!(variant["flows"].as_array().unwrap().len(), 8);
    }
}

/// All formats in one capture, before and behind the router.
#[test]
fn captures_of_every_format_are_clean() {
    if !tshark_is_here("captures of every format") {
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
            let data = data_packets_of(&lab, &format!("xcp-{point}.pcap"));
            // back come ACKs, and SYN-ACKs that ask for the way back
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

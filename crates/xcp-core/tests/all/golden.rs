// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! core/ parses the golden packets of testdata/wire to the values in their JSON files, builds
//! the same bytes again, and never reads beyond the end of a packet.

#![allow(non_snake_case)] // units in names

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use xcp_core::wire::header::{self, Version};
use xcp_core::*;

const ETHERNET: usize = 14;

/// Returns the bytes of each golden packet with its JSON file, the twin.
fn golden() -> Vec<(Vec<u8>, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the golden packets")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    assert!(files.len() > 100);
    let read = |path: &Path| fs::read_to_string(path).expect("readable");
    files
        .iter()
        .map(|json| {
            let twin = serde_json::from_str(&read(json)).expect("JSON");
            let hex = read(&json.with_extension("hex"));
            let lines = hex.lines().map(|l| l.split('#').next().unwrap_or_default());
            let bytes = lines
                .flat_map(str::split_whitespace)
                .map(|b| u8::from_str_radix(b, 16).expect("hex"))
                .collect();
            (bytes, twin)
        })
        .collect()
}

fn at(twin: &Value, field: &str) -> Option<usize> {
    twin[field].as_u64().map(|n| n as usize)
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value}"))
}

/// Returns the forward fields of a twin; fields that its format lacks are 0.
fn forward(twin: &Value) -> xcp_forward {
    let f = &twin["forward"];
    let or_0 = |field: &str| f[field].as_i64().unwrap_or(0);
    xcp_forward {
        rtt: or_0("rtt_ticks") as u32,
        x: or_0("x_ticks") as u32,
        delta: or_0("delta_Bps") as i32,
        last_xcp_router: or_0("last_xcp_router") as u32,
        xcp_ttl: or_0("xcp_ttl") as u8,
        xcp_hops: or_0("xcp_hops") as u8,
    }
}

fn check_option(option: &[u8], kind: xcp_kind, twin: &Value) {
    let back = &twin["return"];
    let (version, feedback) = match back["feedback_total"].as_i64() {
        Some(total) => (2, total),
        None => (1, back["feedback_Bps"].as_i64().unwrap_or(0)),
    };
    let returned = || xcp_return {
        feedback: feedback as i32,
        version,
        xcp_hops: number(&twin["return"]["xcp_hops"]) as u8,
        other_hops: number(&twin["return"]["other_hops"]) as u8,
    };
    let built = match kind {
        XCP_HANDSHAKE => wire::handshake().to_vec(),
        XCP_RETURN => {
            assert_eq!(wire::parse_return(option, kind), Some(returned()));
            wire::build_return(&returned()).to_vec()
        }
        XCP_FORWARD => {
            assert_eq!(wire::parse_forward(option), Some(forward(twin)));
            wire::build_forward(&forward(twin)).to_vec()
        }
        XCP_BOTH => {
            assert_eq!(wire::parse_forward(option), Some(forward(twin)));
            assert_eq!(wire::parse_return(option, kind), Some(returned()));
            wire::build_both(&forward(twin), &returned()).to_vec()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(option[..built.len()], built, "the same bytes");
}

fn check_option_2005(option: &[u8], twin: &Value) {
    let told = &twin["option_2005"]["forward"];
    let word = |field: &str| number(&told[field]) as u16;
    let h = xcp_2005 {
        feedback: word("feedback_code"),
        rtt_ms: word("rtt_ms"),
        cwnd: word("cwnd"),
    };
    let raw = [
        u16::from_be_bytes([option[2], option[3]]),
        u16::from_be_bytes([option[4], option[5]]),
        u16::from_be_bytes([option[6], option[7]]),
    ];
    assert_eq!(raw, [h.feedback, h.rtt_ms, h.cwnd]);
    let value = xcp_2005_value(h.feedback) as f64 / 4096.0;
    assert_eq!(Some(value), told["feedback_packets"].as_f64());
    let size_B = at(twin, "length").expect("a length") as u32;
    assert_eq!(xcp_2005_forward(&h, size_B), forward(twin));
}

fn check_header(bytes: &[u8], at_byte: usize, twin: &Value) {
    let raw: &[u8; header::HEADER_LEN] = bytes[at_byte..][..header::HEADER_LEN]
        .try_into()
        .expect("20 bytes");
    let (kind, head) = header::read(raw);
    let told = &twin["header"];
    assert_eq!(i64::from(head.version), number(&told["version"]));
    assert_eq!(i64::from(head.protocol), number(&told["next_protocol"]));
    // draft -00 writes 40 for a length of 20 bytes
    let length = number(&told["length"]);
    let meant = if length == 40 { 20 } else { length };
    assert_eq!(i64::from(head.length), meant);
    let feedback = number(&twin["return"]["feedback_Bps"]) as i32;
    assert_eq!(header::feedback(raw, head.version), feedback);
    if told["format"] == "minimal" {
        assert_eq!(kind, XCP_RETURN);
        if head.version == 3 && head.length == 20 {
            let again = header::build_return(Version::V2007, head.protocol, feedback, raw[3]);
            assert_eq!(*raw, again);
        }
        return;
    }
    assert_eq!(kind, XCP_BOTH);
    let size_B = at(twin, "length").expect("a length") as u32;
    let seen = header::forward(raw, head.version, size_B);
    let router = told["last_xcp_router"].as_str().map(|text| {
        let address: IpAddr = text.parse().expect("an address");
        match address {
            IpAddr::V4(v4) => header::router_id(v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => header::router_id(v6),
        }
    });
    let whole = &bytes[at_byte..][..usize::from(head.length)];
    assert_eq!(header::last_router(whole), router.unwrap_or(0));
    // last_xcp_router is appended to the header
    let want = xcp_forward {
        last_xcp_router: 0,
        ..forward(twin)
    };
    assert_eq!(seen, want);
    if head.version == 3 && head.length == 20 {
        let again = header::build(Version::V2007, head.protocol, &seen, feedback, size_B);
        assert_eq!(*raw, again);
    }
}

#[test]
fn golden_packets_parse_to_their_json_files() {
    let (mut options, mut options_2005, mut headers) = (0, 0, 0);
    for (bytes, twin) in golden() {
        println!("{}", twin["name"]);
        let broken = twin["malformed"] == true;
        if let Some(at_byte) = at(&twin, "header_offset").filter(|_| !broken) {
            check_header(&bytes, at_byte, &twin);
            headers += 1;
            continue;
        }
        let Some(tcp) = at(&twin, "tcp_offset").filter(|_| !broken) else {
            continue;
        };
        let segment = &bytes[tcp..];
        let length = usize::from(segment[12] >> 4) * 4;
        let (kind, offset) = wire::find(segment, length);
        let option = at(&twin, "option_offset");
        match (twin["wire"].as_str(), twin["kind"].as_str()) {
            (Some("option"), _) => {
                assert_eq!(Some(tcp + offset), option);
                check_option(&segment[offset..], kind, &twin);
                options += 1;
            }
            (Some("option-2005"), Some("return")) => {
                assert_eq!((kind, Some(tcp + offset)), (XCP_RETURN_2005, option));
            }
            (Some("option-2005"), _) => {
                assert_eq!((kind, Some(tcp + offset)), (XCP_FORWARD_2005, option));
                check_option_2005(&segment[offset..], &twin);
                options_2005 += 1;
            }
            _ => assert_eq!(kind, XCP_NONE),
        }
        // a cut segment gives the same kind or is malformed
        for cut in 20..length {
            let (part, _) = wire::find(&segment[..cut], length);
            assert!(part == kind || part == XCP_MALFORMED, "{cut}: {part:?}");
        }
    }
    assert!(options > 20 && options_2005 > 15 && headers > 25);
}

#[test]
fn broken_headers_are_malformed() {
    let mut seen = 0;
    for (bytes, twin) in golden() {
        let name = twin["name"].as_str().unwrap_or_default();
        let is_header = name.starts_with("header-") && !name.contains("cut");
        if !is_header || twin["malformed"] != true {
            continue;
        }
        let raw = bytes[ETHERNET + 20..][..header::HEADER_LEN].try_into();
        let (kind, _) = header::read(raw.expect("20 bytes"));
        assert_eq!(kind, XCP_MALFORMED, "{name}");
        seen += 1;
    }
    assert!(seen >= 6, "{seen}");
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The golden packets in testdata/wire equal the builder's output and decode to the
//! expected values.

use std::collections::BTreeSet;
use std::fs;

use crate::wire::{self, cases, decode, files};

#[test]
fn golden_files_equal_the_builders_output() {
    for case in cases::all() {
        let read = |ending: &str| {
            let path = wire::folder().join(format!("{}.{ending}", case.name));
            fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        assert_eq!(read("hex"), files::hex(&case), "{}", case.name);
        assert_eq!(read("json"), files::json(&case), "{}", case.name);
        assert_eq!(files::parse_hex(&read("hex")), case.bytes());
    }
}

#[test]
fn there_are_no_other_golden_files() {
    let expected: BTreeSet<String> = cases::all()
        .iter()
        .flat_map(|c| [format!("{}.hex", c.name), format!("{}.json", c.name)])
        .collect();
    let found: BTreeSet<String> = fs::read_dir(wire::folder())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".hex") || name.ends_with(".json"))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn golden_packets_decode_to_their_expected_values() {
    for case in cases::all() {
        assert_eq!(decode::decode(&case.bytes()), case.expect, "{}", case.name);
    }
}

/// The example header of draft-falk-xcp-spec-03.
#[test]
fn example_of_the_draft_is_a_golden_packet() {
    let example = [
        0x0614_3100u32,
        0x0008_3127,
        0x0199_999a,
        0xffff_fe0c,
        0x0000_0fa0,
    ]
    .map(u32::to_be_bytes)
    .concat();
    let frame = cases::named("header-draft-example").bytes();
    assert_eq!(frame[34..54], example);
}

/// `cargo test -p xcp-datapath --test all -- --ignored` writes the files again.
#[test]
#[ignore = "writes testdata/wire"]
fn write_golden_files() {
    fs::create_dir_all(wire::folder()).unwrap();
    for case in cases::all() {
        let path = |ending: &str| wire::folder().join(format!("{}.{ending}", case.name));
        fs::write(path("hex"), files::hex(&case)).unwrap();
        fs::write(path("json"), files::json(&case)).unwrap();
    }
}

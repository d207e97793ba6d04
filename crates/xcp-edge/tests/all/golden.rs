// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The golden packets in testdata/edge equal the builder's output and parse to the
//! expected values.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use xcp_edge::message::Message;

use crate::cases::{self, Case};
use crate::key;

fn read(case: &Case, ending: &str) -> String {
    let path = cases::folder().join(format!("{}.{ending}", case.name));
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn parse_hex(text: &str) -> Vec<u8> {
    let lines = text.lines().map(|l| l.split('#').next().unwrap());
    lines
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

#[test]
fn golden_files_equal_the_builders_output() {
    for case in cases::all() {
        assert_eq!(read(&case, "hex"), case.hex(), "{}", case.name);
        assert_eq!(read(&case, "json"), case.json(), "{}", case.name);
    }
}

#[test]
fn there_are_no_other_golden_files() {
    let expected: BTreeSet<String> = cases::all()
        .iter()
        .flat_map(|c| [format!("{}.hex", c.name), format!("{}.json", c.name)])
        .collect();
    let found: BTreeSet<String> = fs::read_dir(cases::folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn golden_packets_parse_to_their_json_files() {
    for case in cases::all() {
        let twin: Value = serde_json::from_str(&read(&case, "json")).unwrap();
        let frame = parse_hex(&read(&case, "hex"));
        let bytes = &frame[twin["offset"].as_u64().unwrap() as usize..];
        match Message::parse(bytes, &key()) {
            Ok(message) => {
                let fields = Value::Object(cases::fields(&message, bytes));
                assert_eq!(fields, twin["fields"], "{}", case.name);
                assert_eq!(message.build(&key()), bytes, "{}", case.name);
            }
            Err(error) => {
                let found = format!("{error:?}");
                let expected = twin["error"].as_str();
                assert_eq!(found.split('(').next(), expected, "{}", case.name);
            }
        }
    }
}

/// `cargo test -p xcp-edge -- --ignored` writes the files again.
#[test]
#[ignore = "writes testdata/edge"]
fn write_golden_files() {
    fs::create_dir_all(cases::folder()).unwrap();
    for case in cases::all() {
        let path = |ending: &str| cases::folder().join(format!("{}.{ending}", case.name));
        fs::write(path("hex"), case.hex()).unwrap();
        fs::write(path("json"), case.json()).unwrap();
    }
}

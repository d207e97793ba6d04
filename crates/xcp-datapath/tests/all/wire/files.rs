// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The files of a golden packet: NAME.hex and NAME.json.

use serde::Serialize;

use super::cases::Case;
use super::decode::Decoded;

const LICENSE: &str = "BSD-2-Clause OR GPL-2.0-or-later";

/// Returns the content of NAME.hex: the frame, layer by layer.
pub fn hex(case: &Case) -> String {
    let mut text = format!("# SPDX-License-Identifier: {LICENSE}\n# {}\n", case.about);
    for (layer, bytes) in &case.layers {
        text += &format!("# {layer}\n");
        for line in bytes.chunks(16) {
            let line: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
            text += &line.join(" ");
            text.push('\n');
        }
    }
    text
}

/// Returns the bytes in a hex file; `#` starts a comment.
pub fn parse_hex(text: &str) -> Vec<u8> {
    let digits: String = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .collect();
    assert_eq!(digits.len() % 2, 0, "half a byte");
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).expect("hex digits"))
        .collect()
}

#[derive(Serialize)]
struct Twin<'a> {
    #[serde(rename = "SPDX-License-Identifier")]
    license: &'a str,
    name: &'a str,
    about: &'a str,
    length: usize,
    #[serde(flatten)]
    expect: Decoded,
}

/// Returns the content of NAME.json: the decoded frame.
pub fn json(case: &Case) -> String {
    let twin = Twin {
        license: LICENSE,
        name: case.name,
        about: case.about,
        length: case.bytes().len(),
        expect: case.expect,
    };
    serde_json::to_string_pretty(&twin).expect("plain values") + "\n"
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Generates the manual page xcp.toml(5) and the JSON schema from the types.

use clap_mangen::roff::{bold, italic, roman, Roff};
use schemars::{schema_for, Schema};
use serde_json::Value;

use super::types::Config;
use xcp_cli::cli::CONFIG_PATH;

const NAME: &str = "xcp.toml.5";

const EXAMPLE: &str = r#"[host]
default = true

[[router]]
device = "eth1"
capacity = "100mbit"

[[router]]
device = "wan*"
capacity = "auto"
xcp_share = 80
"#;

/// The schema of the file.
pub fn schema() -> Schema {
    schema_for!(Config)
}

/// The page with its file name.
pub fn page() -> (&'static str, Vec<u8>) {
    let schema = schema();
    let root = schema.as_value();
    let mut roff = Roff::new();
    roff.control("TH", ["xcp.toml", "5", "", "xcp", "File formats"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("xcp.toml - configuration of XCP hosts and routers")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([
        bold("xcp apply"),
        roman(" applies this file to the system. The default path is "),
        italic(CONFIG_PATH),
        roman(". "),
        roman(text(root, "description")),
    ]);
    for (name, property) in properties(root) {
        let Some(table) = table(root, property) else {
            continue;
        };
        let heading = match property["type"] == "array" {
            true => format!("[[{name}]]"),
            false => format!("[{name}]"),
        };
        roff.control("SH", [heading.as_str()]);
        roff.text([roman(text(property, "description"))]);
        let required = table["required"].as_array();
        for (key, field) in properties(table) {
            let needed = required.is_some_and(|all| all.iter().any(|r| r == key));
            roff.control("TP", []);
            roff.text([bold(key), roman(kind(field, needed))]);
            roff.text([roman(text(field, "description"))]);
        }
    }
    roff.control("SH", ["EXAMPLE"]);
    roff.control("nf", []);
    for line in EXAMPLE.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        bold("xcp-apply"),
        roman("(1), "),
        bold("xcp-config-show"),
        roman("(1)"),
    ]);
    (NAME, roff.render().into_bytes())
}

/// The named properties of an object, in order.
fn properties(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object["properties"].as_object().into_iter().flatten()
}

/// The table of a property: the property itself, or the items of its array.
fn table<'a>(root: &'a Value, property: &'a Value) -> Option<&'a Value> {
    let reference = property["items"]["$ref"]
        .as_str()
        .or_else(|| property["$ref"].as_str())
        .or_else(|| property["anyOf"][0]["$ref"].as_str())?;
    root.pointer(reference.strip_prefix('#')?)
}

/// Describes the type of a field, and whether it is required or has a default.
fn kind(field: &Value, needed: bool) -> String {
    let one = |value: &Value| match value.as_str() {
        Some("array") => "list of strings".to_owned(),
        Some(other) => other.to_owned(),
        None => "string".to_owned(),
    };
    let mut kind = match &field["type"] {
        Value::Array(all) => one(&all[0]),
        Value::Null if field["anyOf"][0]["type"] == "integer" => "integer or string".to_owned(),
        other => one(other),
    };
    if needed {
        kind += ", required";
    } else if let Some(default) = field.get("default").filter(|d| is_told(d)) {
        kind += &format!(", default {default}");
    }
    format!(" ({kind})")
}

fn is_told(default: &Value) -> bool {
    !default.is_null() && default.as_array().is_none_or(|all| !all.is_empty())
}

fn text(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::File;

    #[test]
    fn page_has_all_keys() {
        let (name, page) = page();
        assert_eq!(name, "xcp.toml.5");
        let page = String::from_utf8(page).expect("text");
        let schema = schema();
        let root = schema.as_value();
        let mut keys = 0;
        for (_, property) in properties(root) {
            let table = table(root, property).expect("a table");
            for (key, field) in properties(table) {
                assert!(page.contains(&format!("\\fB{key}\\fR")), "{key}: {page}");
                assert!(field["description"].is_string(), "{key} has no comment");
                keys += 1;
            }
        }
        assert!(keys >= 20, "{keys}");
    }

    #[test]
    fn example_is_valid() {
        let file = File::parse("example".into(), EXAMPLE.into()).expect("valid");
        assert_eq!(file.config.router.len(), 2);
    }
}

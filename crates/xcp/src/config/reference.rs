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
    for table in tables(root) {
        roff.control("SH", [table.heading.as_str()]);
        roff.text([roman(table.meaning)]);
        for key in table.keys {
            roff.control("TP", []);
            roff.text([bold(key.name), roman(format!(" ({})", key.kind))]);
            roff.text([roman(key.meaning)]);
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

/// The description of a table of the file.
struct Table {
    /// The name in single or double brackets.
    heading: String,
    meaning: String,
    keys: Vec<Key>,
}

/// The description of a key of a table.
struct Key {
    name: String,
    kind: String,
    meaning: String,
}

/// The tables of the file, in order.
fn tables(root: &Value) -> Vec<Table> {
    let tables = properties(root).filter_map(|(name, property)| {
        let table = table(root, property)?;
        let required = table["required"].as_array();
        let is_required = |key: &str| required.is_some_and(|all| all.iter().any(|r| r == key));
        let keys = properties(table).map(|(key, field)| Key {
            name: key.clone(),
            kind: kind(field, is_required(key)),
            meaning: text(field, "description"),
        });
        Some(Table {
            heading: match property["type"] == "array" {
                true => format!("[[{name}]]"),
                false => format!("[{name}]"),
            },
            meaning: text(property, "description"),
            keys: keys.collect(),
        })
    });
    tables.collect()
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
        Some("array") if field["items"]["type"] == "integer" => "list of integers".to_owned(),
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
    } else if let Some(default) = field.get("default").filter(|d| is_shown(d)) {
        kind += &format!(", default {default}");
    }
    kind
}

fn is_shown(default: &Value) -> bool {
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

    /// The page for docs/: a table for each table of the file.
    fn markdown() -> String {
        let mut page = "\
<!-- SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later -->
<!-- Generated by crates/xcp/src/config/reference.rs -->
# xcp.toml

`xcp apply` reads this file; [configuration](../howto/configuration.md) shows how to use it. `man xcp.toml`
has the same text, and `xcp config schema` prints it as a JSON schema.

```toml
"
        .to_owned();
        page += EXAMPLE;
        page += "```\n";
        for table in tables(schema().as_value()) {
            page += &format!("\n## `{}`\n{}\n\n", table.heading, table.meaning);
            page += "| key | type | meaning |\n|---|---|---|\n";
            for key in table.keys {
                let meaning = key.meaning.replace('|', "\\|");
                page += &format!("| `{}` | {} | {meaning} |\n", key.name, key.kind);
            }
        }
        page
    }

    #[test]
    fn reference_page_is_current() {
        xcp_testbed::assert_current("docs/reference/xcp-toml.md", &markdown());
    }

    #[test]
    fn example_is_valid() {
        let file = File::parse("example".into(), EXAMPLE.into()).expect("valid");
        assert_eq!(file.config.router.len(), 2);
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Reads a configuration file. Errors name the line and the column.

use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use xcp_cli::failure::Failure;

use super::types::{Config, Conflict};

/// Maximum length of a configuration file.
const MOST_BYTES: u64 = 1 << 20;

const SEE: &str = "see xcp.toml(5)";

/// The text of a file, and the configuration in it.
#[derive(Debug)]
pub struct File {
    name: String,
    text: String,
    pub config: Config,
}

/// A table of the file.
#[derive(Clone, Copy, Debug)]
pub enum Table {
    Host,
    /// The router table with this number, from 0.
    Router(usize),
}

impl File {
    /// Reads a file; `-` is standard input.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = read(path).map_err(|e| {
            let failure = Failure::io(&name, &e);
            match e.kind() {
                io::ErrorKind::NotFound => Failure::new(
                    &name,
                    "no such file",
                    "write one: `xcp config show` prints the running configuration",
                ),
                _ => failure,
            }
        })?;
        Self::parse(name, text)
    }

    pub fn parse(name: String, text: String) -> Result<Self, Failure> {
        let parsed: Result<Config, toml::de::Error> = toml::from_str(&text);
        match parsed {
            Ok(config) => {
                let file = Self { name, text, config };
                file.check()?;
                Ok(file)
            }
            Err(e) => {
                let at = place(&text, e.span().unwrap_or_default());
                let (reason, remedy) = e.message().split_once('\n').unwrap_or((e.message(), SEE));
                Err(Failure::new(format!("{name}:{at}"), reason, remedy))
            }
        }
    }

    /// Fails if values contradict each other.
    fn check(&self) -> Result<(), Failure> {
        if let Some(host) = &self.config.host {
            host.options().map_err(|c| self.conflict(Table::Host, c))?;
            if let Some(gateway) = &self.config.gateway {
                let conflict = host.conflict_with(gateway);
                conflict.map_or(Ok(()), |c| Err(self.conflict(Table::Host, c)))?;
            }
        }
        for (i, router) in self.config.router.iter().enumerate() {
            let table = Table::Router(i);
            router.options().map_err(|c| self.conflict(table, c))?;
        }
        Ok(())
    }

    fn conflict(&self, table: Table, conflict: Conflict) -> Failure {
        self.wrong(table, conflict.key, conflict.reason, conflict.remedy)
    }

    /// Returns a failure with the line and column of a key's value.
    pub fn wrong(
        &self,
        table: Table,
        key: &str,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Failure {
        let span = self.span(table, key).unwrap_or_default();
        let at = place(&self.text, span);
        Failure::new(format!("{}:{at}", self.name), reason, remedy)
    }

    fn span(&self, table: Table, key: &str) -> Option<Range<usize>> {
        let root = DeTable::parse(&self.text).ok()?;
        let (name, index) = match table {
            Table::Host => ("host", None),
            Table::Router(index) => ("router", Some(index)),
        };
        let value = root.get_ref().get(name)?;
        let value = match (value.get_ref(), index) {
            (DeValue::Array(all), Some(index)) => all.get(index)?,
            _ => value,
        };
        match value.get_ref() {
            DeValue::Table(table) => Some(table.get(key).map_or(value.span(), |v| v.span())),
            _ => Some(value.span()),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let source: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(fs::File::open(path)?),
    };
    let read = source.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MOST_BYTES {
        return Err(io::Error::other("longer than 1 MB: not a configuration"));
    }
    Ok(text)
}

/// Returns LINE:COLUMN, from 1, of the start of a span.
fn place(text: &str, span: Range<usize>) -> String {
    let before = text.get(..span.start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("{line}:{column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let failure = File::parse("f".into(), text.into()).expect_err(text);
        failure.to_string()
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, want) in [
            ("[host]\ndefalt = true\n", "f:2:1: unknown field `defalt`"),
            (
                "[[router]]\ncapacity = \"1mbit\"\n",
                "f:1:1: missing field `device`",
            ),
            (
                "[[router]]\ndevice = \"a\"\ncapacity = \"10\"\n",
                "f:3:12: without a unit",
            ),
            (
                "[[router]]\ndevice = \"a\"\ncapacity = 10\n",
                "f:3:12: invalid type: integer `10`, expected a string",
            ),
            (
                "[[router]]\ndevice = \"a\"\ncapacity = \"auto\"\nshape = \"capacity\"\n",
                "f:4:9: needs a rate with capacity \"auto\"",
            ),
            (
                "[[router]]\ndevice = \"a\"\ncapacity = \"1mbit\"\nxcp_share = 100\n",
                "f:4:13: too large",
            ),
            (
                "[host]\npeers = [\"10.0.0.0/8\", \"10.0.0.1/8\"]\n",
                "f:2:9: bits after the first 8 are not zero",
            ),
            ("[host]\nwire = \"header\"\n", "f:2:8: needs the devices"),
            (
                "[host]\nwire = \"header\"\npeers = [\"10.0.0.0/8\"]\ndevices = [\"a\"]\n\
                 [gateway]\nlan = [\"b\"]\nwan = \"a\"\n",
                "f:2:8: must not be header on the WAN device of the gateway, a",
            ),
            (
                "[host]\nsocket_protocol = 6\n",
                "f:2:19: assigned to another protocol",
            ),
            (
                "[host]\nsocket_protocol = true\n",
                "f:2:19: expected \"off\" or a protocol number",
            ),
            ("[gateway]\nlan = []\nwan = \"a\"\n", "f:2:7: empty"),
            (
                "[gateway]\nlan = [\"b\"]\nwan = \"a\"\nports = [0]\n",
                "f:4:9: too small",
            ),
            (
                "[gateway]\nlan = [\"b\"]\nwan = \"a\"\nmax_connections = 0\n",
                "f:4:19: too small",
            ),
            ("[host\n", "f:1:6: "),
        ] {
            let told = told(text);
            assert!(told.starts_with(want), "{text}: {told}");
        }
    }

    #[test]
    fn empty_file_configures_nothing() {
        let file = File::parse("f".into(), String::new()).expect("valid");
        assert_eq!(file.config, Config::default());
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The configuration file of this system, xcp.toml(5): its format, how it is read and
//! applied, and the running configuration.

mod apply;
mod difference;
mod file;
mod pattern;
mod reference;
mod running;
mod types;

use std::path::Path;
use std::process::ExitCode;

use xcp_cli::cli::ConfigAction;
use xcp_cli::failure::Failure;
use xcp_cli::out::Out;

pub use apply::apply;
pub use reference::page;
pub use types::{Edge, Gateway};

pub fn act(action: &ConfigAction, out: &Out) -> Result<ExitCode, Failure> {
    match action {
        ConfigAction::Show => {
            let config = running::read()?.config()?;
            let text = toml::to_string(&config).map_err(|e| bug(&e.to_string()))?;
            out.print(&config, |_| running::commented(&text))?;
        }
        ConfigAction::Schema => {
            let schema = reference::schema();
            let text = serde_json::to_string_pretty(&schema).map_err(|e| bug(&e.to_string()))?;
            out.print(&schema, |_| text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the table `edge` of a file, for the daemon.
pub fn edge(path: &Path) -> Result<Edge, Failure> {
    let advice = "add one with the key's file and the upstream edges: see xcp.toml(5)";
    table(path, "edge", |config| config.edge, advice)
}

/// Reads the settings of the running gateway.
pub fn running_gateway() -> Option<Gateway> {
    running::gateway()
}

/// Reads the table `gateway` of a file, for the gateway.
pub fn gateway(path: &Path) -> Result<Gateway, Failure> {
    let advice = "add one with the devices: see xcp.toml(5)";
    table(path, "gateway", |config| config.gateway, advice)
}

fn table<T>(
    path: &Path,
    name: &str,
    of: fn(types::Config) -> Option<T>,
    advice: &str,
) -> Result<T, Failure> {
    let file = file::File::read(path)?;
    of(file.config).ok_or_else(|| {
        let reason = format!("has no table [{name}]");
        Failure::new(path.display().to_string(), reason, advice)
    })
}

fn bug(reason: &str) -> Failure {
    Failure::new("configuration", reason, "report it as a bug")
}

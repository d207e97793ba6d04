// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `socket(AF_INET, SOCK_STREAM, IPPROTO_XCP)`: opens XCP sockets by protocol number. The
//! programs are pinned in `host/socket`. The other functions of a host do not need them.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, Object};
use serde::Serialize;

use crate::load_error::LoadError;
use crate::{bpf_link, bpffs, cgroup, object, Cgroup, Error, Result};
use xcp_abi::xcp_protocol_config;

/// IPPROTO_XCP of the first implementation of XCP (ISI's). IANA has not assigned it.
pub const DEFAULT_NUMBER: u8 = 200;

/// Protocol numbers that Linux uses for other stream sockets.
const TAKEN: [u8; 3] = [0, libc::IPPROTO_TCP as u8, libc::IPPROTO_SCTP as u8];

/// The protocol number for XCP that `xcp host on` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// [`DEFAULT_NUMBER`], if the kernel permits it.
    #[default]
    IfPermitted,
    /// This number; it is an error if the kernel forbids it.
    Number(u8),
    Off,
}

impl Wanted {
    /// This number, unless it means another protocol.
    pub fn number(number: u8) -> Option<Self> {
        (!TAKEN.contains(&number)).then_some(Self::Number(number))
    }
}

/// The result of [`Wanted`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The number that opens a socket with XCP.
    #[serde(rename = "socket_protocol")]
    pub number: Option<u8>,
    /// Why there is no such number, if one was wanted.
    #[serde(rename = "socket_protocol_note")]
    pub note: Option<String>,
}

fn dir(host: &Path) -> PathBuf {
    host.join("socket")
}

/// Sets the number for a group's processes. Returns the result, and whether this changed
/// anything. `host` is the folder in which the host's parts are pinned.
pub(crate) fn configure(host: &Path, group: &Cgroup, wanted: Wanted) -> Result<(Outcome, bool)> {
    let number = match wanted {
        Wanted::Off => return Ok((Outcome::default(), remove(host)?)),
        Wanted::IfPermitted => DEFAULT_NUMBER,
        Wanted::Number(number) => number,
    };
    match set(host, group, number) {
        Ok(changed) => Ok((
            Outcome {
                number: Some(number),
                note: None,
            },
            changed,
        )),
        Err(e) if wanted == Wanted::IfPermitted => Ok((
            Outcome {
                number: None,
                note: Some(e.reason),
            },
            false,
        )),
        Err(e) => Err(e),
    }
}

fn set(host: &Path, group: &Cgroup, number: u8) -> Result<bool> {
    if active(host)? == Some((number, group.id()?)) {
        return Ok(false);
    }
    remove(host)?;
    let object = load(Some(host), number)?;
    pin_all(&object, host, group, number).inspect_err(|_| {
        let _ = remove(host);
    })?;
    Ok(true)
}

fn pin_all(object: &Object, host: &Path, group: &Cgroup, number: u8) -> Result<()> {
    let config = xcp_protocol_config {
        number: u32::from(number),
        unused: 0,
    };
    let map = object::map(object, ".data.config")?;
    object::write_record(&map, &config)?;
    let covered = group.fd().as_raw_fd().to_ne_bytes();
    object::map(object, "group")?
        .update(&0u32.to_ne_bytes(), &covered, MapFlags::ANY)
        .map_err(|e| object::failure("control group", &e))?;

    // the program that marks sockets is attached first, so that no XCP socket is unmarked
    let created = object::program(object, "xcp_socket_created")?;
    let kind = libbpf_sys::BPF_CGROUP_INET_SOCK_CREATE;
    let created = bpf_link::attach_to(created.as_fd(), group.fd(), kind)
        .map_err(|e| cgroup::explain_attach_failure(group, kind).unwrap_or(e))?;
    let protocol = object::program(object, "xcp_protocol")?;
    let protocol =
        bpf_link::attach_modify_return(protocol.as_fd()).map_err(|e| refused(&e.reason, number))?;

    let dir = dir(host);
    bpffs::mark(&dir)?;
    bpf_link::pin(map.as_fd(), &dir.join("config"))?;
    bpf_link::pin(created.as_fd(), &dir.join("created"))?;
    bpf_link::pin(protocol.as_fd(), &dir.join("protocol"))
}

/// The active protocol number, and the ID of its control group.
fn active(host: &Path) -> Result<Option<(u8, u64)>> {
    let dir = dir(host);
    if !object::exists(&dir.join("protocol")) {
        return Ok(None);
    }
    let map = object::pinned_map(&dir.join("config"))?;
    let config: xcp_protocol_config = object::read_record(&map, 0)?;
    let group = bpf_link::cgroup_of(bpf_link::open(&dir.join("created"))?.as_fd())?;
    Ok(Some((config.number as u8, group)))
}

/// The active protocol number, if any.
pub(crate) fn number(host: &Path) -> Result<Option<u8>> {
    Ok(active(host)?.map(|(number, _)| number))
}

/// Removes the programs; returns whether there were any.
fn remove(host: &Path) -> Result<bool> {
    let dir = dir(host);
    let present = object::exists(&dir);
    if present {
        fs::remove_dir_all(&dir).map_err(|e| Error::io(dir.display().to_string(), &e))?;
    }
    Ok(present)
}

/// Loads the programs. They share the map of marked sockets that is pinned in `host`.
#[doc(hidden)]
pub fn load(host: Option<&Path>, number: u8) -> Result<Object> {
    let mut open = object::open(&object::SOCKET)?;
    if let Some(host) = host {
        object::reuse(&mut open, &["chosen"], host)?;
    }
    object::try_load(open).map_err(|e| match e {
        LoadError::NotRoot | LoadError::Forbidden => {
            refused("the kernel forbids tracing programs", number)
        }
        LoadError::Lacks(what) => refused(
            &format!("the kernel's socket() takes no programs ({what}); it needs CONFIG_MPTCP"),
            number,
        ),
        LoadError::Verifier { .. } => refused(&e.describe("").reason, number),
    })
}

fn refused(reason: &str, number: u8) -> Error {
    Error::new(
        format!("--socket-protocol {number}"),
        reason,
        "leave it out: programs can choose XCP by setsockopt(TCP_CONGESTION, \"xcp\")",
    )
}

/// Fails unless the programs load on this kernel.
pub(crate) fn probe() -> Result<()> {
    load(None, DEFAULT_NUMBER).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_other_protocols_are_refused() {
        assert_eq!(Wanted::number(200), Some(Wanted::Number(200)));
        for taken in TAKEN {
            assert_eq!(Wanted::number(taken), None, "{taken}");
        }
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Resources that XCP needs, occupied by others: a control group, the name `xcp`.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use libbpf_rs::Object;
use xcp_datapath::internal::{bpf_link, host, object};
use xcp_datapath::{Cgroup, Result};

use crate::{image, last_os};

/// A foreign sock_ops program that occupies a control group exclusively until dropped.
pub struct Exclusive {
    object: Object,
    group: Cgroup,
}

impl Exclusive {
    /// Occupies a control group. `flags`: 0, or BPF_F_ALLOW_OVERRIDE.
    pub fn on(group: &Path, flags: u32) -> Result<Self> {
        let object = image::load_only("xcp_foreign")?;
        let group = Cgroup::open(Some(group))?;
        let program = object::program(&object, "xcp_foreign")?.as_fd().as_raw_fd();
        let kind = libbpf_sys::BPF_CGROUP_SOCK_OPS;
        // SAFETY: both descriptors are open.
        let rc =
            unsafe { libbpf_sys::bpf_prog_attach(program, group.fd().as_raw_fd(), kind, flags) };
        match rc {
            0 => Ok(Self { object, group }),
            _ => Err(last_os(group.path().display().to_string())),
        }
    }

    /// The kernel's id of the program.
    pub fn id(&self) -> Result<u32> {
        let programs = bpf_link::cgroup_programs(self.group.fd(), libbpf_sys::BPF_CGROUP_SOCK_OPS)?;
        programs
            .0
            .first()
            .copied()
            .ok_or_else(|| object::missing("program"))
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        if let Ok(program) = object::program(&self.object, "xcp_foreign") {
            let (program, group) = (program.as_fd().as_raw_fd(), self.group.fd().as_raw_fd());
            // SAFETY: both descriptors are open.
            unsafe {
                libbpf_sys::bpf_prog_detach2(program, group, libbpf_sys::BPF_CGROUP_SOCK_OPS)
            };
        }
    }
}

/// Occupies the congestion control name `xcp` until dropped.
pub struct NameTaken {
    _link: libbpf_rs::Link,
    _object: Object,
}

impl NameTaken {
    /// Registers a congestion control with this name.
    pub fn new() -> Result<Self> {
        let mut object = object::open(&object::CC).and_then(host::load_control)?;
        let link = object::map_mut(&mut object, "xcp")?
            .attach_struct_ops()
            .map_err(|e| object::failure("congestion control xcp", &e))?;
        Ok(Self {
            _link: link,
            _object: object,
        })
    }
}

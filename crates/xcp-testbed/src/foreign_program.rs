// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Foreign BPF programs that run together with those of XCP.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::Object;
use xcp_datapath::internal::bpf_link::{self, Direction, Place};
use xcp_datapath::internal::{object, Device};
use xcp_datapath::{Cgroup, Result};

use crate::fault_injector::FaultCounters;
use crate::{image, last_os};

/// A foreign program, attached until dropped.
pub struct ForeignProgram {
    object: Object,
    _link: OwnedFd,
}

impl ForeignProgram {
    /// Attaches a program to a device's egress, before or after the present ones, whose
    /// verdict ends the chain: later programs do not run.
    pub fn ending_tcx_chain(dev: &str, first: bool) -> Result<Self> {
        let place = if first { Place::First } else { Place::Last };
        Self::on(dev, "xcp_ends", Direction::Egress, place)
    }

    /// Attaches an XDP program to a device.
    pub fn who_redirects(dev: &str) -> Result<Self> {
        let object = image::load_only("xcp_redirects")?;
        let program = object::program(&object, "xcp_redirects")?;
        let link = attach_xdp(program.as_fd(), &Device::find(dev)?)?;
        Ok(Self {
            object,
            _link: link,
        })
    }

    /// Clears the number of segments of GSO packets that a device receives, as if they came
    /// from a virtual machine.
    pub fn clearing_gso_segs(dev: &str) -> Result<Self> {
        Self::on(dev, "xcp_clear_gso", Direction::Ingress, Place::First)
    }

    /// Requests a callback for each RTT sample of all new connections.
    pub fn of_sockets() -> Result<Self> {
        Self::on_sockets("xcp_foreign")
    }

    /// Adds a 12-byte TCP option to all segments of all connections.
    pub fn with_an_option() -> Result<Self> {
        Self::on_sockets("xcp_foreign_option")
    }

    fn on_sockets(name: &str) -> Result<Self> {
        let object = image::load_only(name)?;
        let program = object::program(&object, name)?;
        let group = Cgroup::open(None)?;
        let kind = libbpf_sys::BPF_CGROUP_SOCK_OPS;
        let link = bpf_link::attach_to(program.as_fd(), group.fd(), kind)?;
        Ok(Self {
            object,
            _link: link,
        })
    }

    /// The counters so far.
    pub fn account(&self) -> Result<FaultCounters> {
        object::read_record(&object::map(&self.object, ".data.account")?, 0)
    }

    fn on(dev: &str, name: &str, direction: Direction, place: Place<'_>) -> Result<Self> {
        let object = image::load_only(name)?;
        let program = object::program(&object, name)?;
        let device = Device::find(dev)?;
        let link = bpf_link::attach_tcx(program.as_fd(), &device, direction, place)?;
        Ok(Self {
            object,
            _link: link,
        })
    }
}

fn attach_xdp(program: BorrowedFd<'_>, device: &Device) -> Result<OwnedFd> {
    let (program, device) = (program.as_raw_fd(), device.index as i32);
    // SAFETY: the descriptor is open; no options are fine.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program, device, libbpf_sys::BPF_XDP, std::ptr::null())
    };
    if fd < 0 {
        return Err(last_os("attaching the program"));
    }
    // SAFETY: the call just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

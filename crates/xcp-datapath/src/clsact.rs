// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Attaching to tc through the clsact qdisc, where tcx is missing (before
//! 6.6).

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_sys::{bpf_tc_hook, bpf_tc_opts};

use crate::{object, rtnl, Error, Result};

const HANDLE: u32 = 1;

/// Packets that come in, or go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    fn point(self) -> u32 {
        match self {
            Self::Ingress => libbpf_sys::BPF_TC_INGRESS,
            Self::Egress => libbpf_sys::BPF_TC_EGRESS,
        }
    }
}

/// Whose filter it is; others' filters, of lower numbers, go first.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Puts headers in before a router reads them.
    Host = 0x5842,
    Router = 0x5843,
}

fn hook(ifindex: u32, point: u32) -> bpf_tc_hook {
    bpf_tc_hook {
        sz: size_of::<bpf_tc_hook>() as _,
        ifindex: ifindex as i32,
        attach_point: point,
        ..Default::default()
    }
}

fn options(place: Place) -> bpf_tc_opts {
    bpf_tc_opts {
        sz: size_of::<bpf_tc_opts>() as _,
        handle: HANDLE,
        priority: place as u32,
        ..Default::default()
    }
}

fn os_error(thing: &str, rc: i32) -> Error {
    Error::io(thing, &std::io::Error::from_raw_os_error(-rc))
}

/// Whether a device has the clsact qdisc, or another in its place.
pub fn exists(ifindex: u32) -> bool {
    rtnl::clsact_kind(ifindex).is_some()
}

/// An ingress qdisc would take what is meant for egress, and run it on ingress.
fn check_kind(ifindex: u32) -> Result<()> {
    match rtnl::clsact_kind(ifindex) {
        Some(kind) if kind != "clsact" => Err(Error::new(
            "clsact qdisc",
            format!("the device has the qdisc {kind} in its place"),
            format!("remove that: tc qdisc del dev DEV {kind}"),
        )),
        _ => Ok(()),
    }
}

/// Attaches, and creates the clsact qdisc where it is missing.
pub fn attach(
    program: BorrowedFd<'_>,
    ifindex: u32,
    direction: Direction,
    place: Place,
) -> Result<()> {
    check_kind(ifindex)?;
    let mut hook = hook(ifindex, direction.point());
    let mut opts = options(place);
    opts.prog_fd = program.as_raw_fd();
    opts.flags = libbpf_sys::BPF_TC_F_REPLACE;
    // SAFETY: both records are initialised, with their sizes.
    match unsafe { libbpf_sys::bpf_tc_hook_create(&mut hook) } {
        0 => {}
        rc if rc == -libc::EEXIST => {}
        rc => return Err(os_error("clsact qdisc", rc)),
    }
    // SAFETY: as above; the descriptor is open.
    match unsafe { libbpf_sys::bpf_tc_attach(&hook, &mut opts) } {
        0 => Ok(()),
        rc => Err(os_error("tc filter", rc)),
    }
}

/// Detaches.
pub fn detach(ifindex: u32, direction: Direction, place: Place) {
    object::quiet();
    let hook = hook(ifindex, direction.point());
    let opts = options(place);
    // SAFETY: the records are initialised; what is gone already is fine.
    unsafe { libbpf_sys::bpf_tc_detach(&hook, &opts) };
}

/// Removes the qdisc that [`attach`] created, unless others use it by now.
pub fn remove(ifindex: u32) {
    if rtnl::has_clsact_filters(ifindex) {
        return;
    }
    let mut both = hook(
        ifindex,
        libbpf_sys::BPF_TC_EGRESS | libbpf_sys::BPF_TC_INGRESS,
    );
    // SAFETY: the record is initialised; what is gone already is fine.
    unsafe { libbpf_sys::bpf_tc_hook_destroy(&mut both) };
}

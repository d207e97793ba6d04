// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Attaching to tc egress through the clsact qdisc, where tcx is missing
//! (before 6.6).

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_sys::{bpf_tc_hook, bpf_tc_opts};

use crate::{Error, Result};

/// Our filter's place: low priority number last, others go first.
const PRIORITY: u32 = 0x5843;
const HANDLE: u32 = 1;

fn hook(ifindex: u32, point: u32) -> bpf_tc_hook {
    bpf_tc_hook {
        sz: std::mem::size_of::<bpf_tc_hook>() as _,
        ifindex: ifindex as i32,
        attach_point: point,
        ..Default::default()
    }
}

fn place() -> bpf_tc_opts {
    bpf_tc_opts {
        sz: std::mem::size_of::<bpf_tc_opts>() as _,
        handle: HANDLE,
        priority: PRIORITY,
        ..Default::default()
    }
}

fn os_error(thing: &str, rc: i32) -> Error {
    Error::io(thing, &std::io::Error::from_raw_os_error(-rc))
}

/// Attaches; returns whether the clsact qdisc had to be created.
pub fn attach(program: BorrowedFd<'_>, ifindex: u32) -> Result<bool> {
    let mut hook = hook(ifindex, libbpf_sys::BPF_TC_EGRESS);
    let mut opts = place();
    opts.prog_fd = program.as_raw_fd();
    opts.flags = libbpf_sys::BPF_TC_F_REPLACE;
    // SAFETY: both records are initialised, with their sizes.
    let created = match unsafe { libbpf_sys::bpf_tc_hook_create(&mut hook) } {
        0 => true,
        rc if rc == -libc::EEXIST => false,
        rc => return Err(os_error("clsact qdisc", rc)),
    };
    // SAFETY: as above; the descriptor is open.
    match unsafe { libbpf_sys::bpf_tc_attach(&hook, &mut opts) } {
        0 => Ok(created),
        rc => Err(os_error("tc filter", rc)),
    }
}

/// Detaches, and removes the qdisc if `created`.
pub fn detach(ifindex: u32, created: bool) {
    let egress = hook(ifindex, libbpf_sys::BPF_TC_EGRESS);
    let opts = place();
    // SAFETY: the records are initialised; what is gone already is fine.
    unsafe {
        libbpf_sys::bpf_tc_detach(&egress, &opts);
        if created {
            let mut both = hook(
                ifindex,
                libbpf_sys::BPF_TC_EGRESS | libbpf_sys::BPF_TC_INGRESS,
            );
            libbpf_sys::bpf_tc_hook_destroy(&mut both);
        }
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! BPF links that libbpf-rs has no call for, and pinning them.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::rtnl::Device;
use crate::{features, Error, Result};

/// Packets that come in, or go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ingress,
    Egress,
}

/// Attaches a program to the egress of a device of this network namespace.
pub fn attach_tcx_egress(program: BorrowedFd<'_>, device: &Device) -> Result<OwnedFd> {
    attach_tcx(program, device, Direction::Egress, 0)
}

/// Attaches a program to a device before all others that are there.
pub fn attach_tcx_first(
    program: BorrowedFd<'_>,
    device: &Device,
    direction: Direction,
) -> Result<OwnedFd> {
    attach_tcx(program, device, direction, libbpf_sys::BPF_F_BEFORE)
}

fn attach_tcx(
    program: BorrowedFd<'_>,
    device: &Device,
    direction: Direction,
    flags: u32,
) -> Result<OwnedFd> {
    let kind = match direction {
        Direction::Ingress => libbpf_sys::BPF_TCX_INGRESS,
        Direction::Egress => libbpf_sys::BPF_TCX_EGRESS,
    };
    create(program, device.index as i32, kind, flags).map_err(|e| {
        if features::has_tcx() {
            return e;
        }
        Error::new(
            &device.name,
            "this kernel has no tcx links",
            "use Linux 6.6 or later",
        )
    })
}

/// Attaches a sock_ops program to a cgroup.
pub fn attach_sock_ops(program: BorrowedFd<'_>, cgroup: BorrowedFd<'_>) -> Result<OwnedFd> {
    create(
        program,
        cgroup.as_raw_fd(),
        libbpf_sys::BPF_CGROUP_SOCK_OPS,
        0,
    )
}

/// Attaches a program to the making of sockets in a cgroup.
pub fn attach_sock_create(program: BorrowedFd<'_>, cgroup: BorrowedFd<'_>) -> Result<OwnedFd> {
    create(
        program,
        cgroup.as_raw_fd(),
        libbpf_sys::BPF_CGROUP_INET_SOCK_CREATE,
        0,
    )
}

/// Attaches a program to the kernel function that it was loaded for.
pub fn attach_modify_return(program: BorrowedFd<'_>) -> Result<OwnedFd> {
    create(program, 0, libbpf_sys::BPF_MODIFY_RETURN, 0)
}

fn create(
    program: BorrowedFd<'_>,
    target: i32,
    kind: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        flags,
        ..Default::default()
    };
    // SAFETY: the descriptor is open, the options live through the call.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), target, kind, &options) };
    owned(fd, "attaching the program")
}

/// Pins a link (or a program) so that it outlives this process.
pub fn pin(fd: BorrowedFd<'_>, path: &Path) -> Result<()> {
    let c_path = c_path(path)?;
    // SAFETY: the descriptor is open and the path a C string.
    let rc = unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), c_path.as_ptr()) };
    if rc < 0 {
        return Err(Error::last_os(path.display().to_string()));
    }
    Ok(())
}

/// Opens what is pinned at a path.
pub fn open(path: &Path) -> Result<OwnedFd> {
    let c_path = c_path(path)?;
    // SAFETY: the path is a C string.
    let fd = unsafe { libbpf_sys::bpf_obj_get(c_path.as_ptr()) };
    owned(fd, &path.display().to_string())
}

/// The kernel's record of a link.
pub fn info(fd: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_link_info> {
    // SAFETY: a zeroed record is valid, and its size is passed along.
    unsafe {
        let mut info: libbpf_sys::bpf_link_info = std::mem::zeroed();
        let mut size = std::mem::size_of_val(&info) as u32;
        if libbpf_sys::bpf_link_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut size) < 0 {
            return Err(Error::last_os("BPF link"));
        }
        Ok(info)
    }
}

/// The number of the cgroup that a link is attached to.
pub fn cgroup_of(fd: BorrowedFd<'_>) -> Result<u64> {
    // SAFETY: the kernel fills this member for cgroup links, which ours are.
    Ok(unsafe { info(fd)?.__bindgen_anon_1.cgroup.cgroup_id })
}

/// Detaches a link that somebody else may hold open.
pub fn detach(fd: BorrowedFd<'_>) {
    // SAFETY: the descriptor is open. A link that is already gone is fine.
    unsafe { libbpf_sys::bpf_link_detach(fd.as_raw_fd()) };
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        Error::new(
            path.display().to_string(),
            "has a zero byte in it",
            "choose another path",
        )
    })
}

fn owned(fd: i32, thing: &str) -> Result<OwnedFd> {
    if fd < 0 {
        return Err(Error::last_os(thing));
    }
    // SAFETY: the call just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

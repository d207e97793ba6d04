// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! BPF links for which libbpf-rs has no function, and pinning them.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::rtnl::Device;
use crate::{probes, Error, Result};

/// The kernel's limit of programs per device.
const PROGRAMS_MAX: usize = 64;

/// The direction of packets on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    fn kind(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
        }
    }
}

/// The position of a program among those of a device. A program that ends the chain hides
/// packets from all programs after it.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    First,
    Last,
    /// Directly after the program of this link.
    Behind(BorrowedFd<'a>),
}

/// Attaches a program to a device of this network namespace.
pub fn attach_tcx(
    program: BorrowedFd<'_>,
    device: &Device,
    direction: Direction,
    place: Place<'_>,
) -> Result<OwnedFd> {
    let mut options = create_options();
    match place {
        Place::First => options.flags = libbpf_sys::BPF_F_BEFORE,
        Place::Last => {}
        Place::Behind(link) => {
            options.flags = libbpf_sys::BPF_F_AFTER | libbpf_sys::BPF_F_LINK;
            options.__bindgen_anon_1.tcx.relative_fd = link.as_raw_fd() as u32;
        }
    }
    create_with(program, device.index as i32, direction.kind(), &options).map_err(|e| {
        if probes::has_tcx() {
            return e;
        }
        Error::new(
            &device.name,
            "this kernel has no tcx links",
            "use Linux 6.6 or later",
        )
    })
}

/// Attaches a program to a cgroup or a network namespace, in addition to others.
pub fn attach_to(
    program: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    kind: libbpf_sys::bpf_attach_type,
) -> Result<OwnedFd> {
    create(program, target.as_raw_fd(), kind)
}

/// The IDs of the programs that are attached to a cgroup itself, and their attach flags.
pub fn cgroup_programs(
    cgroup: BorrowedFd<'_>,
    kind: libbpf_sys::bpf_attach_type,
) -> Result<(Vec<u32>, u32)> {
    let mut programs = vec![0; PROGRAMS_MAX];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
        prog_ids: programs.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = PROGRAMS_MAX as u32;
    // SAFETY: the array has the size given in the options, and all live
    // through the call.
    let rc = unsafe { libbpf_sys::bpf_prog_query_opts(cgroup.as_raw_fd(), kind, &mut options) };
    if rc < 0 {
        return Err(Error::last_os("programs of the control group"));
    }
    // SAFETY: the kernel has filled in the number.
    programs.truncate(unsafe { options.__bindgen_anon_1.count } as usize);
    Ok((programs, options.attach_flags))
}

/// Attaches a program to the kernel function that it was loaded for.
pub fn attach_modify_return(program: BorrowedFd<'_>) -> Result<OwnedFd> {
    create(program, 0, libbpf_sys::BPF_MODIFY_RETURN)
}

fn create(
    program: BorrowedFd<'_>,
    target: i32,
    kind: libbpf_sys::bpf_attach_type,
) -> Result<OwnedFd> {
    create_with(program, target, kind, &create_options())
}

fn create_options() -> libbpf_sys::bpf_link_create_opts {
    libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        ..Default::default()
    }
}

fn create_with(
    program: BorrowedFd<'_>,
    target: i32,
    kind: libbpf_sys::bpf_attach_type,
    options: &libbpf_sys::bpf_link_create_opts,
) -> Result<OwnedFd> {
    // SAFETY: the descriptor is open, the options live through the call.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), target, kind, options) };
    owned(fd, "attaching the program")
}

/// The kernel's IDs of a program on a device and of its link.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    pub program: u32,
    pub link: u32,
}

/// The programs of a device of this network namespace, in the order in which they run.
pub fn tcx_programs(device: u32, direction: Direction) -> Result<Vec<Attached>> {
    let (mut programs, mut links) = ([0; PROGRAMS_MAX], [0; PROGRAMS_MAX]);
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
        prog_ids: programs.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = PROGRAMS_MAX as u32;
    // SAFETY: the arrays have the size given in the options, and all live
    // through the call.
    let rc =
        unsafe { libbpf_sys::bpf_prog_query_opts(device as i32, direction.kind(), &mut options) };
    if rc < 0 {
        return Err(Error::last_os("programs of the device"));
    }
    // SAFETY: the kernel has filled in the number.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    let all = programs.into_iter().zip(links).take(count);
    Ok(all
        .map(|(program, link)| Attached { program, link })
        .collect())
}

/// The index of a tcx link's device, in the device's network namespace; 0 if the device no
/// longer exists.
pub fn device_of(info: &libbpf_sys::bpf_link_info) -> u32 {
    // SAFETY: the kernel fills this member for tcx links.
    unsafe { info.__bindgen_anon_1.tcx.ifindex }
}

/// Replaces the program of a link atomically: no packet passes without a program.
pub fn replace(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<()> {
    let options = libbpf_sys::bpf_link_update_opts {
        sz: size_of::<libbpf_sys::bpf_link_update_opts>() as _,
        ..Default::default()
    };
    // SAFETY: both descriptors are open, the options live through the call.
    let rc =
        unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), &options) };
    match rc {
        0 => Ok(()),
        _ => Err(Error::last_os("replacing the program")),
    }
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

/// Opens the object that is pinned at a path.
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

/// The ID of the cgroup that a link is attached to.
pub fn cgroup_of(fd: BorrowedFd<'_>) -> Result<u64> {
    // SAFETY: the kernel fills this member for cgroup links, and ours are such links.
    Ok(unsafe { info(fd)?.__bindgen_anon_1.cgroup.cgroup_id })
}

/// Detaches a link, even if another process holds it open.
pub fn detach(fd: BorrowedFd<'_>) {
    // SAFETY: the descriptor is open. A link that is already gone is fine.
    unsafe { libbpf_sys::bpf_link_detach(fd.as_raw_fd()) };
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        Error::new(
            path.display().to_string(),
            "contains a zero byte",
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

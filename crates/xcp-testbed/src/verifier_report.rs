// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Loads the programs and reads the verifier's costs.

use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::Object;
use xcp_datapath::internal::{cloud, host, netns, object, router};
use xcp_datapath::router::Options;
use xcp_datapath::wire::IP_PROTO;
use xcp_datapath::{features, socket, Result};

use crate::{image, last_os};

/// A program that the kernel has loaded.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The program's name in bpf/.
    pub name: String,
    /// Number of instructions that the verifier processed, including repeated ones.
    pub instructions: u32,
}

/// Loads all programs that this kernel supports. The routers are loaded once for each of
/// these numbers of processors.
pub fn load_all(processors: &[u32]) -> Result<Vec<Verified>> {
    let plain = |image| object::load(image, object::open(image)?);
    let mut objects = vec![
        host::load_control(object::open(&object::CC)?)?,
        plain(&object::OPTION)?,
        object::load(
            &object::DEVICE,
            host::open_device(netns::cookie()?, 14, IP_PROTO)?,
        )?,
        plain(&object::GATEWAY)?,
        plain(&image::MEDIUM)?,
        plain(&image::TEST_TC)?,
    ];
    for processors in processors {
        objects.push(router::load_for(*processors, 14, Options::default())?);
        objects.push(cloud::load_for(*processors, 14, 1)?);
    }
    if features::has_qdisc() {
        objects.push(plain(&object::QDISC)?);
    }
    if let Ok(protocol) = host::load_socket(None, socket::DEFAULT_NUMBER) {
        objects.push(protocol);
    }
    let programs = objects.iter().flat_map(Object::progs);
    programs
        .filter(|p| p.autoload())
        .map(|p| {
            Ok(Verified {
                name: p.name().to_string_lossy().into_owned(),
                instructions: verified_instructions(p.as_fd())?,
            })
        })
        .collect()
}

fn verified_instructions(program: BorrowedFd<'_>) -> Result<u32> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the descriptor is open; the length is that of the record.
    let rc =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut size) };
    if rc < 0 {
        return Err(last_os("loaded program"));
    }
    Ok(info.verified_insns)
}

/// Loads a program that every verifier rejects: it reads past the end of a packet.
pub fn load_refused() -> Result<()> {
    image::load_only("xcp_refused").map(drop)
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The compiled programs of bpf/ that are only for tests and the lab.

use libbpf_rs::{Object, OpenObject};
use xcp_datapath::internal::object::{self, Image};
use xcp_datapath::Result;

macro_rules! image {
    ($name:literal, $feature:literal) => {
        Image::new(
            $name,
            $feature,
            include_bytes!(concat!(env!("XCP_BPF_OBJECTS"), "/", $name, ".bpf.o")),
        )
    };
}

pub const MEDIUM: Image = image!("medium", "departure times of packets (tc)");
pub const TEST_TC: Image = image!("test_tc", "packet programs on egress (tc)");

/// Opens the object of test programs so that only one program will be loaded.
pub fn open_only(program: &str) -> Result<OpenObject> {
    let mut open = object::open(&TEST_TC)?;
    for mut other in open.progs_mut() {
        let wanted = other.name() == program;
        other.set_autoload(wanted);
    }
    Ok(open)
}

/// Loads one program from the object of test programs.
pub fn load_only(program: &str) -> Result<Object> {
    object::load(&TEST_TC, open_only(program)?)
}

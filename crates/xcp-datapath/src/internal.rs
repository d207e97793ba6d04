// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Unstable interface for xcp-testbed: what tests and the lab need of this crate.

pub use crate::kernel::error::{is_root, require_root};
pub use crate::kernel::rtnl::Device;

pub mod bpffs {
    pub use crate::pinned::bpffs::{dir, mark};
}

pub mod cloud {
    pub use crate::cloud::load_for;
}

pub mod host {
    pub use crate::host::device::open as open_device;
    pub use crate::host::peers::key as peer_key;
    pub use crate::host::socket::load as load_socket;
    pub use crate::host::{load_control, BUILD, PART};
}

pub mod layout {
    pub use crate::pinned::layout::mark;
}

pub mod bpf_link {
    pub use crate::kernel::bpf_link::{
        attach_tcx, attach_to, cgroup_programs, open, Direction, Place,
    };
}

pub mod netns {
    pub use crate::kernel::netns::cookie;
}

pub mod object {
    pub use crate::kernel::object::{
        cpus, failure, load, map, map_mut, missing, open, pinned_map, program, read_per_cpu,
        read_record, set_data, write_record, Image, CC, DEVICE, GATEWAY, OPTION, QDISC, ROUTER,
    };
}

pub mod router {
    pub use crate::router::counters::sum_counters;
    pub use crate::router::folder::{readable, COMPLETE, MAPS, PROGRAM};
    pub use crate::router::lifecycle::{load, load_for};
}

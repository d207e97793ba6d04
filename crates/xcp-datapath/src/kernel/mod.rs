// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Kernel interfaces: BPF objects and links, netlink, namespaces, control groups, and
//! probes of kernel features.

pub mod bpf_link;
pub mod cgroup;
pub mod clock;
pub mod error;
pub mod ethtool;
pub mod interrupt;
pub mod load_error;
pub mod mounts;
pub mod netem;
pub mod netns;
pub mod object;
pub mod offload;
pub mod policy_routing;
pub mod probes;
pub mod rtnl;
pub mod sock_diag;

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A test for each failure seen on real networks. The lab runs these tests on other
//! kernels too, where the only tools are ip, tc, nsenter and ethtool.

mod cgroups;
mod closed_pipes;
pub mod configuration;
mod cubic_by_name;
mod deleted_namespaces;
mod fraglist_gro;
mod mount_namespaces;
pub mod option_space;
mod pacing;
mod router_show;
mod run_leftover;
mod socket_options;
pub mod token_bucket;

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Names of network devices.

use nix::net::if_::if_nametoindex;

/// Whether two names, which may be alternative names, name the same device.
pub fn is_same_device(one: &str, other: &str) -> bool {
    one == other || if_nametoindex(one).is_ok_and(|index| if_nametoindex(other) == Ok(index))
}

/// Whether one of these names names the device.
pub fn contains(names: &[String], device: &str) -> bool {
    names.iter().any(|name| is_same_device(name, device))
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Network devices and namespaces, as far as attaching needs them.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::{Error, Result};

/// A device of this thread's network namespace.
#[derive(Clone, Debug)]
pub struct Device {
    pub name: String,
    pub index: u32,
    /// Bytes of link-layer header in front of IP, 14 or 0.
    pub l2_len: u32,
}

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

impl Device {
    pub fn find(name: &str) -> Result<Self> {
        let unknown = || {
            Error::new(
                name,
                "no such network device here",
                "list the devices with `ip link`",
            )
        };
        let c_name = CString::new(name).map_err(|_| unknown())?;
        // SAFETY: the argument is a C string.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if index == 0 {
            return Err(unknown());
        }
        let l2_len = match hardware_type(&c_name)? {
            ARPHRD_ETHER | ARPHRD_LOOPBACK => 14,
            _ => 0,
        };
        Ok(Self {
            name: name.to_owned(),
            index,
            l2_len,
        })
    }
}

/// ARPHRD_ value of a device. By ioctl: /sys shows the mounting namespace's.
fn hardware_type(name: &CStr) -> Result<u16> {
    // SAFETY: a zeroed ifreq is valid; the name fits, as if_nametoindex knew
    // it; the socket is closed on every way out.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.to_bytes()) {
            *to = *from as libc::c_char;
        }
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(Error::last_os("socket"));
        }
        let rc = libc::ioctl(socket, libc::SIOCGIFHWADDR as _, &mut request);
        let error = Error::last_os(name.to_string_lossy());
        libc::close(socket);
        if rc != 0 {
            return Err(error);
        }
        Ok(request.ifr_ifru.ifru_hwaddr.sa_family)
    }
}

/// The name of the device with this index, if it still exists.
pub fn name_of(index: u32) -> Option<String> {
    let mut name = [0 as libc::c_char; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that the call asks for.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the call has put a C string there.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Some(name.to_string_lossy().into_owned())
}

/// The number of this thread's network namespace.
pub fn netns() -> Result<u64> {
    let path = "/proc/thread-self/ns/net";
    fs::metadata(path)
        .map(|m| m.ino())
        .map_err(|e| Error::io(path, &e))
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A device's features and speed, through the kernel's ethtool interface.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::{Error, Result};

const GSET: u32 = 0x01;
const GSTRINGS: u32 = 0x1b;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
const SET_FEATURES: u32 = 4;
const NAME_LEN: usize = 32;

/// A socket for ethtool requests to one device.
struct Channel {
    device: CString,
    socket: OwnedFd,
}

/// The speed of a device, bytes per second, if its driver reports one.
pub fn speed(device: &str) -> Option<u64> {
    /// Size of `struct ethtool_cmd`, in words. The lower halves of words LOW and HIGH are the
    /// speed in Mb/s.
    const WORDS: usize = 11;
    const LOW: usize = 3;
    const HIGH: usize = 7;
    const UNKNOWN_MBIT: u32 = u32::MAX;
    let mut settings = [0; WORDS];
    settings[0] = GSET;
    Channel::of(device).ok()?.call(&mut settings).ok()?;
    let mbit = settings[HIGH] << 16 | settings[LOW] & 0xffff;
    (mbit != 0 && mbit != UNKNOWN_MBIT && mbit != 0xffff).then(|| u64::from(mbit) * 125_000)
}

/// The features of one device.
pub struct Features {
    channel: Channel,
    names: Vec<String>,
}

impl Features {
    /// Reads the names of the device's features.
    pub fn of(device: &str) -> Result<Self> {
        let mut features = Self {
            channel: Channel::of(device)?,
            names: Vec::new(),
        };
        // cmd, reserved, mask of sets (64 bits), one count
        let mut info = [GSSET_INFO, 0, 1 << SET_FEATURES, 0, 0];
        features.channel.call(&mut info)?;
        let count = info[4] as usize;
        // cmd, set, count, names
        let mut strings = vec![0u32; 3 + count * NAME_LEN / 4];
        strings[..3].copy_from_slice(&[GSTRINGS, SET_FEATURES, count as u32]);
        features.channel.call(&mut strings)?;
        let bytes: Vec<u8> = strings[3..].iter().flat_map(|w| w.to_ne_bytes()).collect();
        features.names = bytes
            .chunks(NAME_LEN)
            .map(|name| {
                let end = name.iter().position(|b| *b == 0).unwrap_or(NAME_LEN);
                String::from_utf8_lossy(&name[..end]).into_owned()
            })
            .collect();
        Ok(features)
    }

    fn place(&self, name: &str) -> Option<(usize, u32)> {
        let index = self.names.iter().position(|n| n == name)?;
        Some((index / 32, 1 << (index % 32)))
    }

    /// Whether a feature exists and is on.
    pub fn is_on(&self, name: &str) -> Result<bool> {
        let Some((block, bit)) = self.place(name) else {
            return Ok(false);
        };
        // cmd, blocks; per block: available, requested, active, never changed
        let blocks = self.names.len().div_ceil(32);
        let mut get = vec![0u32; 2 + 4 * blocks];
        get[..2].copy_from_slice(&[GFEATURES, blocks as u32]);
        self.channel.call(&mut get)?;
        let active = get[2 + 4 * block + 2];
        Ok(active & bit != 0)
    }

    /// Switches a feature on or off; ignores one that does not exist.
    pub fn set(&self, name: &str, on: bool) -> Result<()> {
        let Some((block, bit)) = self.place(name) else {
            return Ok(());
        };
        // cmd, blocks; per block: mask, values
        let blocks = self.names.len().div_ceil(32);
        let mut set = vec![0u32; 2 + 2 * blocks];
        set[..2].copy_from_slice(&[SFEATURES, blocks as u32]);
        set[2 + 2 * block] = bit;
        set[3 + 2 * block] = if on { bit } else { 0 };
        self.channel.call(&mut set)
    }
}

impl Channel {
    fn of(device: &str) -> Result<Self> {
        // SAFETY: plain values; the result is checked and owned at once.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(Error::last_os("socket"));
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self {
            device: CString::new(device).unwrap_or_default(),
            socket,
        })
    }

    fn call(&self, data: &mut [u32]) -> Result<()> {
        // SAFETY: a zeroed ifreq is valid; the name is truncated to fit and
        // ends in a zero; the kernel writes no more than the command's
        // record, and `data` has that size.
        let rc = unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            let name = self.device.to_bytes().iter().take(libc::IFNAMSIZ - 1);
            for (to, from) in request.ifr_name.iter_mut().zip(name) {
                *to = *from as libc::c_char;
            }
            request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
            libc::ioctl(
                self.socket.as_raw_fd(),
                libc::SIOCETHTOOL as _,
                &mut request,
            )
        };
        if rc < 0 {
            return Err(Error::last_os(self.device.to_string_lossy()));
        }
        Ok(())
    }
}

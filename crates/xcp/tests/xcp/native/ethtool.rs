// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Changes settings of a device as ethtool does.

use std::io;

/// Reads a record of settings with the command `get`, changes its words, and writes it
/// with the command `set`. The record has N words; the first is the command.
fn change<const N: usize>(
    device: &str,
    (get, set): (u32, u32),
    change: impl FnOnce(&mut [u32; N]),
) -> io::Result<()> {
    // SAFETY: a zeroed ifreq is valid, the name fits, and the record has the same size
    // as in the kernel; the socket is closed at the end.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let mut record = [0u32; N];
        let ask = |record: &mut [u32; N]| {
            let mut request: libc::ifreq = std::mem::zeroed();
            for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_data = record.as_mut_ptr().cast();
            match libc::ioctl(socket, libc::SIOCETHTOOL as _, &mut request) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        record[0] = get;
        let done = ask(&mut record).and_then(|()| {
            record[0] = set;
            change(&mut record);
            ask(&mut record)
        });
        libc::close(socket);
        done
    }
}

/// Does the same as `ethtool -s DEVICE speed MBIT`.
pub fn set_speed(device: &str, mbit: u32) -> io::Result<()> {
    const GET_SET: (u32, u32) = (1, 2);
    const SPEED: usize = 3;
    const SPEED_HIGH: usize = 7;
    change::<11>(device, GET_SET, |record| {
        record[SPEED] = record[SPEED] & 0xffff_0000 | mbit & 0xffff;
        record[SPEED_HIGH] = record[SPEED_HIGH] & 0xffff_0000 | mbit >> 16;
    })
}

/// Does the same as `ethtool -L DEVICE tx N`.
pub fn set_queues(device: &str, count: u32) -> io::Result<()> {
    const GET_SET: (u32, u32) = (0x3c, 0x3d);
    const TX_COUNT: usize = 6;
    change::<9>(device, GET_SET, |record| record[TX_COUNT] = count)
}

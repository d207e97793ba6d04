// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A tap on a device: a packet socket with a ring, into which the kernel copies
//! all frames that the device sends. The copies share no memory with the run's
//! own packets.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{Error, Result};

/// A block holds any complete frame, GSO packets included.
const BLOCK_BYTES: usize = 1 << 18;
const BLOCKS: usize = 32;
const RING_BYTES: usize = BLOCK_BYTES * BLOCKS;
const ALL_PROTOCOLS: u16 = libc::ETH_P_ALL as u16;
/// The kernel hands over a partly filled block after at most twice this time.
const HAND_OVER_MS: u32 = 50;
/// After this wait the kernel has handed over all frames sent before it.
pub const SETTLE: Duration = Duration::from_millis(4 * HAND_OVER_MS as u64);

/// A frame that the device has sent.
pub struct Frame<'a> {
    /// The time on the real-time clock.
    pub time: Duration,
    /// The whole frame.
    pub bytes: &'a mut [u8],
    pub length: u32,
    /// The checksum is not filled in: the sender left it to a device.
    pub no_checksum: bool,
}

/// An open tap.
pub struct Tap {
    socket: OwnedFd,
    ring: NonNull<u8>,
    /// The index of the block that the kernel hands over next.
    next: usize,
}

impl Tap {
    /// Opens a tap on a device of the calling thread's network namespace.
    pub fn open(device: &str) -> Result<Self> {
        Self::try_open(device).map_err(|e| Error::io(format!("capturing on {device}"), &e))
    }

    fn try_open(device: &str) -> io::Result<Self> {
        let name = std::ffi::CString::new(device).unwrap_or_default();
        // SAFETY: the argument is a C string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // protocol 0: receives nothing until it is bound
        // SAFETY: plain values; the result is checked and owned at once.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: socket returned this descriptor to us alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        only_outgoing(&socket)?;
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: BLOCKS as u32,
            // the kernel only checks that it divides a block: frames have any
            // length
            tp_frame_size: BLOCK_BYTES as u32,
            tp_frame_nr: BLOCKS as u32,
            tp_retire_blk_tov: HAND_OVER_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let tap = Self {
            ring: map(&socket)?,
            socket,
            next: 0,
        };
        tap.bind(index)?;
        Ok(tap)
    }

    fn bind(&self, device: u32) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ALL_PROTOCOLS.to_be(),
            sll_ifindex: device as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address is initialised and of the given length.
        check(unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        })
    }

    /// Calls `each` for every frame that the kernel has handed over, in order.
    pub fn read(&mut self, mut each: impl FnMut(Frame)) {
        loop {
            // SAFETY: `next` is below BLOCKS, so the block is in the ring,
            // which is mapped as long as self; blocks are aligned to pages.
            let block: *mut libc::tpacket_block_desc =
                unsafe { self.ring.add(self.next * BLOCK_BYTES) }
                    .as_ptr()
                    .cast();
            // SAFETY: the status is a u32 within the block, aligned, and shared
            // only with the kernel, which hands over blocks by it.
            let status = unsafe { AtomicU32::from_ptr(&raw mut (*block).hdr.bh1.block_status) };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return;
            }
            // SAFETY: the kernel does not touch a block that it has handed
            // over; any bytes are valid integers.
            let head = unsafe { (*block).hdr.bh1 };
            // SAFETY: as above; the slice is dropped before the block is given
            // back.
            let bytes = unsafe { std::slice::from_raw_parts_mut(block.cast(), BLOCK_BYTES) };
            frames(bytes, &head, &mut each);
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % BLOCKS;
        }
    }

    /// Returns how many frames did not fit into the ring since the last call.
    pub fn lost(&self) -> Result<u64> {
        let mut length = size_of::<libc::tpacket_stats_v3>() as u32;
        let mut stats = libc::tpacket_stats_v3 {
            tp_packets: 0,
            tp_drops: 0,
            tp_freeze_q_cnt: 0,
        };
        // SAFETY: the kernel writes at most the given length of the record.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &mut length,
            )
        })
        .map_err(|e| Error::io("PACKET_STATISTICS", &e))?;
        Ok(stats.tp_drops.into())
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // SAFETY: mapped in open with this length, and owned by self alone.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), RING_BYTES) };
    }
}

/// Calls `each` for every frame of a block.
fn frames(block: &mut [u8], head: &libc::tpacket_hdr_v1, each: &mut impl FnMut(Frame)) {
    let mut at = head.offset_to_first_pkt as usize;
    for _ in 0..head.num_pkts {
        let Some(header) = header_at(block, at) else {
            return;
        };
        let begin = at + usize::from(header.tp_mac);
        let Some(bytes) = block.get_mut(begin..begin + header.tp_snaplen as usize) else {
            return;
        };
        each(Frame {
            time: Duration::new(header.tp_sec.into(), header.tp_nsec),
            bytes,
            length: header.tp_len,
            no_checksum: header.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0,
        });
        at += header.tp_next_offset as usize;
    }
}

fn header_at(block: &[u8], at: usize) -> Option<libc::tpacket3_hdr> {
    let bytes = block.get(at..at.checked_add(size_of::<libc::tpacket3_hdr>())?)?;
    // SAFETY: the slice is as long as the record, which is made of integers.
    Some(unsafe { bytes.as_ptr().cast::<libc::tpacket3_hdr>().read_unaligned() })
}

/// Attaches a filter for outgoing frames, so that others take no space in the
/// ring.
fn only_outgoing(socket: &OwnedFd) -> io::Result<()> {
    let step = |code: u32, k: u32, otherwise: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: otherwise,
        k,
    };
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, packet_type, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::PACKET_OUTGOING.into(),
            1,
        ),
        step(libc::BPF_RET | libc::BPF_K, u32::MAX, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn map(socket: &OwnedFd) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping, of the ring's length; the result is checked.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            RING_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            socket.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))
}

fn set_option<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length describe the value.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            size_of::<T>() as u32,
        )
    })
}

fn check(rc: i32) -> io::Result<()> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

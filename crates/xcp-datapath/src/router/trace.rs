// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The trace of a router: one record per control interval in which XCP packets arrived.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, RingBuffer, RingBufferBuilder};
use libbpf_sys::bpf_map_create_opts;
use serde::{Deserialize, Serialize};

use crate::rtnl::{self, Device};
use crate::{object, Error, Result};
use xcp_abi::{xcp_router_record, Record, XCP_FLOW_BITS, XCP_SHARE_ONE};

/// The pin of the map that holds a reader's ring buffer, next to the router's other maps.
pub(crate) const PIN: &str = "trace";
/// The only key of that map.
const KEY: [u8; 4] = [0; 4];
/// Room for about 1,000 unread records.
const RING_BYTES: u32 = 128 * 1024;

/// One control interval, and the router's decisions for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The end of the interval, on the monotonic clock.
    pub time_s: f64,
    pub interval_s: f64,
    /// d, the average RTT of the traffic.
    pub average_rtt_s: f64,
    /// The capacity that XCP may hand out, bits per second.
    pub capacity_bps: u64,
    /// The measured capacity of the link, bits per second, if known.
    pub link_bps: Option<u64>,
    /// y, the input traffic that counts against the capacity, bits per second.
    pub input_rate_bps: u64,
    /// Input traffic of the other queue, bits per second.
    pub other_rate_bps: u64,
    /// The backlog of the device's queues.
    pub queue_bytes: u64,
    /// Q, the minimum backlog of the last estimation interval.
    pub persistent_queue_bytes: u64,
    /// F, the aggregate feedback, bits per second.
    pub feedback_bps: i64,
    /// The pool of increases, bits per second.
    pub increase_bps: u64,
    /// The pool of decreases, bits per second.
    pub decrease_bps: u64,
    /// XCP's share of the link, if it is weighted against other traffic.
    pub xcp_share: Option<f64>,
    /// N, the number of XCP flows, computed from their headers.
    pub xcp_flows: f64,
}

impl Interval {
    /// The header line of the CSV table: the names of the fields.
    #[must_use]
    pub fn csv_head() -> String {
        COLUMNS.map(|(name, _)| name).join(",")
    }

    /// A row of the CSV table; an unknown value is empty.
    #[must_use]
    pub fn csv(&self) -> String {
        COLUMNS.map(|(_, value)| value(self)).join(",")
    }
}

/// One flow, in the fixed-point unit of the records.
pub(crate) const FLOW: f64 = (1u32 << XCP_FLOW_BITS) as f64;

/// A column of the CSV table: the name of a field, and a function that returns its value.
type Column = (&'static str, fn(&Interval) -> String);

const COLUMNS: [Column; 14] = [
    ("time_s", |i| i.time_s.to_string()),
    ("interval_s", |i| i.interval_s.to_string()),
    ("average_rtt_s", |i| i.average_rtt_s.to_string()),
    ("capacity_bps", |i| i.capacity_bps.to_string()),
    ("link_bps", |i| known(i.link_bps)),
    ("input_rate_bps", |i| i.input_rate_bps.to_string()),
    ("other_rate_bps", |i| i.other_rate_bps.to_string()),
    ("queue_bytes", |i| i.queue_bytes.to_string()),
    ("persistent_queue_bytes", |i| {
        i.persistent_queue_bytes.to_string()
    }),
    ("feedback_bps", |i| i.feedback_bps.to_string()),
    ("increase_bps", |i| i.increase_bps.to_string()),
    ("decrease_bps", |i| i.decrease_bps.to_string()),
    ("xcp_share", |i| known(i.xcp_share)),
    ("xcp_flows", |i| i.xcp_flows.to_string()),
];

fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |v| v.to_string())
}

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

impl From<xcp_router_record> for Interval {
    fn from(r: xcp_router_record) -> Self {
        Self {
            time_s: seconds(r.time_ns),
            interval_s: seconds(r.interval_ns),
            average_rtt_s: seconds(r.d_ns),
            capacity_bps: r.capacity_Bps * 8,
            link_bps: (r.link_Bps > 0).then_some(r.link_Bps * 8),
            input_rate_bps: r.y_Bps * 8,
            other_rate_bps: r.other_Bps * 8,
            queue_bytes: r.backlog_B,
            persistent_queue_bytes: r.queue_B,
            feedback_bps: r.f_Bps * 8,
            increase_bps: r.pos_Bps * 8,
            decrease_bps: r.neg_Bps * 8,
            xcp_share: (r.share > 0).then_some(f64::from(r.share) / f64::from(XCP_SHARE_ONE)),
            xcp_flows: f64::from(r.flows) / FLOW,
        }
    }
}

/// A ring buffer that receives a router's records. A router has one only while it is read.
pub struct Ring {
    holder: MapHandle,
    ring: RingBuffer<'static>,
    read: Rc<RefCell<VecDeque<xcp_router_record>>>,
}

impl Drop for Ring {
    fn drop(&mut self) {
        // the router may have been removed
        let _ = self.holder.delete(&KEY);
    }
}

impl Ring {
    /// Gives the router a ring buffer; `holder` is its map `trace`.
    #[doc(hidden)]
    pub fn insert(holder: MapHandle) -> Result<Self> {
        let failure = |e| object::failure(PIN, &e);
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let map = MapHandle::create(
            MapType::RingBuf,
            Some("xcp_trace"),
            0,
            0,
            RING_BYTES,
            &options,
        )
        .map_err(failure)?;
        let read = Rc::new(RefCell::new(VecDeque::new()));
        let into = read.clone();
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |bytes| {
                into.borrow_mut()
                    .extend(xcp_router_record::from_bytes(bytes));
                0
            })
            .map_err(failure)?;
        let ring = builder.build().map_err(failure)?;
        let fd = map.as_fd().as_raw_fd().to_ne_bytes();
        holder.update(&KEY, &fd, MapFlags::ANY).map_err(failure)?;
        Ok(Self { holder, ring, read })
    }

    /// The next record; None after the timeout or a signal.
    pub fn next(&self, timeout: Duration) -> Result<Option<Interval>> {
        let mut next = self.read.borrow_mut().pop_front();
        if next.is_none() {
            let rc = if timeout.is_zero() {
                self.ring.consume_raw()
            } else {
                self.ring.poll_raw(timeout)
            };
            if rc < 0 && rc != -libc::EINTR {
                return Err(Error::io(PIN, &io::Error::from_raw_os_error(-rc)));
            }
            next = self.read.borrow_mut().pop_front();
        }
        Ok(next.map(Interval::from))
    }
}

/// The trace of a device's router.
pub struct Trace {
    ring: Ring,
    device: Device,
    pin: PathBuf,
    map: u32,
    /// Locked, because two readers of a ring would take each other's records.
    _folder: File,
}

impl Trace {
    pub(crate) fn open(device: &Device, dir: PathBuf) -> Result<Self> {
        let pin = dir.join(PIN);
        if !object::exists(&pin) {
            return Err(object::other_version(&device.name));
        }
        let folder = lock(&dir, &device.name)?;
        let map = object::pinned_map(&pin)?;
        Ok(Self {
            map: object::map_id(&map)?,
            ring: Ring::insert(map)?,
            device: device.clone(),
            pin,
            _folder: folder,
        })
    }

    /// The next control interval; None after the timeout (zero: returns at once) or a signal.
    pub fn next(&self, timeout: Duration) -> Result<Option<Interval>> {
        self.ring.next(timeout)
    }

    /// Whether the router or its device has been removed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let present = object::pinned_map(&self.pin).and_then(|map| object::map_id(&map));
        present.ok() != Some(self.map)
            || rtnl::name_of(self.device.index).as_ref() != Some(&self.device.name)
    }
}

/// Removes the ring buffer of a reader that was killed. The caller holds the command lock, so
/// no new reader can start meanwhile.
pub(crate) fn free_unread(dir: &Path) {
    if let (Ok(_folder), Ok(holder)) = (lock(dir, ""), object::pinned_map(&dir.join(PIN))) {
        let _ = holder.delete(&KEY);
    }
}

fn lock(dir: &Path, dev: &str) -> Result<File> {
    let thing = || dir.display().to_string();
    let folder = File::open(dir).map_err(|e| Error::io(thing(), &e))?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(folder);
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::WouldBlock => Err(Error::new(
            dev,
            "its trace is being read already",
            "end the other xcp router trace, or the lab run, first",
        )),
        e => Err(Error::io(thing(), &e)),
    }
}

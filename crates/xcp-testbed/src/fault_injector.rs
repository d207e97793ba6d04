// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Fault injection on a real device: strips options and drops packets.

use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::Object;
use xcp_abi::Record;
use xcp_datapath::internal::bpf_link::{self, Direction, Place};
use xcp_datapath::internal::{object, Device};
use xcp_datapath::Result;

use crate::image;

/// The faults to inject into the XCP packets that a device sends.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultPlan {
    /// Bit mask. Strip the XCP option from SYNs (bit 0), SYN-ACKs (bit 1) and pure ACKs
    /// (bit 2); strip the option that announces support for totals from SYNs (bit 3) and
    /// SYN-ACKs (bit 4).
    pub strip: u32,
    /// Drop the first and the third of every n XCP packets; 0 for none.
    pub drop_every: u32,
    /// Drop pure ACKs instead of data packets.
    pub drop_return: u32,
    /// Drop this many SYN-ACKs, with or without XCP.
    pub drop_syn_acks: u32,
}

/// The counters of the test programs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultCounters {
    pub stripped: u64,
    pub seen: u64,
    pub dropped: u64,
    pub lost_delta_bytes_per_s: i64,
    pub lost_feedback_bytes_per_s: i64,
    /// Packets with a forward part in the format `option`; a GSO packet counts as one.
    pub forward: u64,
    /// Sum over these packets of the number of routers without XCP on their path.
    pub other_hops: u64,
    /// Callbacks of [`crate::ForeignProgram::of_sockets`].
    pub rtts: u64,
    /// GSO packets whose number of segments was cleared by
    /// [`crate::ForeignProgram::clearing_gso_segs`].
    pub forgotten: u64,
    /// Packets on the wire with a forward part. All segments of a GSO packet count, since they
    /// have its header.
    pub forward_packets: u64,
    /// Sum of the deltas of these packets, in the unit of their format.
    pub delta: i64,
}

// SAFETY: integers only, in C order.
unsafe impl Record for FaultPlan {}
// SAFETY: integers only, in C order.
unsafe impl Record for FaultCounters {}

/// Injects faults on a device until dropped.
pub struct FaultInjector {
    object: Object,
    _link: OwnedFd,
}

impl FaultInjector {
    /// Starts on a device of this network namespace, after the programs attached there.
    pub fn start(dev: &str, plan: FaultPlan) -> Result<Self> {
        let device = Device::find(dev)?;
        let mut open = image::open_only("xcp_fault")?;
        object::set_data(&mut open, ".data.config", &plan)?;
        let object = object::load(&image::TEST_TC, open)?;
        let program = object::program(&object, "xcp_fault")?;
        let link = bpf_link::attach_tcx(program.as_fd(), &device, Direction::Egress, Place::Last)?;
        Ok(Self {
            object,
            _link: link,
        })
    }

    /// The counters so far.
    pub fn account(&self) -> Result<FaultCounters> {
        object::read_record(&object::map(&self.object, ".data.account")?, 0)
    }

    /// Changes the plan while faults are injected.
    pub fn plan(&self, plan: FaultPlan) -> Result<()> {
        object::write_record(&object::map(&self.object, ".data.config")?, &plan)
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Accidents on a real device: options that are stripped, packets that are lost.

use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::Object;
use xcp_abi::Record;
use xcp_datapath::internal::link::{self, Direction, Place};
use xcp_datapath::internal::{object, Device};
use xcp_datapath::Result;

use crate::image;

/// What an accident does to and tells of the XCP packets that leave a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultPlan {
    /// Strip the option from SYNs (bit 0), SYN-ACKs (bit 1), pure ACKs (bit 2);
    /// what says that totals are understood from SYNs (bit 3), SYN-ACKs (bit 4).
    pub strip: u32,
    /// Of every n XCP packets drop the first and the third; 0 for none.
    pub drop_every: u32,
    /// Drop pure ACKs rather than data.
    pub drop_return: u32,
    /// Drop so many SYN-ACKs, in any format or none.
    pub drop_syn_acks: u32,
}

/// What it did.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultCounters {
    pub stripped: u64,
    pub seen: u64,
    pub dropped: u64,
    pub lost_delta_bytes_per_s: i64,
    pub lost_feedback_bytes_per_s: i64,
    /// Options `option` that tell of the way.
    pub forward: u64,
    /// Routers that were not XCP, as they tell, of all.
    pub other_hops: u64,
    /// Callbacks of [`crate::ForeignProgram::of_sockets`].
    pub rtts: u64,
    /// Super-packets of [`crate::ForeignProgram::who_forgets`].
    pub forgotten: u64,
    /// Wire packets with a forward header, as the device's programs see them:
    /// all packets of a GSO packet have its header.
    pub forward_packets: u64,
    /// The sum of their deltas, in the unit of their format.
    pub delta: i64,
}

// SAFETY: integers only, in C order.
unsafe impl Record for FaultPlan {}
// SAFETY: integers only, in C order.
unsafe impl Record for FaultCounters {}

/// An accident in progress on a device, over when dropped.
pub struct FaultInjector {
    object: Object,
    _link: OwnedFd,
}

impl FaultInjector {
    /// Begins on a device of this network namespace, behind the programs there.
    pub fn start(dev: &str, plan: FaultPlan) -> Result<Self> {
        let device = Device::find(dev)?;
        let mut open = image::open_only("xcp_accident")?;
        object::set_data(&mut open, ".data.config", &plan)?;
        let object = object::load(&image::TEST_TC, open)?;
        let program = object::program(&object, "xcp_accident")?;
        let link = link::attach_tcx(program.as_fd(), &device, Direction::Egress, Place::Last)?;
        Ok(Self {
            object,
            _link: link,
        })
    }

    /// What it has done so far.
    pub fn account(&self) -> Result<FaultCounters> {
        object::read_record(&object::map(&self.object, ".data.account")?, 0)
    }

    /// Changes the plan while it goes on.
    pub fn plan(&self, plan: FaultPlan) -> Result<()> {
        object::write_record(&object::map(&self.object, ".data.config")?, &plan)
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The lab's half-duplex link: both its devices send through one shaper.

use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::Object;
use xcp_abi::xcp_medium;
use xcp_datapath::internal::bpf_link::{self, Direction, Place};
use xcp_datapath::internal::{object, Device};
use xcp_datapath::router::Framing;
use xcp_datapath::Result;

use crate::image;

/// A medium that two devices share until it is dropped.
pub struct Medium {
    object: Object,
    settings: xcp_medium,
    attached: Vec<OwnedFd>,
}

impl Medium {
    /// Creates a medium with this rate. Each device queues up to `limit_packets`.
    pub fn new(rate_bytes_per_s: u64, framing: Framing, limit_packets: u32) -> Result<Self> {
        let open = object::open(&image::MEDIUM)?;
        let mut medium = Self {
            object: object::load(&image::MEDIUM, open)?,
            settings: xcp_medium {
                limit_packets,
                frame: framing.record(),
                ..xcp_medium::default()
            },
            attached: Vec::new(),
        };
        medium.set_rate(rate_bytes_per_s)?;
        Ok(medium)
    }

    /// Changes the rate for packets that are sent from now on.
    pub fn set_rate(&mut self, bytes_per_s: u64) -> Result<()> {
        self.settings.rate_Bps = bytes_per_s;
        object::write_record(&object::map(&self.object, ".data.medium")?, &self.settings)
    }

    /// Adds a device of this network namespace to the medium. Its root queue discipline
    /// must be fq, which holds packets until their departure time.
    pub fn attach(&mut self, dev: &str) -> Result<()> {
        let device = Device::find(dev)?;
        let program = object::program(&self.object, "xcp_depart")?;
        let attached =
            bpf_link::attach_tcx(program.as_fd(), &device, Direction::Egress, Place::Last)?;
        self.attached.push(attached);
        Ok(())
    }
}

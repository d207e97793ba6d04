// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a link adds to packets, and what the queue discipline `xcp` keeps.

use serde::Serialize;
use xcp_abi::xcp_frame;

/// Of the queue discipline `xcp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes in each of its two queues; 0 for any number.
    pub bytes: u32,
    /// Most packets in each of its two queues; 0 for 1,000.
    pub packets: u32,
    /// Devices with the same number share one medium; 0 for a medium
    /// of its own.
    pub medium: u32,
}

/// What a link adds to packets, in the terms of tc-cake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Framing {
    /// Bytes added to every packet.
    pub overhead_bytes: i32,
    /// Fewer bytes than that are filled up.
    pub mpu_bytes: u32,
    pub cells: Cells,
}

/// How a link cuts packets up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cells {
    #[default]
    None,
    /// 48 bytes in 53.
    Atm,
    /// 64 bytes in 65.
    Ptm,
}

impl Framing {
    pub(crate) fn of(frame: &xcp_frame) -> Self {
        Self {
            overhead_bytes: frame.overhead_B,
            mpu_bytes: frame.mpu_B,
            cells: match frame.cells {
                1 => Cells::Atm,
                2 => Cells::Ptm,
                _ => Cells::None,
            },
        }
    }

    #[doc(hidden)]
    pub fn record(self) -> xcp_frame {
        xcp_frame {
            overhead_B: self.overhead_bytes,
            mpu_B: self.mpu_bytes,
            cells: match self.cells {
                Cells::None => 0,
                Cells::Atm => 1,
                Cells::Ptm => 2,
            },
        }
    }
}

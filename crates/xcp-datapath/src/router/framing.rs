// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A link's per-packet overhead, and the queue limits of the queue discipline `xcp`.

use serde::Serialize;
use xcp_abi::xcp_frame;

/// The limits of the queue discipline `xcp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of bytes in each of its two queues; 0 for no limit.
    pub bytes: u32,
    /// The maximum number of packets in each of its two queues; 0 for 1,000.
    pub packets: u32,
    /// Devices with the same number share one medium; 0 for a separate medium.
    pub medium: u32,
}

/// A link's per-packet overhead, in the terms of tc-cake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Framing {
    /// Bytes added to every packet.
    pub overhead_bytes: i32,
    /// The minimum packet size on the link; shorter packets are padded.
    pub mpu_bytes: u32,
    pub cells: Cells,
}

/// The cells into which a link divides packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cells {
    #[default]
    None,
    /// 48 bytes in cells of 53.
    Atm,
    /// 64 bytes in blocks of 65.
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

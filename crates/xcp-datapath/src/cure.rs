// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What senders do beyond the drafts, by name: each can be switched off, to see
//! what then goes wrong.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One behaviour that can be switched off; `enum xcp_cure` in bpf/intf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum Cure {
    /// Losses and marks that XCP's own queues do not explain are taken for
    /// congestion.
    Losses = 1,
    /// A window is halved for each timeout in which nothing was sent.
    Idle = 2,
    /// Windows, and what is asked for, follow what there is to send.
    Use = 4,
}

impl Cure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Losses, Self::Idle, Self::Use];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Losses => "losses",
            Self::Idle => "idle",
            Self::Use => "use",
        }
    }

    /// The bits of these in `struct xcp_host_config`.
    pub(crate) fn bits(cures: &[Self]) -> u32 {
        cures.iter().fold(0, |bits, cure| bits | *cure as u32)
    }

    /// Those whose bits are set.
    pub(crate) fn of_bits(bits: u32) -> Vec<Self> {
        let is_set = |cure: &Self| bits & *cure as u32 != 0;
        Self::ALL.into_iter().filter(is_set).collect()
    }
}

impl fmt::Display for Cure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Cure {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|cure| cure.name() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("no such behaviour; there are {names}")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_and_a_bit_of_its_own() {
        let mut seen = 0;
        for cure in Cure::ALL {
            assert_eq!(cure.name().parse(), Ok(cure));
            let text = serde_json::to_string(&cure).expect("is a name");
            assert_eq!(text, format!("{:?}", cure.name()));
            let bit = Cure::bits(&[cure, cure]);
            assert!(bit.is_power_of_two() && seen & bit == 0, "{cure}");
            seen |= bit;
            assert_eq!(Cure::of_bits(bit), [cure]);
        }
        assert_eq!(Cure::of_bits(seen), Cure::ALL);
    }
}

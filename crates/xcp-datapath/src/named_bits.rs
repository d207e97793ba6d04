// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Named behaviours that can be switched off. Each is one bit of a record in bpf/ or
//! core/.

/// Defines an enum of named bits, with conversions from and to names and bit sets.
macro_rules! named_bits {
    (
        $(#[$doc:meta])* $enum:ident, $what:literal {
            $($(#[$each:meta])* $variant:ident = $bit:ident $name:literal,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[repr(u32)]
        pub enum $enum {
            $($(#[$each])* $variant = xcp_abi::$bit,)+
        }

        impl $enum {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// All names, separated by commas, for messages.
            #[must_use]
            pub fn names() -> String {
                [$($name,)+].join(", ")
            }

            /// The bit set of these variants.
            pub(crate) fn bits(these: &[Self]) -> u32 {
                these.iter().fold(0, |bits, this| bits | *this as u32)
            }

            /// The variants whose bits are set.
            pub(crate) fn of_bits(bits: u32) -> Vec<Self> {
                let is_set = |this: &Self| bits & *this as u32 != 0;
                Self::ALL.iter().copied().filter(is_set).collect()
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $enum {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().copied().find(|this| this.name() == name);
                found.ok_or_else(|| format!("no such {}; choose one of {}", $what, Self::names()))
            }
        }
    };
}

named_bits! {
    /// What senders do beyond the drafts: `enum xcp_sender_feature` in bpf/abi.h. Each
    /// feature can be switched off, to show what it is needed for.
    SenderFeature, "behaviour" {
        /// Losses and ECN marks that XCP's own queues do not explain count as
        /// congestion.
        Losses = XCP_FEATURE_LOSSES "losses",
        /// The window is halved for each timeout in which nothing was sent.
        Idle = XCP_FEATURE_IDLE "idle",
        /// Windows and requested deltas follow the amount of data to send.
        AppLimit = XCP_FEATURE_APP_LIMIT "app-limit",
        /// The format `option` returns feedback as a running total, so lost ACKs lose
        /// no feedback.
        Totals = XCP_FEATURE_TOTALS "totals",
    }
}

named_bits! {
    /// What a router's control law has beyond the published one: `enum xcp_law_term` in
    /// core/xcp_router.h. Each term can be left out, to show what it is needed for.
    LawTerm, "part of the law" {
        /// alpha is 0.6 and beta 0.4, instead of 0.4 and 0.226.
        Gains = XCP_LAW_GAINS "gains",
        /// What was granted in the last interval counts as load.
        Granted = XCP_LAW_GRANTED "granted",
        /// Half of what was granted in the interval before that counts as load, too.
        Before = XCP_LAW_BEFORE "before",
        /// A decrease is spread over the bytes that are expected to arrive.
        Expect = XCP_LAW_EXPECT "expect",
        /// What a packet does not request goes to the next packet.
        PassOn = XCP_LAW_PASS_ON "pass-on",
        /// More traffic is shuffled while flows start and end, and less otherwise.
        Shuffle = XCP_LAW_SHUFFLE "shuffle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! every_variant_has_its_own_name_and_bit {
        ($enum:ident) => {
            let mut seen = 0;
            for this in $enum::ALL {
                assert_eq!(this.name().parse(), Ok(*this));
                let text = serde_json::to_string(this).expect("a name is valid JSON");
                assert_eq!(text, format!("{:?}", this.name()));
                let bit = $enum::bits(&[*this, *this]);
                assert!(bit.is_power_of_two() && seen & bit == 0, "{this}");
                seen |= bit;
                assert_eq!($enum::of_bits(bit), [*this]);
            }
            assert_eq!($enum::of_bits(seen), $enum::ALL);
        };
    }

    #[test]
    fn every_variant_has_its_own_name_and_bit() {
        every_variant_has_its_own_name_and_bit!(SenderFeature);
        every_variant_has_its_own_name_and_bit!(LawTerm);
    }
}

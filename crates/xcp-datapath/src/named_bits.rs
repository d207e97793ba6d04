// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Behaviours by name that can be left out, each a bit of a record in bpf/ or
//! core/.

/// An enum of bits with names for people and files, and its set.
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
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// All names, to be told to people.
            #[must_use]
            pub fn names() -> String {
                [$($name,)+].join(", ")
            }

            /// The bits of these.
            pub(crate) fn bits(these: &[Self]) -> u32 {
                these.iter().fold(0, |bits, this| bits | *this as u32)
            }

            /// Those whose bits are set.
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
                found.ok_or_else(|| format!("no such {}; there are {}", $what, Self::names()))
            }
        }
    };
}

named_bits! {
    /// What senders do beyond the drafts: each can be switched off, to see what
    /// then goes wrong; `enum xcp_sender_feature` in bpf/abi.h.
    SenderFeature, "behaviour" {
        /// Losses and marks that XCP's own queues do not explain are taken for
        /// congestion.
        Losses = XCP_FEATURE_LOSSES "losses",
        /// A window is halved for each timeout in which nothing was sent.
        Idle = XCP_FEATURE_IDLE "idle",
        /// Windows, and what is asked for, follow what there is to send.
        Use = XCP_FEATURE_USE "use",
        /// Lost ACKs lose no feedback in the format `option`: it is a running
        /// total.
        Totals = XCP_FEATURE_TOTALS "totals",
    }
}

named_bits! {
    /// What a router's law has beyond the published one: each part can be left
    /// out, to see what it is for; `enum xcp_law_term` in core/xcp_router.h.
    LawTerm, "part of the law" {
        /// alpha 0.6 and beta 0.4, in place of 0.4 and 0.226.
        Gains = XCP_LAW_GAINS "gains",
        /// What was granted in the last interval counts as come.
        Granted = XCP_LAW_GRANTED "granted",
        /// So does half of what was granted in the one before.
        Before = XCP_LAW_BEFORE "before",
        /// A cut falls on the bytes that will come.
        Expect = XCP_LAW_EXPECT "expect",
        /// What a packet does not want goes to the next.
        PassOn = XCP_LAW_PASS_ON "pass-on",
        /// Much is shuffled while flows come and go, and little otherwise.
        Shuffle = XCP_LAW_SHUFFLE "shuffle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! each_has_a_name_and_a_bit_of_its_own {
        ($enum:ident) => {
            let mut seen = 0;
            for this in $enum::ALL {
                assert_eq!(this.name().parse(), Ok(*this));
                let text = serde_json::to_string(this).expect("is a name");
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
    fn each_has_a_name_and_a_bit_of_its_own() {
        each_has_a_name_and_a_bit_of_its_own!(SenderFeature);
        each_has_a_name_and_a_bit_of_its_own!(LawTerm);
    }
}

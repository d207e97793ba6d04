// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What both ends of a conversation share: timeouts, the window of sequence
//! numbers, and the reasons to ignore a message.

use crate::message::{Error, Message};

pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// How long the asker waits for an acknowledgement at the first try; each next
/// try waits twice as long. It is the longest RTT that a router counts by
/// default, so no answer that arrives in time for the law is missed.
pub const XCP_REQ_TIMEOUT_NS: u64 = SECOND_NS;
/// Requests without an acknowledgement after which the path counts as broken.
pub const TRIES: u32 = 3;
/// How long the answerer sends probes without a new request.
pub const LIFETIME_NS: u64 = 30 * SECOND_NS;
/// How long after a grant the asker refreshes it: the tries, 7 s, end before the
/// grant does. An asker that was refused waits as long before it asks again.
pub const REFRESH_NS: u64 = LIFETIME_NS / 3;
/// After how long without a packet from the answerer an asker is removed.
pub const IDLE_NS: u64 = 2 * LIFETIME_NS;

/// Probes may take one part in this many of the estimated rate, 2 %: one half
/// single probes, one trains.
pub const PROBING_SHARE: u64 = 50;
/// Probes may always take this rate: 2 % of 5 Mb/s.
pub const FLOOR_BPS: u64 = 12_500;

/// Why a message was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// It is no message, or of another version.
    Malformed,
    /// It was not made with the shared key.
    BadTag,
    /// It was received before.
    Replayed,
    /// It is too old to tell whether it was received before, or answers a
    /// request that is not the last.
    Stale,
    /// It is of another stream or another path, or nothing that this end
    /// is waiting for.
    Unexpected,
    /// There are too many requests.
    Rate,
}

impl From<Error> for Ignored {
    fn from(error: Error) -> Self {
        match error {
            Error::Tag => Ignored::BadTag,
            _ => Ignored::Malformed,
        }
    }
}

/// How many messages were ignored, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([u64; 6]);

impl Counters {
    /// How many were ignored for this reason.
    #[must_use]
    pub fn of(&self, why: Ignored) -> u64 {
        self.0[why as usize]
    }

    pub(super) fn count(&mut self, why: Ignored) {
        self.0[why as usize] += 1;
    }
}

/// What an asker learns from a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// An answer to the last request; what changed is in the asker.
    Answer,
    /// A probe or a report, for the estimate. They may arrive in another order
    /// than they were sent.
    Measurement(Message),
    /// The answerer has ended the stream.
    Bye,
}

/// Which sequence numbers were received: a window below the highest one, as in
/// IPsec (RFC 4303, section 3.4.3).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    highest: u64,
    /// Bit i: `highest - i` was received.
    received: u64,
}

impl Window {
    pub(super) fn accept(&mut self, sequence: u64) -> Result<(), Ignored> {
        if sequence > self.highest || self.received == 0 {
            let ahead = u32::try_from(sequence.saturating_sub(self.highest)).unwrap_or(u32::MAX);
            self.received = self.received.checked_shl(ahead).unwrap_or(0) | 1;
            self.highest = sequence;
            return Ok(());
        }
        let behind = self.highest - sequence;
        if behind >= u64::from(u64::BITS) {
            return Err(Ignored::Stale);
        }
        if self.received & 1 << behind != 0 {
            return Err(Ignored::Replayed);
        }
        self.received |= 1 << behind;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_takes_each_number_once() {
        let mut window = Window::default();
        for (sequence, expected) in [
            (0, Ok(())),
            (0, Err(Ignored::Replayed)),
            (70, Ok(())),
            (7, Ok(())),
            (6, Err(Ignored::Stale)),
            (7, Err(Ignored::Replayed)),
            (70, Err(Ignored::Replayed)),
            (71, Ok(())),
            (7, Err(Ignored::Stale)),
            (8, Ok(())),
            (u64::MAX, Ok(())),
            (u64::MAX, Err(Ignored::Replayed)),
            (u64::MAX - 1, Ok(())),
            (71, Err(Ignored::Stale)),
        ] {
            assert_eq!(window.accept(sequence), expected, "{sequence}");
        }
    }
}

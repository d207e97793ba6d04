// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Code for both asker and answerer: timeouts, the window of sequence numbers, and
//! the reasons to ignore a message.

use crate::message::{Error, Message};

pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// How long the asker waits for an acknowledgement at the first try. The wait doubles
/// with each further try. A router's control law uses RTTs up to this value by
/// default, so longer waits would not help.
pub const XCP_REQ_TIMEOUT_NS: u64 = SECOND_NS;
/// The path counts as broken after this many requests without an acknowledgement.
pub const TRIES: u32 = 3;
/// How long the answerer sends probes after a request.
pub const LIFETIME_NS: u64 = 30 * SECOND_NS;
/// How long after a grant the asker refreshes it: all tries, 7 s, end before the grant
/// expires. After a refusal the asker waits for the same time.
pub const REFRESH_NS: u64 = LIFETIME_NS / 3;

/// Probes may use 1 / `PROBING_SHARE` of the estimated rate, 2 %: half for single
/// probes, half for trains.
pub const PROBING_SHARE: u64 = 50;
/// Probes may always use this rate, B/s: 2 % of 5 Mb/s.
pub const FLOOR_BPS: u64 = 12_500;

/// The reason why a message was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The message is invalid or has another version.
    Malformed,
    /// The message was not made with the shared key.
    BadTag,
    /// The message was received before.
    Replayed,
    /// The message is older than the window of sequence numbers, or answers an
    /// earlier request than the last.
    Stale,
    /// The message belongs to another stream or path, or does not fit the current state.
    Unexpected,
    /// Too many requests.
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
    /// The number of messages ignored for this reason.
    #[must_use]
    pub fn of(&self, why: Ignored) -> u64 {
        self.0[why as usize]
    }

    pub(super) fn count(&mut self, why: Ignored) {
        self.0[why as usize] += 1;
    }
}

/// The result of a message that an asker received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// An answer to the last request. The asker's state is already updated.
    Answer,
    /// A probe or a report, for the estimate. They may arrive out of order.
    Measurement(Message),
    /// The answerer has ended the stream.
    Bye,
}

/// The received sequence numbers: a window that ends at the highest one, as in IPsec
/// (RFC 4303, section 3.4.3).
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
    fn window_accepts_each_number_once() {
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

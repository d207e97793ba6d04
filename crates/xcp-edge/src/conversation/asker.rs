// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The downstream edge: it asks one upstream edge for probes.
//!
//! ```text
//!           acknowledged                3 tries without an acknowledgement
//!   Asking -------------> Granted      Asking ---------------> Broken
//!      ^                     |            ^                      |
//!      +---------------------+            +----------------------+
//!          time to refresh                 a packet arrived again
//! ```

use super::common::{
    Counters, Ignored, Received, Window, LIFETIME_NS, REFRESH_NS, TRIES, XCP_REQ_TIMEOUT_NS,
};
use crate::message::{
    Acknowledgement, Ask, Body, Cookie, Error, Grant, Key, Message, Path, Request, Role, Status,
};

/// A grant and the time when it ends.
#[derive(Clone, Copy, Debug)]
struct Granted {
    grant: Grant,
    until_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Requests are sent until one is acknowledged. While a grant is refreshed,
    /// probes continue.
    Asking {
        refreshed: Option<Granted>,
        /// Number of requests sent by the timer, including the first one.
        tries: u32,
        /// When the next request is sent.
        next_ns: u64,
        /// Whether the request is repeated at once when an acknowledgement contains a
        /// new cookie: only once per try.
        may_repeat: bool,
    },
    /// The answerer sends probes until the grant ends.
    Granted { granted: Granted, refresh_ns: u64 },
    /// The answerer does not answer or refuses. No requests are sent until a packet
    /// arrives from the answerer at this time or later.
    Broken { until_ns: u64 },
}

const START: State = State::Asking {
    refreshed: None,
    tries: 0,
    next_ns: 0,
    may_repeat: true,
};

/// Asks one answerer for probes.
#[derive(Debug)]
pub struct Asker {
    key: Key,
    path: Path,
    /// Random key. A stream's identifier is the tag of its number by this key.
    streams: Key,
    streams_begun: u64,
    stream: u64,
    /// Sequence number of the last request.
    sequence: u64,
    /// Sequence number of the last answered request.
    answered: u64,
    received: Window,
    cookie: Cookie,
    ask: Ask,
    /// The values in the last request.
    asked: Ask,
    state: State,
    counters: Counters,
}

impl Asker {
    /// Creates an asker for the answerer of this path. `seed` must be random,
    /// so that stream identifiers cannot be guessed.
    ///
    /// # Errors
    /// `ask` has invalid values.
    pub fn new(key: Key, seed: Key, path: Path, ask: Ask) -> Result<Self, Error> {
        ask.check()?;
        let mut asker = Asker {
            key,
            path,
            streams: seed,
            streams_begun: 0,
            stream: 0,
            sequence: 0,
            answered: 0,
            received: Window::default(),
            cookie: Cookie::default(),
            ask,
            asked: ask,
            state: START,
            counters: Counters::default(),
        };
        asker.begin_stream();
        Ok(asker)
    }

    /// Sets the values of the next requests.
    ///
    /// # Errors
    /// `ask` has invalid values.
    pub fn set_ask(&mut self, ask: Ask) -> Result<(), Error> {
        ask.check()?;
        self.ask = ask;
        Ok(())
    }

    /// Sends the next request at this time, if that is before the regular refresh. The
    /// answerer accepts only a few requests per [`REFRESH_NS`].
    pub fn refresh_at(&mut self, now_ns: u64) {
        if let State::Granted { refresh_ns, .. } = &mut self.state {
            *refresh_ns = now_ns.min(*refresh_ns);
        }
    }

    /// Begins a new stream if the path counts as broken.
    pub fn retry(&mut self, now_ns: u64) {
        if matches!(self.state, State::Broken { until_ns } if now_ns >= until_ns) {
            self.begin_stream();
        }
    }

    /// Whether the path to the answerer counts as broken.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        matches!(self.state, State::Broken { .. })
    }

    /// The probes that the answerer currently sends.
    #[must_use]
    pub fn grant(&self, now_ns: u64) -> Option<Grant> {
        let granted = match self.state {
            State::Asking { refreshed, .. } => refreshed?,
            State::Granted { granted, .. } => granted,
            State::Broken { .. } => return None,
        };
        (now_ns < granted.until_ns).then_some(granted.grant)
    }

    /// When to call [`Asker::poll`] next, unless a message arrives earlier.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        match self.state {
            State::Asking { next_ns, .. } => Some(next_ns),
            State::Granted { refresh_ns, .. } => Some(refresh_ns),
            State::Broken { .. } => None,
        }
    }

    /// The number of ignored messages.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The request to send now, if any.
    pub fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if self.next_ns().is_none_or(|next_ns| now_ns < next_ns) {
            return None;
        }
        let (refreshed, tries) = match self.state {
            State::Asking {
                refreshed, tries, ..
            } => (refreshed, tries),
            State::Granted { granted, .. } => (Some(granted), 0),
            State::Broken { .. } => return None,
        };
        if tries == TRIES {
            self.state = State::Broken { until_ns: now_ns };
            return None;
        }
        self.state = State::Asking {
            refreshed,
            tries: tries + 1,
            next_ns: now_ns.saturating_add(XCP_REQ_TIMEOUT_NS << tries),
            may_repeat: true,
        };
        Some(self.request())
    }

    /// Ends the stream. Returns the bye to send. [`Asker::retry`] begins a new one.
    pub fn bye(&mut self, now_ns: u64) -> Vec<u8> {
        self.state = State::Broken { until_ns: now_ns };
        self.message(Body::Bye(Role::Asker))
    }

    /// Processes a message from the answerer's address. Returns its result, and a
    /// request to send at once, if any.
    ///
    /// # Errors
    /// The reason why the message was ignored, which is also counted.
    pub fn receive(
        &mut self,
        now_ns: u64,
        bytes: &[u8],
    ) -> Result<(Received, Option<Vec<u8>>), Ignored> {
        let received = self.handle_message(now_ns, bytes);
        if let Err(why) = received {
            self.counters.count(why);
        }
        received
    }

    fn handle_message(
        &mut self,
        now_ns: u64,
        bytes: &[u8],
    ) -> Result<(Received, Option<Vec<u8>>), Ignored> {
        let message = Message::parse(bytes, &self.key)?;
        if message.stream != self.stream {
            return Err(Ignored::Unexpected);
        }
        match message.body {
            Body::Acknowledgement(answer) => {
                let repeated = self.on_answer(now_ns, message.sequence, answer)?;
                Ok((Received::Answer, repeated))
            }
            Body::Probe(_) | Body::Report(_) => {
                self.received.accept(message.sequence)?;
                if self.grant(now_ns).is_none() {
                    return Err(Ignored::Unexpected);
                }
                Ok((Received::Measurement(message), None))
            }
            Body::Bye(Role::Answerer) => {
                self.received.accept(message.sequence)?;
                self.pause(now_ns);
                Ok((Received::Bye, None))
            }
            Body::Request(_) | Body::Bye(Role::Asker) => Err(Ignored::Unexpected),
        }
    }

    /// Processes an acknowledgement. It is valid if it is the first one with the number
    /// of the last request.
    fn on_answer(
        &mut self,
        now_ns: u64,
        sequence: u64,
        answer: Acknowledgement,
    ) -> Result<Option<Vec<u8>>, Ignored> {
        if sequence == self.answered {
            return Err(Ignored::Replayed);
        }
        let State::Asking { may_repeat, .. } = &mut self.state else {
            return Err(Ignored::Stale);
        };
        if sequence != self.sequence {
            return Err(Ignored::Stale);
        }
        if answer.status == Status::Accepted && exceeds(answer.grant, &self.asked) {
            return Err(Ignored::Unexpected);
        }
        self.answered = sequence;
        match answer.status {
            Status::Accepted => {
                self.cookie = answer.cookie;
                self.state = State::Granted {
                    granted: Granted {
                        grant: answer.grant,
                        until_ns: now_ns.saturating_add(LIFETIME_NS),
                    },
                    refresh_ns: now_ns.saturating_add(REFRESH_NS),
                };
            }
            Status::CookieNeeded if *may_repeat => {
                *may_repeat = false;
                self.cookie = answer.cookie;
                return Ok(Some(self.request()));
            }
            // the timer sends the next request
            Status::CookieNeeded => self.cookie = answer.cookie,
            Status::Busy => {}
            Status::Refused => self.pause(now_ns),
        }
        Ok(None)
    }

    /// The answerer refuses requests: pauses requests for [`REFRESH_NS`].
    fn pause(&mut self, now_ns: u64) {
        self.state = State::Broken {
            until_ns: now_ns.saturating_add(REFRESH_NS),
        };
    }

    /// Begins a new stream and discards the state of the last one.
    fn begin_stream(&mut self) {
        self.streams_begun += 1;
        let tag = self.streams.tag(&self.streams_begun.to_be_bytes());
        let [a, b, c, d, e, f, g, h, ..] = tag;
        self.stream = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        self.sequence = 0;
        self.answered = 0;
        self.received = Window::default();
        self.cookie = Cookie::default();
        self.state = START;
    }

    fn request(&mut self) -> Vec<u8> {
        self.asked = self.ask;
        self.message(Body::Request(Request {
            path: self.path,
            cookie: self.cookie,
            ask: self.ask,
        }))
    }

    fn message(&mut self, body: Body) -> Vec<u8> {
        self.sequence += 1;
        let message = Message {
            stream: self.stream,
            sequence: self.sequence,
            body,
        };
        message.build(&self.key)
    }
}

/// Whether more was granted than requested.
fn exceeds(grant: Grant, ask: &Ask) -> bool {
    let faster = match (grant.interval_us, ask.interval_us) {
        (0, _) => false,
        (_, 0) => true,
        (granted, asked) => granted < asked,
    };
    faster || grant.train_packets > ask.train.packets
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The downstream edge's end: it asks one upstream edge for probes.
//!
//! ```text
//!           acknowledged                3 tries without an acknowledgement
//!   Asking -------------> Granted      Asking ---------------> Broken
//!      ^                     |            ^                      |
//!      +---------------------+            +----------------------+
//!          time to refresh                 a packet came again
//! ```

use super::common::{
    Counters, Heard, Ignored, Window, IDLE_NS, LIFETIME_NS, REFRESH_NS, TRIES, XCP_REQ_TIMEOUT_NS,
};
use crate::message::{
    Acknowledgement, Ask, Body, Cookie, Error, Grant, Key, Message, Path, Request, Role, Status,
};

/// A grant, and when it ends.
#[derive(Clone, Copy, Debug)]
struct Granted {
    grant: Grant,
    until_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Requests go out until one is acknowledged. When a grant is refreshed,
    /// probes still come.
    Asking {
        refreshed: Option<Granted>,
        /// Requests sent by the timer, the first one included.
        tries: u32,
        /// When the next one is sent.
        next_ns: u64,
        /// Whether an acknowledgement that brings a cookie repeats the request
        /// at once: only the first one of a try does.
        may_repeat: bool,
    },
    /// Probes come until the grant ends.
    Granted { granted: Granted, refresh_ns: u64 },
    /// The answerer does not answer or does not want to: nothing is sent until
    /// a packet comes from there at this time or later.
    Broken { until_ns: u64 },
}

const START: State = State::Asking {
    refreshed: None,
    tries: 0,
    next_ns: 0,
    may_repeat: true,
};

/// Asks one answerer.
#[derive(Debug)]
pub struct Asker {
    key: Key,
    path: Path,
    /// Streams are the tags of their number by this random key.
    streams: Key,
    streams_begun: u64,
    stream: u64,
    /// The last request's.
    sequence: u64,
    /// The last request's that was answered.
    answered: u64,
    received: Window,
    cookie: Cookie,
    ask: Ask,
    /// The last request's.
    asked: Ask,
    state: State,
    packet_seen_ns: u64,
    counters: Counters,
}

impl Asker {
    /// Begins to ask the answerer at the other end of this path. `seed` is random,
    /// so that streams cannot be guessed.
    ///
    /// # Errors
    /// A request cannot have these values.
    pub fn new(key: Key, seed: Key, path: Path, ask: Ask, now_ns: u64) -> Result<Self, Error> {
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
            packet_seen_ns: now_ns,
            counters: Counters::default(),
        };
        asker.begin_stream();
        Ok(asker)
    }

    /// Asks for something else from the next request on.
    ///
    /// # Errors
    /// A request cannot have these values.
    pub fn set_ask(&mut self, ask: Ask) -> Result<(), Error> {
        ask.check()?;
        self.ask = ask;
        Ok(())
    }

    /// Asks for the next train at this time, if that is before the grant is
    /// refreshed. More than a few in [`REFRESH_NS`] are refused.
    pub fn refresh_at(&mut self, now_ns: u64) {
        if let State::Granted { refresh_ns, .. } = &mut self.state {
            *refresh_ns = now_ns.min(*refresh_ns);
        }
    }

    /// A packet of any flow came from the answerer.
    pub fn packet_seen(&mut self, now_ns: u64) {
        self.packet_seen_ns = now_ns;
        if matches!(self.state, State::Broken { until_ns } if now_ns >= until_ns) {
            self.begin_stream();
        }
    }

    /// Whether no packet has come for so long that this asker can be removed.
    #[must_use]
    pub fn is_idle(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.packet_seen_ns) >= IDLE_NS
    }

    /// Whether the path to the answerer counts as broken.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        matches!(self.state, State::Broken { .. })
    }

    /// What the answerer sends now.
    #[must_use]
    pub fn grant(&self, now_ns: u64) -> Option<Grant> {
        let granted = match self.state {
            State::Asking { refreshed, .. } => refreshed?,
            State::Granted { granted, .. } => granted,
            State::Broken { .. } => return None,
        };
        (now_ns < granted.until_ns).then_some(granted.grant)
    }

    /// When [`Asker::poll`] has something to do, unless something is received.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        match self.state {
            State::Asking { next_ns, .. } => Some(next_ns),
            State::Granted { refresh_ns, .. } => Some(refresh_ns),
            State::Broken { .. } => None,
        }
    }

    /// What was ignored.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The request to send now, if there is one.
    pub fn poll(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if self.is_idle(now_ns) || self.next_ns().is_none_or(|next_ns| now_ns < next_ns) {
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

    /// Ends the stream. Returns the message for the answerer. A new stream begins
    /// when a packet is seen.
    pub fn bye(&mut self, now_ns: u64) -> Vec<u8> {
        self.state = State::Broken { until_ns: now_ns };
        self.message(Body::Bye(Role::Asker))
    }

    /// Takes a message from the answerer's address. Returns what it was, and a
    /// request to send at once.
    ///
    /// # Errors
    /// Why it was ignored, which is counted too.
    pub fn receive(
        &mut self,
        now_ns: u64,
        bytes: &[u8],
    ) -> Result<(Heard, Option<Vec<u8>>), Ignored> {
        let heard = self.hear(now_ns, bytes);
        if let Err(why) = heard {
            self.counters.count(why);
        }
        heard
    }

    fn hear(&mut self, now_ns: u64, bytes: &[u8]) -> Result<(Heard, Option<Vec<u8>>), Ignored> {
        let message = Message::parse(bytes, &self.key)?;
        if message.stream != self.stream {
            return Err(Ignored::Unexpected);
        }
        match message.body {
            Body::Acknowledgement(answer) => {
                let repeated = self.on_answer(now_ns, message.sequence, answer)?;
                Ok((Heard::Answer, repeated))
            }
            Body::Probe(_) | Body::Report(_) => {
                self.received.accept(message.sequence)?;
                if self.grant(now_ns).is_none() {
                    return Err(Ignored::Unexpected);
                }
                Ok((Heard::Measurement(message), None))
            }
            Body::Bye(Role::Answerer) => {
                self.received.accept(message.sequence)?;
                self.pause(now_ns);
                Ok((Heard::Bye, None))
            }
            Body::Request(_) | Body::Bye(Role::Asker) => Err(Ignored::Unexpected),
        }
    }

    /// An acknowledgement is fresh if it has the number of the last request, and
    /// none had it before.
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
            // the timer asks again
            Status::CookieNeeded => self.cookie = answer.cookie,
            Status::Busy => {}
            Status::Refused => self.pause(now_ns),
        }
        Ok(None)
    }

    /// The answerer does not want requests: sends none for a while.
    fn pause(&mut self, now_ns: u64) {
        self.state = State::Broken {
            until_ns: now_ns.saturating_add(REFRESH_NS),
        };
    }

    /// Begins a new stream and forgets the last one.
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

/// Whether more was granted than asked for.
fn exceeds(grant: Grant, ask: &Ask) -> bool {
    let faster = match (grant.interval_us, ask.interval_us) {
        (0, _) => false,
        (_, 0) => true,
        (granted, asked) => granted < asked,
    };
    faster || grant.train_packets > ask.train.packets
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The messages of XCP-i, version 1. Integers are big-endian.
//!
//! ```text
//!  0  magic "XCPi"
//!  4  version, 1
//!  5  kind
//!  6  length of the message with padding and tag, u16
//!  8  stream, u64: one conversation
//! 16  sequence, u64
//! 24  the fields of the kind
//! -16 tag: the first 16 bytes of HMAC-SHA256 over all before it
//! ```
//!
//! [`Message::parse`] accepts exactly the bytes that [`Message::build`] makes.

use std::net::{IpAddr, Ipv6Addr};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// UDP port of asker and answerer: "XC".
pub const PORT: u16 = 0x5843;
/// Version of the message format.
pub const VERSION: u8 = 1;
/// Largest length of a message, B: a jumbo frame of 9,000 B without the IPv6 and UDP headers.
pub const MAX_LENGTH: u16 = 8_952;
/// Length of the IPv6 and UDP headers of a message.
pub const OVERHEAD_B: u16 = 48;
/// Length of the IP and UDP headers of a message with addresses of this family.
#[must_use]
pub fn overhead_B(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => OVERHEAD_B - 20,
        IpAddr::V6(_) => OVERHEAD_B,
    }
}

/// The receiver's role, by the message kind. Nothing is verified: the receiver with this
/// role must verify the message.
#[must_use]
pub fn addressee(bytes: &[u8]) -> Role {
    let byte = |at: usize| bytes.get(at).copied();
    match byte(MAGIC.len() + 1) {
        Some(2..=4) => Role::Asker,
        Some(5) if byte(HEAD) == Some(2) => Role::Asker,
        _ => Role::Answerer,
    }
}

/// Smallest length of a probe, B.
pub const MIN_PROBE_LENGTH: u16 = (HEAD + PROBE + TAG) as u16;
/// Most corrections in a report, which then has 570 B: less than the MTU of any link.
pub const MAX_CORRECTIONS: usize = 64;
/// Smallest length of a key, B: 128 bits, the length of a tag.
pub const MIN_KEY: usize = 16;
/// The number of a probe that belongs to no train.
pub const SINGLE: u16 = 0xffff;

const MAGIC: &[u8; 4] = b"XCPi";
const HEAD: usize = 24;
const TAG: usize = 16;
const PROBE: usize = 12;

/// The reason why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not an XCP-i message.
    #[error("not an XCP-i message: it does not begin with \"XCPi\"")]
    Magic,
    /// Unsupported version.
    #[error("XCP-i version {0} is not supported (this is version {VERSION})")]
    Version(u8),
    /// Too short, too long, or different from its length field.
    #[error("the message has a wrong length")]
    Length,
    /// The tag does not match this key.
    #[error("the message was made with another key, or was changed")]
    Tag,
    /// Unknown kind.
    #[error("message kind {0} is unknown")]
    Kind(u8),
    /// A field has an invalid value.
    #[error("{0} has an invalid value")]
    Value(&'static str),
}

/// Error: a shared key is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the shared key has {0} bytes; it needs at least {MIN_KEY}")]
pub struct ShortKey(pub usize);

/// A key for HMAC-SHA256.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A key of at least [`MIN_KEY`] bytes.
    ///
    /// # Errors
    /// The key is shorter.
    pub fn new(key: &[u8]) -> Result<Self, ShortKey> {
        if key.len() < MIN_KEY {
            return Err(ShortKey(key.len()));
        }
        let mac = Hmac::new_from_slice(key).map_err(|_| ShortKey(key.len()))?;
        Ok(Key(mac))
    }

    /// Derives a key from this key and a text.
    pub(crate) fn derived(&self, text: &[u8]) -> Self {
        Key::new(&self.mac(text).finalize().into_bytes()).unwrap_or_else(|_| self.clone())
    }

    fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        self.0.clone().chain_update(bytes)
    }

    /// The first 16 bytes of the HMAC of these bytes.
    pub(crate) fn tag(&self, bytes: &[u8]) -> [u8; TAG] {
        let mac = self.mac(bytes).finalize().into_bytes();
        std::array::from_fn(|i| mac[i])
    }

    /// Compares the tag of these bytes with `tag`, in constant time.
    pub(crate) fn verify(&self, bytes: &[u8], tag: &[u8; TAG]) -> bool {
        self.mac(bytes).verify_truncated_left(tag).is_ok()
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The conversation, chosen at random by the asker.
    pub stream: u64,
    /// Each peer numbers the messages that it sends in a stream. An acknowledgement
    /// has the number of its request.
    pub sequence: u64,
    /// The fields of the kind.
    pub body: Body,
}

/// The kind of a message and its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Asker to answerer: asks for probes.
    Request(Request),
    /// Answerer to asker: answers a request.
    Acknowledgement(Acknowledgement),
    /// Answerer to asker: a packet whose delay is measured.
    Probe(Probe),
    /// Answerer to asker: reports which probes were sent and when.
    Report(Report),
    /// Ends the stream. It contains the sender's role, so that it cannot be reflected
    /// to the sender as the peer's bye.
    Bye(Role),
}

/// The role of a peer in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The downstream edge, which estimates.
    Asker,
    /// The upstream edge, which sends probes.
    Answerer,
}

/// The addresses of both peers, IPv4 as in `::ffff:192.0.2.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The asker's address.
    pub asker: Ipv6Addr,
    /// The answerer's address.
    pub answerer: Ipv6Addr,
}

impl Path {
    /// Creates the path between two addresses.
    #[must_use]
    pub fn new(asker: IpAddr, answerer: IpAddr) -> Self {
        let wide = |ip| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Path {
            asker: wide(asker),
            answerer: wide(answerer),
        }
    }
}

/// The probes that the asker requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Time between two single probes, us; 0 for none.
    pub interval_us: u32,
    /// Length of a single probe's message, B.
    pub size_B: u16,
    /// The train to send once.
    pub train: Train,
    /// The asker's estimate of the available bandwidth, B/s; 0 for none.
    pub estimate_Bps: u64,
}

/// A chirp: the gaps between packets shrink geometrically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Train {
    /// Number of packets; 0 for no train.
    pub packets: u16,
    /// Length of a packet's message, B.
    pub size_B: u16,
    /// Rate of the first gap, B/s.
    pub lowest_Bps: u64,
    /// Rate of the last gap, B/s.
    pub highest_Bps: u64,
}

impl Train {
    /// Send times of this many packets, relative to the first one, ns. `overhead_B` is the
    /// length of the headers around a message.
    #[must_use]
    pub fn times_ns(&self, packets: u16, overhead_B: u16) -> Vec<u64> {
        let size_B = f64::from(self.size_B) + f64::from(overhead_B);
        let lowest_Bps = self.lowest_Bps.max(1) as f64;
        let ratio = self.highest_Bps.max(1) as f64 / lowest_Bps;
        let last = f64::from(packets.max(3) - 2);
        let mut at_ns = 0.0;
        let mut times_ns = vec![0];
        for gap in 0..packets.max(1) - 1 {
            let rate_Bps = lowest_Bps * ratio.powf(f64::from(gap) / last);
            at_ns += size_B / rate_Bps * 1e9;
            times_ns.push(at_ns as u64);
        }
        times_ns
    }
}

/// A cookie: the proof that the asker receives packets sent to its address.
pub type Cookie = [u8; 16];

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The addresses of asker and answerer, so that no other router with the same key
    /// answers the request or sends probes to another address.
    pub path: Path,
    /// The cookie from the last acknowledgement; 0 in a stream's first request.
    pub cookie: Cookie,
    /// The requested probes.
    pub ask: Ask,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The answerer sends probes.
    Accepted,
    /// The cookie is invalid: ask again with the new one.
    CookieNeeded,
    /// Too many requests or askers: ask again later.
    Busy,
    /// The answerer refuses requests.
    Refused,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The answer.
    pub status: Status,
    /// The cookie for the next request, 0 if there is none.
    pub cookie: Cookie,
    /// The granted probes.
    pub grant: Grant,
}

/// The probes that the answerer will send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Time between two single probes, us; 0 for none.
    pub interval_us: u32,
    /// Number of packets in the train.
    pub train_packets: u16,
}

/// A probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The send time by the answerer's clock, ns.
    pub sent_ns: u64,
    /// The probe's number in its train, or [`SINGLE`].
    pub number: u16,
    /// The number of the train.
    pub train: u16,
    /// Length of the message, B. It is padded with zeros.
    pub length: u16,
}

/// A report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes of XCP packets sent to the asker since the stream began.
    pub xcp_B: u64,
    /// Probes sent since the stream began.
    pub probes: u64,
    /// Corrected send times of probes, at most [`MAX_CORRECTIONS`].
    pub corrections: Vec<Correction>,
}

/// The correction of a probe's send time, from the kernel's transmit timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Correction {
    /// The report's sequence number minus the probe's.
    pub behind: u32,
    /// What to add to the probe's time, ns.
    pub offset_ns: i32,
}

/// Reads fields one after another.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Error::Length)?;
        self.0 = rest;
        Ok(*field)
    }

    fn u8(&mut self) -> Result<u8, Error> {
        self.take().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, Error> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Error> {
        self.take().map(u64::from_be_bytes)
    }
}

impl Message {
    /// Reads a message. Magic and version are checked before the tag, all other fields
    /// only after the tag is verified.
    ///
    /// # Errors
    /// The bytes are not exactly one valid message made with this key.
    pub fn parse(bytes: &[u8], key: &Key) -> Result<Self, Error> {
        if !bytes.starts_with(MAGIC) {
            return Err(Error::Magic);
        }
        let version = *bytes.get(MAGIC.len()).ok_or(Error::Length)?;
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let (signed, tag) = bytes.split_last_chunk::<TAG>().ok_or(Error::Length)?;
        if bytes.len() < HEAD + TAG || bytes.len() > usize::from(MAX_LENGTH) {
            return Err(Error::Length);
        }
        if !key.verify(signed, tag) {
            return Err(Error::Tag);
        }
        let mut reader = Reader(&signed[MAGIC.len() + 1..]);
        let kind = reader.u8()?;
        let length = reader.u16()?;
        if usize::from(length) != bytes.len() {
            return Err(Error::Length);
        }
        let (stream, sequence) = (reader.u64()?, reader.u64()?);
        let body = Body::parse(kind, length, &mut reader)?;
        if !reader.0.is_empty() {
            return Err(Error::Length);
        }
        Ok(Message {
            stream,
            sequence,
            body,
        })
    }

    /// Writes a message. A probe's length and the number of corrections are limited
    /// to the range of the format.
    #[must_use]
    pub fn build(&self, key: &Key) -> Vec<u8> {
        let mut out = Vec::with_capacity(usize::from(MIN_PROBE_LENGTH) * 2);
        out.extend(MAGIC);
        out.extend([VERSION, self.body.kind(), 0, 0]);
        out.extend(self.stream.to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        self.body.build(&mut out);
        let length = (out.len() + TAG) as u16; // at most MAX_LENGTH
        out[6..8].copy_from_slice(&length.to_be_bytes());
        let tag = key.tag(&out);
        out.extend(tag);
        out
    }
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Body::Request(_) => 1,
            Body::Acknowledgement(_) => 2,
            Body::Probe(_) => 3,
            Body::Report(_) => 4,
            Body::Bye(_) => 5,
        }
    }

    fn parse(kind: u8, length: u16, r: &mut Reader) -> Result<Self, Error> {
        Ok(match kind {
            1 => Body::Request(Request {
                path: Path {
                    asker: r.take().map(Ipv6Addr::from)?,
                    answerer: r.take().map(Ipv6Addr::from)?,
                },
                cookie: r.take()?,
                ask: Ask::parse(r)?,
            }),
            2 => Body::Acknowledgement(Acknowledgement {
                status: Status::parse(r.u8()?)?,
                cookie: r.take()?,
                grant: Grant {
                    interval_us: r.u32()?,
                    train_packets: r.u16()?,
                },
            }),
            3 => Body::Probe(Probe::parse(length, r)?),
            4 => Body::Report(Report::parse(r)?),
            5 => Body::Bye(match r.u8()? {
                1 => Role::Asker,
                2 => Role::Answerer,
                _ => return Err(Error::Value("the sender's role")),
            }),
            _ => return Err(Error::Kind(kind)),
        })
    }

    fn build(&self, out: &mut Vec<u8>) {
        let from = out.len();
        match self {
            Body::Request(request) => {
                out.extend(request.path.asker.octets());
                out.extend(request.path.answerer.octets());
                out.extend(request.cookie);
                let ask = &request.ask;
                out.extend(ask.interval_us.to_be_bytes());
                out.extend(ask.size_B.to_be_bytes());
                out.extend(ask.train.packets.to_be_bytes());
                out.extend(ask.train.size_B.to_be_bytes());
                out.extend(ask.train.lowest_Bps.to_be_bytes());
                out.extend(ask.train.highest_Bps.to_be_bytes());
                out.extend(ask.estimate_Bps.to_be_bytes());
            }
            Body::Acknowledgement(a) => {
                out.push(a.status.number());
                out.extend(a.cookie);
                out.extend(a.grant.interval_us.to_be_bytes());
                out.extend(a.grant.train_packets.to_be_bytes());
            }
            Body::Probe(probe) => {
                out.extend(probe.sent_ns.to_be_bytes());
                out.extend(probe.number.to_be_bytes());
                out.extend(probe.train.to_be_bytes());
                let length = probe.length.clamp(MIN_PROBE_LENGTH, MAX_LENGTH);
                out.resize(from + usize::from(length) - HEAD - TAG, 0);
            }
            Body::Report(report) => {
                let count = report.corrections.len().min(MAX_CORRECTIONS);
                out.extend(report.xcp_B.to_be_bytes());
                out.extend(report.probes.to_be_bytes());
                out.extend((count as u16).to_be_bytes());
                for correction in &report.corrections[..count] {
                    out.extend(correction.behind.to_be_bytes());
                    out.extend(correction.offset_ns.to_be_bytes());
                }
            }
            Body::Bye(Role::Asker) => out.push(1),
            Body::Bye(Role::Answerer) => out.push(2),
        }
    }
}

impl Ask {
    fn parse(r: &mut Reader) -> Result<Self, Error> {
        let ask = Ask {
            interval_us: r.u32()?,
            size_B: r.u16()?,
            train: Train {
                packets: r.u16()?,
                size_B: r.u16()?,
                lowest_Bps: r.u64()?,
                highest_Bps: r.u64()?,
            },
            estimate_Bps: r.u64()?,
        };
        ask.check()?;
        Ok(ask)
    }

    /// Checks whether a request can have these values. The fields of probes that are not
    /// requested may have any value.
    ///
    /// # Errors
    /// A probe size is out of range, a rate is 0, or the lowest rate exceeds the highest.
    pub fn check(&self) -> Result<(), Error> {
        let sizes = MIN_PROBE_LENGTH..=MAX_LENGTH;
        if self.interval_us > 0 && !sizes.contains(&self.size_B) {
            return Err(Error::Value("the probes' size"));
        }
        let train = &self.train;
        if train.packets == 0 {
            return Ok(());
        }
        if !sizes.contains(&train.size_B) {
            return Err(Error::Value("the train's packet size"));
        }
        if train.lowest_Bps == 0 || train.lowest_Bps > train.highest_Bps {
            return Err(Error::Value("the train's rates"));
        }
        Ok(())
    }
}

impl Status {
    fn number(self) -> u8 {
        match self {
            Status::Accepted => 1,
            Status::CookieNeeded => 2,
            Status::Busy => 3,
            Status::Refused => 4,
        }
    }

    fn parse(number: u8) -> Result<Self, Error> {
        Ok(match number {
            1 => Status::Accepted,
            2 => Status::CookieNeeded,
            3 => Status::Busy,
            4 => Status::Refused,
            _ => return Err(Error::Value("the status")),
        })
    }
}

impl Probe {
    fn parse(length: u16, r: &mut Reader) -> Result<Self, Error> {
        let probe = Probe {
            sent_ns: r.u64()?,
            number: r.u16()?,
            train: r.u16()?,
            length,
        };
        let padding = std::mem::take(&mut r.0);
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Error::Value("the padding"));
        }
        Ok(probe)
    }
}

impl Report {
    fn parse(r: &mut Reader) -> Result<Self, Error> {
        let (xcp_B, probes, count) = (r.u64()?, r.u64()?, r.u16()?);
        if usize::from(count) > MAX_CORRECTIONS {
            return Err(Error::Value("the number of corrections"));
        }
        let corrections = (0..count)
            .map(|_| {
                Ok(Correction {
                    behind: r.u32()?,
                    offset_ns: r.u32()?.cast_signed(),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Report {
            xcp_B,
            probes,
            corrections,
        })
    }
}

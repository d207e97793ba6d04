// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The golden packets of XCP-i: frames with their expected messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use serde_json::{json, Map, Value};
use xcp_edge::message::{
    Acknowledgement, Ask, Body, Correction, Grant, Message, Path, Probe, Report, Request, Role,
    Status, Train, PORT, SINGLE,
};

use crate::key;

const ASKER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const ANSWERER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));
const ASKER_6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const ANSWERER_6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));
const LICENSE: &str = "BSD-2-Clause OR GPL-2.0-or-later";

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/edge")
}

pub struct Case {
    pub name: &'static str,
    pub about: &'static str,
    /// The expected message, or the expected error.
    pub means: Result<Message, &'static str>,
    pub bytes: Vec<u8>,
    from: IpAddr,
    to: IpAddr,
}

fn good(name: &'static str, about: &'static str, sequence: u64, body: Body) -> Case {
    let message = Message {
        stream: 0x0123_4567_89ab_cdef,
        sequence,
        body,
    };
    Case {
        name,
        about,
        bytes: message.build(&key()),
        means: Ok(message),
        from: ASKER,
        to: ANSWERER,
    }
}

/// Changes the bytes of a valid message and signs them again, except for a wrong tag.
fn bad(
    name: &'static str,
    about: &'static str,
    error: &'static str,
    of: &str,
    change: fn(&mut Vec<u8>),
) -> Case {
    let mut case = good_cases().into_iter().find(|c| c.name == of).unwrap();
    let mut bytes = case.bytes[..case.bytes.len() - 16].to_vec();
    change(&mut bytes);
    case.bytes = sign(bytes);
    if error == "Tag" {
        let last = case.bytes.len() - 1;
        case.bytes[last] ^= 1;
    }
    Case {
        name,
        about,
        means: Err(error),
        ..case
    }
}

/// Adds the tag without using the code under test.
pub fn sign(mut bytes: Vec<u8>) -> Vec<u8> {
    use hmac::{Hmac, KeyInit, Mac};
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"a shared key of the tests").unwrap();
    mac.update(&bytes);
    bytes.extend(&mac.finalize().into_bytes()[..16]);
    bytes
}

fn ask() -> Ask {
    Ask {
        interval_us: 100_000,
        size_B: 200,
        train: Train {
            packets: 32,
            size_B: 1_000,
            lowest_Bps: 125_000,
            highest_Bps: 12_500_000,
        },
        estimate_Bps: 1_250_000,
    }
}

fn cookie(first: u8) -> [u8; 16] {
    std::array::from_fn(|i| first + i as u8)
}

fn answer(status: Status, cookie: [u8; 16], interval_us: u32, train_packets: u16) -> Body {
    Body::Acknowledgement(Acknowledgement {
        status,
        cookie,
        grant: Grant {
            interval_us,
            train_packets,
        },
    })
}

fn good_cases() -> Vec<Case> {
    let again = Request {
        path: Path::new(ASKER, ANSWERER),
        cookie: cookie(0x10),
        ask: ask(),
    };
    let first = Request {
        cookie: [0; 16],
        ask: Ask {
            train: Train::default(),
            estimate_Bps: 0,
            ..ask()
        },
        ..again
    };
    let probe = |number, train, length| {
        Body::Probe(Probe {
            sent_ns: 1_700_000_000_123_456_789,
            number,
            train,
            length,
        })
    };
    let report = |count: i32| {
        let corrections = (1..=count).map(|i| Correction {
            behind: i as u32,
            offset_ns: if i % 2 == 0 { -i } else { 1_000 * i },
        });
        Body::Report(Report {
            xcp_B: 9_876_543_210,
            probes: 1_234,
            corrections: corrections.collect(),
        })
    };
    let mut cases = vec![
        good(
            "request-first",
            "the first request: no cookie, no train, no estimate",
            1,
            Body::Request(first),
        ),
        good(
            "request-again",
            "a request with a cookie and a train",
            2,
            Body::Request(again),
        ),
        good(
            "acknowledgement-accepted",
            "accepted, with less than requested",
            2,
            answer(Status::Accepted, cookie(0x20), 200_000, 16),
        ),
        good(
            "acknowledgement-cookie",
            "a cookie is needed",
            1,
            answer(Status::CookieNeeded, cookie(0x10), 0, 0),
        ),
        good(
            "acknowledgement-busy",
            "too many requests",
            3,
            answer(Status::Busy, [0; 16], 0, 0),
        ),
        good(
            "acknowledgement-refused",
            "this router does not answer",
            3,
            answer(Status::Refused, [0; 16], 0, 0),
        ),
        good(
            "probe-single",
            "a single probe, padded",
            0x2_0000_0001,
            probe(SINGLE, 0, 200),
        ),
        good(
            "probe-train",
            "the third probe of train 7, without padding",
            0x2_0000_0002,
            probe(2, 7, 52),
        ),
        good(
            "report-empty",
            "a report without corrections",
            0x2_0000_0003,
            report(0),
        ),
        good(
            "report",
            "a report with three corrections, one of them negative",
            0x2_0000_0004,
            report(3),
        ),
        good(
            "report-most",
            "a report with as many corrections as fit",
            u64::MAX,
            report(64),
        ),
        good(
            "bye-asker",
            "the asker ends the stream",
            9,
            Body::Bye(Role::Asker),
        ),
        good(
            "bye-answerer",
            "the answerer ends the stream",
            9,
            Body::Bye(Role::Answerer),
        ),
        good(
            "request-ipv6",
            "a request over IPv6",
            2,
            Body::Request(Request {
                path: Path::new(ASKER_6, ANSWERER_6),
                ..again
            }),
        ),
    ];
    for case in &mut cases {
        if case.name.ends_with("ipv6") {
            (case.from, case.to) = (ASKER_6, ANSWERER_6);
        } else if !case.name.starts_with("request") && case.name != "bye-asker" {
            std::mem::swap(&mut case.from, &mut case.to);
        }
    }
    cases
}

pub fn all() -> Vec<Case> {
    let mut cases = good_cases();
    cases.extend([
        bad("wrong-tag", "a wrong tag", "Tag", "probe-train", |_| {}),
        bad("version-2", "version 2", "Version", "probe-train", |b| {
            b[4] = 2;
        }),
        bad("kind-6", "kind 6", "Kind", "probe-train", |b| b[5] = 6),
        bad(
            "length-less",
            "a length field that is smaller than the message",
            "Length",
            "probe-single",
            |b| b[7] -= 1,
        ),
        bad(
            "request-short",
            "a byte too short for a request",
            "Length",
            "request-first",
            |b| {
                b.pop();
                b[7] -= 1;
            },
        ),
        bad(
            "bye-long",
            "a byte too long for a bye",
            "Length",
            "bye-asker",
            |b| {
                b.push(0);
                b[7] += 1;
            },
        ),
        bad(
            "status-5",
            "an acknowledgement of status 5",
            "Value",
            "acknowledgement-busy",
            |b| b[24] = 5,
        ),
        bad(
            "request-size-51",
            "a request for probes of 51 bytes",
            "Value",
            "request-first",
            |b| b[76..78].copy_from_slice(&[0, 51]),
        ),
        bad(
            "request-rates",
            "a request for a train that gets slower",
            "Value",
            "request-again",
            |b| b[82] = 1,
        ),
        bad(
            "probe-padding",
            "a probe with a nonzero byte in its padding",
            "Value",
            "probe-single",
            |b| b[100] = 1,
        ),
        bad(
            "report-count",
            "a report whose correction count is too high by one",
            "Length",
            "report",
            |b| b[41] += 1,
        ),
        bad("role-3", "a bye of role 3", "Value", "bye-asker", |b| {
            b[24] = 3;
        }),
    ]);
    cases
}

impl Case {
    /// Returns the layers of the frame.
    fn layers(&self) -> Vec<(&'static str, Vec<u8>)> {
        let length = self.bytes.len() as u16 + 8;
        let mut udp = [PORT, PORT, length, 0].map(u16::to_be_bytes).concat();
        let mut ethernet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let ip = match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                ethernet.extend([0x08, 0x00]);
                let total = (length + 20).to_be_bytes();
                let mut ip = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
                ip.extend(from.octets());
                ip.extend(to.octets());
                let sum = checksum(&ip);
                ip[10..12].copy_from_slice(&sum);
                ip
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                ethernet.extend([0x86, 0xdd]);
                let mut ip = vec![0x60, 0, 0, 0];
                ip.extend(length.to_be_bytes());
                ip.extend([17, 64]);
                ip.extend(from.octets());
                ip.extend(to.octets());
                ip
            }
            _ => unreachable!(),
        };
        let addresses = if self.from.is_ipv4() {
            &ip[12..]
        } else {
            &ip[8..]
        };
        let pseudo = [addresses, &[0, 17], &length.to_be_bytes()].concat();
        let sum = checksum(&[&pseudo, &udp[..], &self.bytes].concat());
        udp[6..8].copy_from_slice(&sum);
        let message = self.bytes.clone();
        vec![
            ("Ethernet", ethernet),
            ("IP", ip),
            ("UDP", udp),
            ("XCP-i", message),
        ]
    }

    pub fn frame(&self) -> Vec<u8> {
        self.layers().into_iter().flat_map(|l| l.1).collect()
    }

    /// Returns the content of NAME.hex: the frame, layer by layer.
    pub fn hex(&self) -> String {
        let mut text = format!("# SPDX-License-Identifier: {LICENSE}\n# {}\n", self.about);
        for (layer, bytes) in self.layers() {
            text += &format!("# {layer}\n");
            for line in bytes.chunks(16) {
                let line: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
                text += &(line.join(" ") + "\n");
            }
        }
        text
    }

    /// Returns the content of NAME.json: the decoded message.
    pub fn json(&self) -> String {
        let twin = json!({
            "SPDX-License-Identifier": LICENSE,
            "name": self.name,
            "about": self.about,
            "key": "a shared key of the tests",
            "offset": self.frame().len() - self.bytes.len(),
            "error": self.means.as_ref().err(),
            "fields": self.means.as_ref().ok().map(|m| fields(m, &self.bytes)),
        });
        serde_json::to_string_pretty(&twin).unwrap() + "\n"
    }
}

/// Returns the Internet checksum.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(pair[0]) << 8 | u32::from(low)
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (!(sum as u16)).to_be_bytes()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns the fields of a message that the dissector shows.
pub fn fields(message: &Message, bytes: &[u8]) -> Map<String, Value> {
    let own = match &message.body {
        Body::Request(Request { path, cookie, ask }) => json!({
            "kind": 1,
            "asker": path.asker,
            "answerer": path.answerer,
            "cookie": hex(cookie),
            "interval_us": ask.interval_us,
            "size_B": ask.size_B,
            "train_packets": ask.train.packets,
            "train_size_B": ask.train.size_B,
            "lowest_Bps": ask.train.lowest_Bps,
            "highest_Bps": ask.train.highest_Bps,
            "estimate_Bps": ask.estimate_Bps,
        }),
        Body::Acknowledgement(a) => json!({
            "kind": 2,
            "status": match a.status {
                Status::Accepted => 1,
                Status::CookieNeeded => 2,
                Status::Busy => 3,
                Status::Refused => 4,
            },
            "cookie": hex(&a.cookie),
            "interval_us": a.grant.interval_us,
            "train_packets": a.grant.train_packets,
        }),
        Body::Probe(p) => json!({
            "kind": 3,
            "sent_ns": p.sent_ns,
            "number": p.number,
            "train": p.train,
        }),
        Body::Report(r) => json!({
            "kind": 4,
            "xcp_B": r.xcp_B,
            "probes": r.probes,
            "corrections": r.corrections.len(),
            "behind": r.corrections.iter().map(|c| c.behind).collect::<Vec<_>>(),
            "offset_ns": r.corrections.iter().map(|c| c.offset_ns).collect::<Vec<_>>(),
        }),
        Body::Bye(role) => json!({
            "kind": 5,
            "role": match role {
                Role::Asker => 1,
                Role::Answerer => 2,
            },
        }),
    };
    let Value::Object(mut fields) = own else {
        unreachable!()
    };
    fields.insert("version".into(), json!(1));
    fields.insert("length".into(), json!(bytes.len()));
    fields.insert("stream".into(), json!(message.stream));
    fields.insert("sequence".into(), json!(message.sequence));
    fields.insert("tag".into(), json!(hex(&bytes[bytes.len() - 16..])));
    fields
}

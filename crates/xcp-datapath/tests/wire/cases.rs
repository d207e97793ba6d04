// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The golden packets: each a frame and what must be seen in it.

use super::decode::{Decoded, Kind};
use super::frame::{Frame, Ip, Layer, UDP};
use super::option::{self, seconds, Forward, Return, SYN, TIMESTAMPS};

const ACK: u8 = 0x10;
const SYN_FLAG: u8 = 0x02;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;

/// 100 ms, 2 ms, and a wish for 10 kB/s more: the draft's example.
const RTT_TICKS: u32 = 26_843_546;
const X_TICKS: u32 = 536_871;
const DELTA_BPS: i32 = 10_000;
const TTL: u8 = 64;

pub struct Case {
    pub name: &'static str,
    pub about: &'static str,
    pub layers: Vec<Layer>,
    pub expect: Decoded,
}

impl Case {
    pub fn bytes(&self) -> Vec<u8> {
        self.layers.iter().flat_map(|l| l.1.clone()).collect()
    }
}

/// A data segment with these forward fields behind timestamps.
pub fn data(f: Forward, payload: usize) -> Vec<u8> {
    let frame = Frame {
        options: behind_timestamps(option::forward(f)),
        payload,
        ..Frame::default()
    };
    frame.bytes()
}

/// The golden packet of this name.
pub fn named(name: &str) -> Case {
    all()
        .into_iter()
        .find(|c| c.name == name)
        .unwrap_or_else(|| panic!("no golden packet {name}"))
}

pub fn all() -> Vec<Case> {
    let mut cases = usual();
    cases.extend(without());
    cases.extend(networks());
    cases.extend(places());
    cases.extend(broken_options());
    cases.extend(broken_headers());
    cases.extend(extremes());
    cases
}

/// What most of them ask for.
pub fn wish() -> Forward {
    Forward {
        rtt_ticks: RTT_TICKS,
        rtt_s: seconds(RTT_TICKS),
        x_ticks: X_TICKS,
        x_s: seconds(X_TICKS),
        delta_Bps: DELTA_BPS,
        last_xcp_router: 0,
        xcp_ttl: TTL,
        xcp_hops: 0,
        other_hops: 0,
    }
}

fn answer() -> Return {
    Return {
        feedback_Bps: -500,
        xcp_hops: 2,
        other_hops: 1,
    }
}

fn behind_timestamps(option: Vec<u8>) -> Vec<u8> {
    [TIMESTAMPS.to_vec(), option].concat()
}

/// A data segment with the usual forward option.
fn usual_frame() -> Frame {
    Frame {
        options: behind_timestamps(option::forward(wish())),
        ..Frame::default()
    }
}

/// A frame whose TCP header and checksum are right.
fn case(name: &'static str, about: &'static str, frame: &Frame, expect: Decoded) -> Case {
    Case {
        name,
        about,
        layers: frame.layers(),
        expect: Decoded {
            ip_version: Some(frame.ip.version()),
            ttl: Some(frame.ttl),
            tcp_offset: Some(frame.tcp_offset()),
            checksum_valid: Some(true),
            ..expect
        },
    }
}

/// A frame in which no router looks at TCP, or cannot.
fn opaque(name: &'static str, about: &'static str, frame: &Frame, malformed: bool) -> Case {
    Case {
        name,
        about,
        layers: frame.layers(),
        expect: Decoded {
            kind: if malformed {
                Kind::Malformed
            } else {
                Kind::None
            },
            malformed,
            ip_version: Some(frame.ip.version()),
            ..Decoded::default()
        },
    }
}

fn malformed() -> Decoded {
    Decoded {
        kind: Kind::Malformed,
        malformed: true,
        ..Decoded::default()
    }
}

/// A forward option that begins at byte `at` of the TCP header.
fn forward(frame: &Frame, at: usize, f: Forward) -> Decoded {
    Decoded {
        kind: Kind::Forward,
        option_offset: Some(frame.tcp_offset() + at),
        forward: Some(f),
        ..Decoded::default()
    }
}

fn both(frame: &Frame, at: usize, f: Forward, r: Return) -> Decoded {
    Decoded {
        kind: Kind::Both,
        back: Some(r),
        ..forward(frame, at, f)
    }
}

fn usual() -> Vec<Case> {
    let data = Frame {
        payload: 1500 - 20 - 56,
        ..usual_frame()
    };
    let two_way = Frame {
        options: behind_timestamps(option::both(wish(), answer())),
        payload: 1500 - 20 - 60,
        ..Frame::default()
    };
    let ack = Frame {
        flags: ACK,
        options: behind_timestamps(option::back(answer())),
        payload: 0,
        ..Frame::default()
    };
    let syn = |flags| Frame {
        flags,
        options: [SYN.to_vec(), option::handshake()].concat(),
        payload: 0,
        ..Frame::default()
    };
    let handshake = |frame: &Frame| Decoded {
        kind: Kind::Handshake,
        option_offset: Some(frame.tcp_offset() + 40),
        ..Decoded::default()
    };
    vec![
        case(
            "forward",
            "1500 bytes of IPv4, a forward option behind timestamps",
            &data,
            forward(&data, 32, wish()),
        ),
        case(
            "both",
            "1500 bytes of IPv4, a forward and return option behind timestamps",
            &two_way,
            both(&two_way, 32, wish(), answer()),
        ),
        case(
            "return",
            "a pure ACK with a return option",
            &ack,
            Decoded {
                kind: Kind::Return,
                option_offset: Some(ack.tcp_offset() + 32),
                back: Some(answer()),
                ..Decoded::default()
            },
        ),
        case(
            "syn",
            "a SYN with the handshake option",
            &syn(SYN_FLAG),
            handshake(&syn(SYN_FLAG)),
        ),
        case(
            "syn-ack",
            "a SYN-ACK with the handshake option",
            &syn(SYN_FLAG | ACK),
            handshake(&syn(SYN_FLAG | ACK)),
        ),
    ]
}

fn without() -> Vec<Case> {
    let mut arp = vec![0xff; 6];
    arp.extend([2, 0, 0, 0, 0, 1, 0x08, 0x06]);
    let ethernet = arp.clone();
    let request = vec![
        0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2,
    ];
    let mut other_experiment = option::forward(wish());
    other_experiment[3] = b'D';
    vec![
        case(
            "none-timestamps",
            "timestamps, no XCP",
            &Frame {
                options: TIMESTAMPS.to_vec(),
                ..Frame::default()
            },
            Decoded::default(),
        ),
        case(
            "none-bare",
            "a pure ACK without options, padded to Ethernet's minimum",
            &Frame {
                flags: ACK,
                payload: 0,
                padding: 6,
                ..Frame::default()
            },
            Decoded::default(),
        ),
        case(
            "none-other-experiment",
            "an option of kind 254 with another experiment's identifier",
            &Frame {
                options: behind_timestamps(other_experiment),
                ..Frame::default()
            },
            Decoded::default(),
        ),
        case(
            "none-after-end",
            "a forward option behind the end of options",
            &Frame {
                options: [vec![0, 1], option::forward(wish())].concat(),
                ..Frame::default()
            },
            Decoded::default(),
        ),
        opaque(
            "none-udp",
            "a UDP datagram",
            &Frame {
                protocol: UDP,
                ..Frame::default()
            },
            false,
        ),
        Case {
            name: "none-arp",
            about: "an ARP request",
            layers: vec![("Ethernet", ethernet), ("ARP", request)],
            expect: Decoded::default(),
        },
    ]
}

/// Everything that may stand before TCP.
fn networks() -> Vec<Case> {
    let hop_by_hop = (0, vec![0, 0, 5, 2, 0, 0, 1, 0]); // router alert
    let destination = (60, vec![0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let later = |name, about, frame: &Frame| case(name, about, frame, forward(frame, 32, wish()));
    vec![
        later(
            "forward-ipv6",
            "IPv6, a forward option behind timestamps",
            &Frame {
                ip: Ip::v6(),
                ..usual_frame()
            },
        ),
        later(
            "forward-vlan",
            "an 802.1Q tag before IPv4",
            &Frame {
                tags: vec![VLAN],
                ..usual_frame()
            },
        ),
        later(
            "forward-vlan-ipv6",
            "an 802.1Q tag before IPv6",
            &Frame {
                tags: vec![VLAN],
                ip: Ip::v6(),
                ..usual_frame()
            },
        ),
        later(
            "forward-qinq",
            "802.1ad and 802.1Q tags before IPv4",
            &Frame {
                tags: vec![SERVICE_VLAN, VLAN],
                ..usual_frame()
            },
        ),
        later(
            "forward-ipv6-extensions",
            "IPv6 with hop-by-hop and destination options",
            &Frame {
                ip: Ip::V6 {
                    extensions: vec![hop_by_hop, destination],
                },
                ..usual_frame()
            },
        ),
        later(
            "forward-ipv4-options",
            "IPv4 with options (router alert)",
            &Frame {
                ip: Ip::V4 {
                    options: vec![0x94, 4, 0, 0],
                    fragment: 0x4000,
                },
                ..usual_frame()
            },
        ),
        later(
            "forward-padded",
            "a short packet with Ethernet padding behind it",
            &Frame {
                payload: 1,
                padding: 4,
                ..usual_frame()
            },
        ),
        opaque(
            "fragment-first",
            "the first fragment of an IPv4 packet: whole TCP header, more to come",
            &Frame {
                ip: Ip::V4 {
                    options: vec![],
                    fragment: 0x2000,
                },
                ..usual_frame()
            },
            false,
        ),
        opaque(
            "fragment-later",
            "a later fragment of an IPv4 packet that looks like a TCP header",
            &Frame {
                ip: Ip::V4 {
                    options: vec![],
                    fragment: 0x0010,
                },
                ..usual_frame()
            },
            false,
        ),
        opaque(
            "fragment-ipv6",
            "the first fragment of an IPv6 packet",
            &Frame {
                ip: Ip::V6 {
                    extensions: vec![(44, vec![0, 0, 0, 1, 0, 0, 0x12, 0x34])],
                },
                ..usual_frame()
            },
            false,
        ),
    ]
}

/// Other places for the option in the TCP header.
fn places() -> Vec<Case> {
    let first = Frame {
        options: option::forward(wish()),
        ..Frame::default()
    };
    let odd = Frame {
        options: [vec![1], option::forward(wish())].concat(),
        payload: 41,
        ..Frame::default()
    };
    let odd_both = Frame {
        options: [vec![1], option::both(wish(), answer())].concat(),
        payload: 41,
        ..Frame::default()
    };
    vec![
        case(
            "forward-first",
            "a forward option without timestamps before it",
            &first,
            forward(&first, 20, wish()),
        ),
        case(
            "forward-odd",
            "a forward option at an odd offset, and an odd length",
            &odd,
            forward(&odd, 21, wish()),
        ),
        case(
            "both-odd",
            "a forward and return option at an odd offset, and an odd length",
            &odd_both,
            both(&odd_both, 21, wish(), answer()),
        ),
    ]
}

fn broken_options() -> Vec<Case> {
    let with = |at: usize, value: u8| {
        let mut option = option::forward(wish());
        option[at] = value;
        Frame {
            options: behind_timestamps(option),
            ..Frame::default()
        }
    };
    let bad = |name, about, frame: &Frame| case(name, about, frame, malformed());
    vec![
        bad("option-length-0", "an option of length 0", &with(1, 0)),
        bad("option-length-1", "an option of length 1", &with(1, 1)),
        bad(
            "option-too-long",
            "an option that ends behind the TCP header",
            &with(1, 28),
        ),
        bad(
            "option-wrong-length",
            "an option of a length that no kind has (23)",
            &with(1, 23),
        ),
        bad(
            "option-cut",
            "an option of which the TCP header holds only the kind",
            &Frame {
                options: [TIMESTAMPS.to_vec(), vec![1, 1, 1, option::KIND]].concat(),
                ..Frame::default()
            },
        ),
        bad("option-version", "an option of version 2", &with(4, 0x20)),
    ]
}

fn broken_headers() -> Vec<Case> {
    let spoilt = Frame {
        spoil_checksum: true,
        ..usual_frame()
    };
    vec![
        case(
            "forward-bad-checksum",
            "a TCP checksum that is wrong by 0x0bad",
            &spoilt,
            forward(&spoilt, 32, wish()),
        )
        .with_checksum(false),
        opaque(
            "tcp-header-short",
            "a TCP data offset of 4 words",
            &Frame {
                doff: Some(4),
                ..usual_frame()
            },
            true,
        ),
        opaque(
            "tcp-header-long",
            "a TCP data offset behind the end of the packet",
            &Frame {
                doff: Some(15),
                payload: 0,
                ..usual_frame()
            },
            true,
        ),
        opaque(
            "ipv4-too-long",
            "an IPv4 total length behind the end of the frame",
            &Frame {
                excess: 1,
                ..usual_frame()
            },
            true,
        ),
        opaque(
            "ipv6-too-long",
            "an IPv6 payload length behind the end of the frame",
            &Frame {
                ip: Ip::v6(),
                excess: 1,
                ..usual_frame()
            },
            true,
        ),
    ]
}

impl Case {
    fn with_checksum(mut self, valid: bool) -> Self {
        self.expect.checksum_valid = Some(valid);
        self
    }
}

/// Values at the ends of their ranges.
fn extremes() -> Vec<Case> {
    let with = |name, about, f: Forward| {
        let frame = Frame {
            options: behind_timestamps(option::forward(f)),
            ..Frame::default()
        };
        case(name, about, &frame, forward(&frame, 32, f))
    };
    let unknown = Forward {
        rtt_ticks: 0,
        rtt_s: 0.0,
        ..wish()
    };
    vec![
        with("rtt-unknown", "RTT 0 and a wish for more", unknown),
        with(
            "rtt-unknown-less",
            "RTT 0 and a wish for less",
            Forward {
                delta_Bps: -DELTA_BPS,
                ..unknown
            },
        ),
        with(
            "rtt-most",
            "RTT and X at their largest, and a last XCP router",
            Forward {
                rtt_ticks: u32::MAX,
                rtt_s: seconds(u32::MAX),
                x_ticks: u32::MAX,
                x_s: seconds(u32::MAX),
                last_xcp_router: 0xc000_0201,
                ..wish()
            },
        ),
        with(
            "delta-least",
            "the smallest delta",
            Forward {
                delta_Bps: i32::MIN,
                ..wish()
            },
        ),
        with(
            "delta-most",
            "the largest delta",
            Forward {
                delta_Bps: i32::MAX,
                ..wish()
            },
        ),
        with(
            "xcp-ttl-ahead",
            "xcp_ttl 3 above the TTL: 3 other routers on the way",
            Forward {
                xcp_ttl: TTL + 3,
                other_hops: 3,
                ..wish()
            },
        ),
        with(
            "hops-saturated",
            "15 XCP hops: the field is full",
            Forward {
                xcp_hops: 15,
                ..wish()
            },
        ),
    ]
}

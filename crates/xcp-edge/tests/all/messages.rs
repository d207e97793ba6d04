// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Messages survive building and parsing; any bytes parse to a message or an error.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xcp_edge::message::{
    Acknowledgement, Ask, Body, Correction, Error, Grant, Key, Message, Path, Probe, Report,
    Request, Role, ShortKey, Status, Train, MAX_CORRECTIONS, MAX_LENGTH, MIN_PROBE_LENGTH,
};

use crate::{cases, key};

/// Uses a fixed seed, so that a failure can be reproduced.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 5_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

fn size() -> impl Strategy<Value = u16> {
    MIN_PROBE_LENGTH..=MAX_LENGTH
}

fn ask() -> impl Strategy<Value = Ask> {
    let rates = (1..=u64::MAX, 1..=u64::MAX);
    let train = (any::<u16>(), size(), rates).prop_map(|(packets, size_B, (a, b))| Train {
        packets,
        size_B,
        lowest_Bps: a.min(b),
        highest_Bps: a.max(b),
    });
    (any::<u32>(), size(), train, any::<u64>()).prop_map(
        |(interval_us, size_B, train, estimate_Bps)| Ask {
            interval_us,
            size_B,
            train,
            estimate_Bps,
        },
    )
}

fn body() -> impl Strategy<Value = Body> {
    let request = (any::<(u128, u128, [u8; 16])>(), ask());
    let status = prop_oneof![
        Just(Status::Accepted),
        Just(Status::CookieNeeded),
        Just(Status::Busy),
        Just(Status::Refused),
    ];
    let acknowledgement = (status, any::<[u8; 16]>(), any::<(u32, u16)>());
    let correction =
        any::<(u32, i32)>().prop_map(|(behind, offset_ns)| Correction { behind, offset_ns });
    let corrections = prop::collection::vec(correction, 0..=MAX_CORRECTIONS);
    prop_oneof![
        request.prop_map(|((asker, answerer, cookie), ask)| {
            Body::Request(Request {
                path: Path {
                    asker: asker.into(),
                    answerer: answerer.into(),
                },
                cookie,
                ask,
            })
        }),
        acknowledgement.prop_map(|(status, cookie, (interval_us, train_packets))| {
            Body::Acknowledgement(Acknowledgement {
                status,
                cookie,
                grant: Grant {
                    interval_us,
                    train_packets,
                },
            })
        }),
        (any::<(u64, u16, u16)>(), size()).prop_map(|((sent_ns, number, train), length)| {
            Body::Probe(Probe {
                sent_ns,
                number,
                train,
                length,
            })
        }),
        (any::<(u64, u64)>(), corrections).prop_map(|((xcp_B, probes), corrections)| {
            Body::Report(Report {
                xcp_B,
                probes,
                corrections,
            })
        }),
        prop_oneof![Just(Role::Asker), Just(Role::Answerer)].prop_map(Body::Bye),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    (any::<(u64, u64)>(), body()).prop_map(|((stream, sequence), body)| Message {
        stream,
        sequence,
        body,
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn messages_round_trip(message in message()) {
        let bytes = message.build(&key());
        prop_assert!(bytes.len() <= usize::from(MAX_LENGTH));
        prop_assert_eq!(Message::parse(&bytes, &key()), Ok(message));
    }

    /// The bytes are not signed with the key. `head` adds a valid magic number and version, so
    /// that parsing goes further.
    #[test]
    fn random_bytes_are_an_error(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        head: bool,
    ) {
        if head {
            bytes.splice(..bytes.len().min(5), *b"XCPi\x01");
        }
        prop_assert!(Message::parse(&bytes, &key()).is_err());
    }

    /// The bytes are almost valid and signed with the key.
    #[test]
    fn signed_bytes_that_parse_are_rebuilt_identically(
        message in message(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in 0usize..40,
        repair: bool,
    ) {
        let mut bytes = message.build(&key());
        bytes.truncate(bytes.len() - 16);
        for (at, value) in changes {
            let at = at.index(bytes.len().min(60));
            bytes[at] = value;
        }
        if cut < 20 {
            bytes.truncate(bytes.len() - cut);
        }
        if repair && bytes.len() > 7 {
            let length = bytes.len() as u16 + 16;
            bytes[6..8].copy_from_slice(&length.to_be_bytes());
        }
        let bytes = cases::sign(bytes);
        match Message::parse(&bytes, &key()) {
            Ok(message) => prop_assert_eq!(message.build(&key()), bytes),
            Err(error) => prop_assert_ne!(error, Error::Tag),
        }
    }

    #[test]
    fn changed_message_is_an_error(
        message in message(),
        at: prop::sample::Index,
        change in 1u8..,
    ) {
        let mut bytes = message.build(&key());
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        let error = Message::parse(&bytes, &key()).unwrap_err();
        match at {
            0..=3 => prop_assert_eq!(error, Error::Magic),
            4 => prop_assert_eq!(error, Error::Version(bytes[4])),
            _ => prop_assert_eq!(error, Error::Tag),
        }
    }

    #[test]
    fn message_with_another_key_is_an_error(message in message()) {
        let other = Key::new(&[7; 32]).unwrap();
        prop_assert_eq!(Message::parse(&message.build(&other), &key()), Err(Error::Tag));
    }
}

#[test]
fn oversized_messages_are_shortened() {
    let message = |body| Message {
        stream: 1,
        sequence: 1,
        body,
    };
    for (asked, built) in [(0, MIN_PROBE_LENGTH), (u16::MAX, MAX_LENGTH)] {
        let probe = Body::Probe(Probe {
            sent_ns: 0,
            number: 0,
            train: 0,
            length: asked,
        });
        let bytes = message(probe).build(&key());
        assert_eq!(bytes.len(), usize::from(built));
        assert!(Message::parse(&bytes, &key()).is_ok());
    }
    let report = Body::Report(Report {
        corrections: vec![Correction::default(); MAX_CORRECTIONS + 1],
        ..Report::default()
    });
    let bytes = message(report).build(&key());
    assert_eq!(bytes.len(), 570);
    assert!(Message::parse(&bytes, &key()).is_ok());
}

#[test]
fn short_keys_are_refused() {
    assert_eq!(Key::new(&[0; 15]).unwrap_err(), ShortKey(15));
    assert!(Key::new(&[0; 16]).is_ok());
    assert!(Key::new(&[0; 1_000]).is_ok());
}

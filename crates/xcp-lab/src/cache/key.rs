// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The key of a result: SHA-256 over everything that can change it. For each ingredient,
//! its label and its bytes are hashed, both preceded by their length, so that different
//! lists of ingredients never give the same input.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::emulator::Emulator;
use crate::{Error, Result};

/// Version of the file format; incremented when the file or its records change.
pub const FORMAT: u32 = 1;

/// The key of a result: 64 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The hash of the ingredients that all variants of a run share.
#[derive(Clone)]
pub struct Ingredients(Sha256);

impl Ingredients {
    /// `archive` is the guest's archive without the request, `kernel` is the image.
    pub fn new(archive: &[u8], kernel: &[u8], emulator: &Emulator) -> Self {
        let mut all = Self(Sha256::new());
        all.add("format", &FORMAT.to_le_bytes());
        all.add("archive", archive);
        all.add("kernel", kernel);
        all.add("emulator", emulator.version.as_bytes());
        for file in &emulator.firmware {
            all.add("firmware", file);
        }
        all
    }

    /// The key of one request or task that runs with these arguments of QEMU.
    pub fn key(&self, arguments: &[String], request: &impl Serialize) -> Result<Key> {
        let mut all = self.clone();
        for argument in arguments {
            all.add("argument", argument.as_bytes());
        }
        let text = serde_json::to_vec(request)
            .map_err(|e| Error::new("request", e.to_string(), "report this"))?;
        all.add("request", &text);
        Ok(Key(hex(&all.0.finalize())))
    }

    fn add(&mut self, label: &str, bytes: &[u8]) {
        for part in [label.as_bytes(), bytes] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }
}

/// The SHA-256 of bytes, in hex.
pub fn digest(bytes: &[u8]) -> impl fmt::Display {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::X86_64;
    use crate::catalog;
    use crate::experiment::Experiment;
    use crate::guest::Request;
    use crate::machine::Setup;

    struct Whole {
        archive: Vec<u8>,
        kernel: Vec<u8>,
        emulator: Emulator,
        arguments: Vec<String>,
        experiment: Experiment,
        variant: String,
        seed: u64,
        points: Vec<String>,
    }

    impl Whole {
        fn new() -> Self {
            Self {
                archive: b"archive".to_vec(),
                kernel: b"kernel".to_vec(),
                emulator: Emulator {
                    version: "QEMU emulator version 7.2.22".into(),
                    firmware: vec![b"bios".to_vec(), b"boot".to_vec()],
                },
                arguments: Setup::default().arguments(&X86_64, "6.18.15"),
                experiment: catalog::find("zh-validation").expect("is built in"),
                variant: "xcp".into(),
                seed: 1,
                points: Vec::new(),
            }
        }

        fn key(&self) -> Key {
            let request = Request::new(&self.experiment, &self.variant, self.seed, &self.points);
            let request = request.expect("it has this variant");
            Ingredients::new(&self.archive, &self.kernel, &self.emulator)
                .key(&self.arguments, &request)
                .expect("it can be serialised")
        }
    }

    type Change = (&'static str, fn(&mut Whole));

    #[test]
    fn every_ingredient_changes_the_key() {
        let changes: &[Change] = &[
            ("archive", |w| w.archive[0] ^= 1),
            ("kernel", |w| w.kernel[0] ^= 1),
            ("a byte moved from one ingredient to the next", |w| {
                let byte = w.archive.pop().expect("not empty");
                w.kernel.insert(0, byte);
            }),
            ("version", |w| w.emulator.version.push('3')),
            ("firmware", |w| w.emulator.firmware[1][0] ^= 1),
            ("one firmware file fewer", |w| {
                w.emulator.firmware.pop();
            }),
            ("memory", |w| {
                let setup = Setup {
                    memory_mb: 1024,
                    ..Setup::default()
                };
                w.arguments = setup.arguments(&X86_64, "6.18.15");
            }),
            ("order of arguments", |w| w.arguments.swap(0, 1)),
            ("duration", |w| w.experiment.duration_s += 1.0),
            ("warm-up", |w| w.experiment.warmup_s += 0.1),
            ("rate", |w| w.experiment.links[0].rate_mbit = Some(1.5)),
            ("flow", |w| w.experiment.flows[0].start_s += 1e-9),
            ("IPv6", |w| w.experiment.ip = 6),
            ("IPv6 of the variant", |w| {
                w.experiment.variants[0].ip = Some(6);
            }),
            ("variant", |w| w.variant = "cubic".into()),
            ("option of the variant", |w| {
                w.experiment.variants[0].measure ^= true;
            }),
            ("seed", |w| w.seed = 2),
            ("points", |w| w.points.push("r-d".into())),
        ];
        let mut seen = vec![Whole::new().key()];
        for (name, change) in changes {
            let mut whole = Whole::new();
            change(&mut whole);
            let key = whole.key();
            assert!(!seen.contains(&key), "{name}");
            seen.push(key);
        }
    }

    #[test]
    fn lengths_separate_ingredients() {
        let key = |arguments: &[&str]| {
            let mut whole = Whole::new();
            whole.arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
            whole.key()
        };
        assert_ne!(key(&["one", "two"]), key(&["oneargumenttwo"]));
    }

    #[test]
    fn texts_checks_and_other_variants_do_not_change_the_key() {
        let changes: &[Change] = &[
            ("nothing", |_| ()),
            ("about", |w| w.experiment.about = "another".into()),
            ("source", |w| w.experiment.source = "another".into()),
            ("a check's bound", |w| {
                w.experiment.checks[0].min = Some(2.0)
            }),
            ("one check fewer", |w| {
                w.experiment.checks.pop();
            }),
            ("quick and kernels", |w| {
                w.experiment.variants[0].quick ^= true;
                w.experiment.variants[0].kernels = vec!["6.12".into()];
            }),
            ("another variant", |w| {
                w.experiment.variants[1].control = "bbr".into();
            }),
        ];
        for (name, change) in changes {
            let mut whole = Whole::new();
            change(&mut whole);
            assert_eq!(whole.key(), Whole::new().key(), "{name}");
        }
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
use crate::machine::Played;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use xcp_datapath::trace::Interval;

use super::*;
use crate::cache::key::Ingredients;
use crate::capture::Recording;
use crate::catalog;
use crate::emulator::Emulator;
use crate::guest::Request;
use crate::result::{FlowResult, FlowSample, QueueStats, Sample, Series, VariantResult};

/// Environment variable for the process that a test kills: the folder that it writes to.
const VICTIM: &str = "XCP_TEST_KEPT_VICTIM";

fn store(limit_bytes: u64) -> (TempDir, Store) {
    let dir = tempfile::tempdir().expect("temporary folder");
    let store = Store::at(dir.path().join("results"), limit_bytes).expect("folder");
    (dir, store)
}

/// The key of a result; different seeds have different keys and results.
fn key(seed: u64) -> Key {
    let experiment = catalog::find("zh-validation").expect("is built in");
    let request = Request::new(&experiment, "xcp", seed, &[]).expect("it has this variant");
    let all = Ingredients::new(b"archive", b"kernel", &Emulator::default());
    all.key(&[], &request).expect("it can be serialised")
}

fn label(seed: u64) -> Label {
    Label {
        experiment: "zh-validation".into(),
        variant: "xcp".into(),
        seed,
        kernel: "6.18.5".into(),
    }
}

/// A result with all optional parts.
fn played(seed: u64) -> Played {
    let mut noise = seed;
    let mut next = || {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        noise
    };
    // numbers with the maximum number of digits
    let mut number = || next() as f64 / 3e15;
    let samples = (0..2000).map(|i| Sample {
        time_s: f64::from(i) * 0.1 + number(),
        queue_packets: i,
        flows: vec![FlowSample::default(); 4],
        ..Sample::default()
    });
    let samples: Vec<Sample> = samples.collect();
    let interval = Interval {
        time_s: number(),
        interval_s: number(),
        average_rtt_s: number(),
        capacity_bps: 10_000_000,
        link_bps: None,
        input_rate_bps: 1,
        other_rate_bps: 2,
        queue_bytes: 3,
        persistent_queue_bytes: 4,
        feedback_bps: -5,
        increase_bps: 6,
        decrease_bps: 7,
        xcp_share: Some(number()),
        xcp_flows: number(),
    };
    Played {
        kernel: "6.18.5".into(),
        result: VariantResult {
            name: "xcp".into(),
            link_utilisation: number(),
            queue_packets: QueueStats {
                mean: number(),
                p99: 2.0,
                max: 3.0,
            },
            flows: vec![FlowResult {
                name: "1".into(),
                control: Some("xcp".into()),
                goodput_bps: number(),
                cwnd_packets: number(),
                cwnd_max_packets: 0,
                rtt_ms: number(),
                convergence_s: None,
                convergence_rtts: None,
                fair_share: None,
            }],
            ..VariantResult::default()
        },
        series: Series {
            samples,
            router: vec![interval],
        },
        recordings: [("r-d", 100_000), ("d-r", 24)]
            .map(|(point, length)| Recording {
                point: point.into(),
                packets: 9,
                missing: 1,
                file: (0..length).map(|_| next() as u8).collect(),
            })
            .to_vec(),
    }
}

/// All parts of a result, for comparison.
fn text(played: &Played) -> (String, &[Recording]) {
    let all = (&played.kernel, &played.result, &played.series);
    let text = serde_json::to_string(&all).expect("it can be serialised");
    (text, &played.recordings)
}

fn put(store: &Store, seed: u64) {
    store
        .put(&key(seed), &label(seed), &played(seed))
        .expect("it is kept");
}

fn names(store: &Store) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(&store.folder)
        .expect("folder")
        .map(|e| e.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn kept_result_is_returned_unchanged() {
    let (_dir, store) = store(u64::MAX);
    assert!(store.get::<Played>(&key(1)).is_none());
    put(&store, 1);
    put(&store, 2);
    for seed in [1, 2] {
        let back = store.get(&key(seed)).expect("is kept");
        assert_eq!(text(&back), text(&played(seed)));
    }
    assert!(text(&played(1)) != text(&played(2)));
    // another result with the same key replaces it
    store.put(&key(1), &label(1), &played(3)).expect("is kept");
    let back = store.get(&key(1)).expect("is kept");
    assert_eq!(text(&back), text(&played(3)));
    assert_eq!(names(&store).len(), 2);
}

#[test]
fn damaged_entry_is_removed() {
    let (_dir, store) = store(u64::MAX);
    let path = store.path(&key(1));
    put(&store, 1);
    let whole = fs::read(&path).expect("is there");
    let lines: Vec<usize> = (0..whole.len()).filter(|i| whole[*i] == b'\n').collect();
    let first_two = lines[1];
    let flips = (0..=first_two).chain((first_two..whole.len()).step_by(997));
    let damages = flips.map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        bytes
    });
    let cuts = [0, 1, lines[0], lines[0] + 1, first_two + 1, whole.len() - 1];
    let cuts = cuts.map(|length| whole[..length].to_vec());
    let longer = [whole.as_slice(), b"x"].concat();
    for bytes in damages.chain(cuts).chain([longer]) {
        fs::write(&path, bytes).expect("written");
        assert!(store.get::<Played>(&key(1)).is_none());
        assert!(!path.exists());
    }
    // a complete entry under the name of another one
    fs::write(&path, &whole).expect("written");
    fs::rename(&path, store.path(&key(2))).expect("renamed");
    assert!(store.get::<Played>(&key(2)).is_none());
    assert_eq!(names(&store), Vec::<String>::new());
    put(&store, 1);
    assert!(store.get::<Played>(&key(1)).is_some());
}

#[test]
fn least_recently_used_entries_are_removed_first() {
    let (_dir, mut store) = store(u64::MAX);
    for seed in 1..=4 {
        put(&store, seed);
        let file = File::open(store.path(&key(seed))).expect("is there");
        let used = SystemTime::now() - Duration::from_secs(100 - 10 * seed);
        file.set_modified(used).expect("time is set");
    }
    let paths: Vec<PathBuf> = (0..=6).map(|seed| store.path(&key(seed))).collect();
    let size = |seed: usize| fs::metadata(&paths[seed]).map_or(0, |about| about.len());
    let three = size(1) + size(4) + size(4) + 100;
    assert!(store.get::<Played>(&key(1)).is_some(), "it is used again");
    store.limit_bytes = three;
    put(&store, 5);
    let left: Vec<usize> = (1..=5).filter(|seed| size(*seed) > 0).collect();
    assert_eq!(left, [1, 4, 5]);
    assert_eq!(names(&store).len(), 3);

    // a result above the limit does not remove others
    store.limit_bytes = size(5) - 1;
    let error = store.put(&key(6), &label(6), &played(6));
    assert!(error.is_err_and(|e| e.reason.contains(LIMIT)));
    assert_eq!(names(&store).len(), 3);
}

/// The test runs itself as the process that is killed, which writes half of an entry.
#[test]
fn killed_writer_loses_only_its_entry() {
    if let Some(folder) = env::var_os(VICTIM) {
        let store = Store::at(folder.into(), u64::MAX).expect("folder");
        let bytes = entry::encode(&key(2), &label(2), &played(2)).expect("encoded");
        let mut file = store.begin().expect("file");
        file.write_all(&bytes[..bytes.len() / 2]).expect("written");
        println!("\nhalf");
        thread::sleep(Duration::from_secs(60));
        return;
    }
    let (_dir, store) = store(u64::MAX);
    put(&store, 1);
    let mut victim = Command::new(env::current_exe().expect("this program"))
        .args([
            "--exact",
            "cache::store::tests::killed_writer_loses_only_its_entry",
        ])
        .arg("--nocapture")
        .env(VICTIM, &store.folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(victim.stdout.take().expect("piped")).lines();
    assert!(said.any(|line| line.is_ok_and(|l| l == "half")));
    // other processes do not touch the file that it writes
    put(&store, 3);
    assert_eq!(names(&store).len(), 3);
    victim.kill().expect("it is killed");
    victim.wait().expect("it ends");
    assert_eq!(names(&store).len(), 3);
    assert!(store.get::<Played>(&key(2)).is_none());
    assert!(store.get::<Played>(&key(1)).is_some());
    put(&store, 2);
    let whole = names(&store);
    assert!(
        whole.iter().all(|name| name.ends_with(".kept")),
        "{whole:?}"
    );
    assert_eq!(whole.len(), 3);
    assert!(store.get::<Played>(&key(2)).is_some());
}

#[test]
fn entry_is_complete_while_it_is_replaced() {
    let (_dir, store) = store(u64::MAX);
    put(&store, 1);
    thread::scope(|scope| {
        let writer = scope.spawn(|| (0..5).for_each(|_| put(&store, 1)));
        while !writer.is_finished() {
            assert!(store.get::<Played>(&key(1)).is_some());
        }
    });
}

#[test]
fn threads_share_a_folder() {
    // the limit allows two entries
    let (_dir, store) = store(1_000_000);
    put(&store, 1);
    let one = fs::metadata(store.path(&key(1))).expect("is there").len();
    let store = Store {
        limit_bytes: 2 * one + one / 2,
        ..store
    };
    thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for turn in 0..3 {
                    let seed = 1 + (thread + turn) % 3;
                    put(store, seed);
                    if let Some(back) = store.get(&key(seed)) {
                        assert_eq!(text(&back), text(&played(seed)));
                    }
                }
            });
        }
    });
    store.tidy().expect("tidy");
    let names = names(&store);
    assert!(
        names.iter().all(|name| name.ends_with(".kept")),
        "{names:?}"
    );
    assert!((1..=2).contains(&names.len()), "{names:?}");
}

#[test]
fn list_contains_labels_of_all_entries() {
    let (_dir, store) = store(u64::MAX);
    put(&store, 1);
    put(&store, 2);
    // listed with its size only
    fs::write(store.folder.join("x.kept"), "rubbish").expect("written");
    fs::write(store.folder.join("README"), "not an entry").expect("written");
    let list = store.list().expect("a list");
    let mut labels: Vec<_> = list.entries.iter().map(|e| e.label.clone()).collect();
    labels.sort_by_key(|l| l.as_ref().map(|l| l.seed));
    assert_eq!(labels, [None, Some(label(1)), Some(label(2))]);
    let sum: u64 = list.entries.iter().map(|e| e.bytes).sum();
    assert_eq!(list.total_bytes, sum);
    assert!(list.entries.iter().all(|e| e.bytes > 0 && e.age_s < 60));

    let cleared = store.clear().expect("cleared");
    assert_eq!((cleared.entries, cleared.bytes), (3, sum));
    assert_eq!(names(&store), ["README"]);
    assert!(store.get::<Played>(&key(1)).is_none());
}

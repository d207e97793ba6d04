// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Random configuration files: `xcp apply` sets up what a valid file describes, and an
//! invalid file changes nothing.

use std::env;

use super::cases::configuration::Site;
use crate::command::SystemState;
use crate::common::test_lock;
use serde_json::{json, Map, Value};
use xcp_datapath::features::has_qdisc;
use xcp_testbed::can_run;

/// The number of files, unless the environment gives another one: a virtual machine is
/// slower.
const FILES: u32 = 1_000;
const FILES_VARIABLE: &str = "XCP_TEST_FILES";

/// SplitMix64 (Steele et al. 2014): the same files each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A table of a file as it is written, and as `xcp config show` prints it.
#[derive(Default)]
struct Table {
    written: Vec<String>,
    shown: Map<String, Value>,
}

impl Table {
    /// Adds a key that is shown as it is written.
    fn set(&mut self, key: &str, value: Value) {
        self.written.push(format!("{key} = {value}"));
        self.shown.insert(key.into(), value);
    }

    /// Adds a key that is shown differently, or not at all if its value is the default.
    fn set_as(&mut self, key: &str, value: Value, shown: Option<Value>) {
        self.written.push(format!("{key} = {value}"));
        self.shown.extend(shown.map(|shown| (key.into(), shown)));
    }

    /// The table as text, with its lines in random order.
    fn text(&mut self, head: &str, random: &mut Random) -> String {
        for i in (1..self.written.len()).rev() {
            self.written.swap(i, random.below(i as u64 + 1) as usize);
        }
        let gap = random.of(&["", "\n", "# a comment\n"]);
        format!("{gap}{head}\n{}\n", self.written.join("\n"))
    }
}

fn random_host(random: &mut Random) -> Table {
    let mut host = Table::default();
    host.set("this_netns", json!(true));
    if random.one_in(2) {
        host.set("default", json!(true));
    }
    let has_device = random.one_in(3);
    if has_device {
        host.set("devices", json!(["v1"]));
    }
    let has_peers = random.one_in(2);
    if has_peers {
        let peers = random.of(&[&["10.0.0.0/8"][..], &["192.0.2.1/32", "2001:db8::/32"][..]]);
        host.set("peers", json!(peers));
    }
    match random.below(4) {
        0 => host.set("wire", json!("option-2005")),
        1 if has_device && has_peers => host.set("wire", json!("header")),
        _ => {}
    }
    if random.one_in(4) {
        host.set_as("ip_proto", json!(200), has_device.then(|| json!(200)));
    }
    if random.one_in(4) {
        host.set_as(
            "without",
            json!(["app-limit", "losses"]),
            Some(json!(["losses", "app-limit"])),
        );
    }
    host
}

fn random_router(device: &str, random: &mut Random) -> Table {
    let mut router = Table::default();
    let written = match (device, random.below(3)) {
        ("v0", 0) => "uplink".to_owned(),
        (_, 1) => format!("v[{}]", &device[1..]),
        _ => device.to_owned(),
    };
    router.set_as("device", json!(written), Some(json!(device)));
    let (capacity, as_shown) = random.of(&[
        ("10mbit", "10mbit"),
        ("2.5gbit", "2500mbit"),
        ("0.1 Gbit", "100mbit"),
        ("8kbit", "8kbit"),
        ("auto", "auto"),
    ]);
    router.set_as("capacity", json!(capacity), Some(json!(as_shown)));
    let is_auto = capacity == "auto";
    // on a device without a queue the capacity cannot be measured
    if is_auto || random.one_in(3) {
        let shape = if is_auto {
            "20mbit"
        } else {
            random.of(&["capacity", "20mbit"])
        };
        // the queue discipline xcp shapes to the capacity by default
        let needless = shape == "capacity" && has_qdisc();
        let limit = random.one_in(2);
        router.set_as(
            "shape",
            json!(shape),
            (!needless || limit).then(|| json!(shape)),
        );
        if limit {
            router.set("limit", json!(37));
        }
    } else if random.one_in(4) {
        router.set_as("qdisc", json!(false), has_qdisc().then_some(json!(false)));
    }
    if !is_auto && random.one_in(5) {
        router.set("measure", json!(false));
    }
    if random.one_in(3) {
        router.set("xcp_share", json!(1 + random.below(99)));
    }
    if random.one_in(3) {
        router.set("overhead", json!(1 + random.below(64)));
    }
    if random.one_in(4) {
        router.set("mpu", json!(64));
    }
    if random.one_in(4) {
        router.set("cells", json!("atm"));
    }
    if random.one_in(3) {
        let (written, shown) = random.of(&[
            ("0.25s", Some("250ms")),
            ("1000ms", None),
            ("1500us", Some("1500us")),
            ("2000ms", Some("2s")),
        ]);
        router.set_as("max_rtt", json!(written), shown.map(|s| json!(s)));
    }
    if random.one_in(4) {
        router.set("anticipate", json!(false));
    }
    if random.one_in(5) {
        router.set("ip_proto", json!(200));
    }
    router
}

/// A valid file, and the configuration that is shown after it has been applied.
fn random_file(random: &mut Random) -> (String, Value) {
    let mut shown = Map::new();
    let mut tables = Vec::new();
    if random.below(3) > 0 {
        let mut host = random_host(random);
        tables.push(host.text("[host]", random));
        shown.insert("host".into(), Value::Object(host.shown));
    }
    let mut routers = Vec::new();
    for device in ["v0", "v2", "v3"] {
        if random.below(3) > 0 {
            let mut router = random_router(device, random);
            tables.push(router.text("[[router]]", random));
            routers.push(Value::Object(router.shown));
        }
    }
    if !routers.is_empty() {
        shown.insert("router".into(), Value::Array(routers));
    }
    if random.one_in(2) {
        tables.reverse();
    }
    (tables.concat(), Value::Object(shown))
}

/// The same file with an error.
fn broken(valid: &str, random: &mut Random) -> String {
    const V0: &str = "[[router]]\ndevice = \"v0\"\ncapacity = \"1mbit\"\n";
    let more = match random.below(14) {
        0 => "[[router]]\ndevice = \"nosuch0\"\ncapacity = \"1mbit\"\n".to_owned(),
        1 => format!("{V0}{V0}"),
        2 => format!("{V0}speed = \"1mbit\"\n"),
        3 => format!("{V0}overhead = \"18\"\n"),
        4 => format!("{V0}xcp_share = {}\n", 100 + random.below(1000)),
        5 => format!("{V0}max_rtt = \"{}\"\n", random.below(100)),
        6 => format!("{V0}shape = \"10\"\n"),
        7 => format!("{V0}limit = 10\n"),
        8 => "[[router]]\ndevice = \"v2\"\n".to_owned(),
        9 => "[[router]]\ndevice = \"v2\"\ncapacity = \"10mb\"\n".to_owned(),
        10 => "[[router]]\ndevice = \"v[2\"\ncapacity = \"10mbit\"\n".to_owned(),
        11 => "[edge]\nupstream = []\n".to_owned(),
        12 => format!("{V0}anticipate = \"no\"\n"),
        _ => {
            // a truncated file with an unclosed bracket
            let end = random.below(valid.len() as u64 + 1) as usize;
            return format!("{}\n[[router\n", &valid[..end]);
        }
    };
    format!("{valid}{more}")
}

#[test]
fn random_files_are_applied_and_invalid_ones_change_nothing() {
    let _lock = test_lock();
    let Some(traces) =
        SystemState::capture_before("random files").filter(|_| can_run("random files"))
    else {
        return;
    };
    let site = Site::new("random");
    let mut random = Random(1);
    let files = env::var(FILES_VARIABLE).map_or(FILES, |n| n.parse().unwrap());
    for i in 0..files {
        let (text, want) = random_file(&mut random);
        let ran = site.apply(&text, "");
        assert_eq!(ran.code, Some(0), "file {i}: {ran:?}\n{text}");
        assert_eq!(site.shown(), want, "file {i}:\n{text}");
        let text = broken(&text, &mut random);
        let ran = site.apply(&text, "");
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (Some(1), ""),
            "file {i}:\n{text}"
        );
        let place = ran
            .err
            .strip_prefix(&format!("xcp: {}:", site.path().display()));
        let mut numbers = place.unwrap_or_default().splitn(3, ':');
        for what in ["line", "column"] {
            let number: Option<u32> = numbers.next().and_then(|n| n.parse().ok());
            assert!(
                number.is_some_and(|n| n > 0),
                "file {i}: {what} of {ran:?}\n{text}"
            );
        }
        assert_eq!(site.shown(), want, "broken file {i}:\n{text}");
    }
    site.apply("", "").ok();
    drop(site);
    traces.assert_nothing_left();
}

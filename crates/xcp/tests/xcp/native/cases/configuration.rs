// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp apply` and `xcp config show`, with and without the queue discipline `xcp`.

use std::fs;
use std::path::PathBuf;

use crate::command::{NetNamespace, Ran, SystemState};
use crate::common::test_lock;
use serde_json::{json, Value};
use tempfile::TempDir;
use xcp_testbed::can_run;

/// A network namespace with devices and a configuration file.
pub struct Site {
    pub space: NetNamespace,
    dir: TempDir,
}

impl Site {
    pub fn new(name: &str) -> Self {
        let space = NetNamespace::new(name);
        for action in [
            "set v0 up",
            "set v1 up",
            "add v2 type veth peer name v3",
            "property add dev v0 altname uplink",
        ] {
            space.device(action);
        }
        let dir = tempfile::tempdir().unwrap();
        Self { space, dir }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("xcp.toml")
    }

    pub fn apply(&self, text: &str, options: &str) -> Ran {
        fs::write(self.path(), text).unwrap();
        let line = format!("apply {} {options}", self.path().display());
        self.space.xcp(&line)
    }

    fn changes(&self, text: &str) -> Value {
        let report = self.apply(text, "--json").ok().json();
        let routers = report["routers"].as_array().unwrap().iter();
        let told = |r: &Value| json!([r["device"], r["change"]]);
        let routers: Vec<Value> = routers.map(told).collect();
        json!([report["host"]["change"], routers])
    }

    pub fn shown(&self) -> Value {
        self.space.xcp("config show --json").ok().json()
    }
}

const FILE: &str = r#"
[host]
default = true
this_netns = true

[[router]]
device = "uplink"
capacity = "20mbit"
xcp_share = 70

[[router]]
device = "v[23]"
capacity = "0.1gbit"
shape = "capacity"
max_rtt = "250ms"
"#;

#[test]
fn a_file_is_applied_and_shown() {
    let _lock = test_lock();
    let Some(traces) = SystemState::capture_before("apply").filter(|_| can_run("apply")) else {
        return;
    };
    let site = Site::new("apply");
    let checked = site.apply(FILE, "--check --diff").ok();
    assert!(
        checked.out.contains("+ router v0: to be added\n"),
        "{checked:?}"
    );
    assert!(checked.out.contains("    xcp_share = 70\n"), "{checked:?}");
    assert_eq!(site.shown(), json!({}), "--check has changed something");
    let all = |change: &str| json!([change, [["v0", change], ["v2", change], ["v3", change]]]);
    assert_eq!(site.changes(FILE), all("added"));
    assert_eq!(site.changes(FILE), all("unchanged"));
    let like_v2 = |device: &str| {
        json!({ "device": device, "capacity": "100mbit", "shape": "capacity",
                "max_rtt": "250ms" })
    };
    let mut v2 = like_v2("v2");
    let mut v3 = like_v2("v3");
    if xcp_datapath::features::has_qdisc() {
        // it shapes to the capacity by default
        for router in [&mut v2, &mut v3] {
            router.as_object_mut().unwrap().remove("shape");
        }
    }
    let v0 = json!({ "device": "v0", "capacity": "20mbit", "xcp_share": 70 });
    let host = json!({ "default": true, "this_netns": true });
    assert_eq!(
        site.shown(),
        json!({ "host": host, "router": [v0, v2, v3] })
    );
    let shown = site.space.xcp("config show").ok().out;
    assert_eq!(site.changes(&shown), all("unchanged"), "{shown}");
    // v0 is changed, v2 removed, and the host stays
    let other = "[host]\ndefault = true\nthis_netns = true\n[[router]]\ndevice = \"v0\"\n\
                 capacity = \"5mbit\"\n[[router]]\ndevice = \"v3\"\ncapacity = \"0.1gbit\"\n\
                 shape = \"capacity\"\nmax_rtt = \"250ms\"\n";
    let ran = site.apply(other, "--diff").ok().out;
    assert!(
        ran.contains("~ router v0: changed\n    capacity = \"20mbit\" -> \"5mbit\"\n"),
        "{ran}"
    );
    assert!(
        ran.contains("- router v2: removed\n") && ran.ends_with("2 unchanged\n"),
        "{ran}"
    );
    let gone = site.changes("");
    assert_eq!(
        gone,
        json!(["removed", [["v0", "removed"], ["v3", "removed"]]])
    );
    assert_eq!(site.shown(), json!({}));
    traces.assert_nothing_left();
}

#[test]
fn a_failed_device_keeps_its_router_and_others_are_changed() {
    let _lock = test_lock();
    let Some(traces) = SystemState::capture_before("apply").filter(|_| can_run("apply")) else {
        return;
    };
    let site = Site::new("partly");
    let file = |capacity: &str, more: &str| {
        let router = |dev: &str, more: &str| {
            format!("[[router]]\ndevice = \"{dev}\"\ncapacity = \"{capacity}\"\n{more}\n")
        };
        router("v0", more) + &router("v2", "qdisc = false")
    };
    site.apply(&file("10mbit", "qdisc = false"), "").ok();
    // xcp does not replace a queue discipline that it did not set
    site.space.tc("qdisc add dev v0 root pfifo");
    let ran = site.apply(&file("20mbit", "shape = \"capacity\""), "");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.starts_with("xcp: v0: "), "{ran:?}");
    assert!(
        ran.out
            .contains("! router v0: failed, not changed\n~ router v2: changed\n"),
        "{ran:?}"
    );
    let shown = site.shown();
    assert_eq!(shown["router"][0]["capacity"], "10mbit");
    assert_eq!(shown["router"][1]["capacity"], "20mbit");
    site.apply("", "").ok();
    traces.assert_nothing_left();
}

#[test]
fn missing_devices_are_errors_or_ignored_with_ignore_missing() {
    let _lock = test_lock();
    let Some(traces) = SystemState::capture_before("apply").filter(|_| can_run("apply")) else {
        return;
    };
    let site = Site::new("missing");
    let file = "[[router]]\ndevice = \"v0\"\ncapacity = \"10mbit\"\n\n[[router]]\n\
                device = \"eth7\"\ncapacity = \"10mbit\"\n";
    site.apply(file, "").failed(
        1,
        &format!(
            "xcp: {}:6:10: no such network device here: eth7\n  help: list the devices with \
             `ip link`; --ignore-missing ignores those that do not exist yet\n",
            site.path().display()
        ),
    );
    assert_eq!(site.shown(), json!({}));
    site.apply(file, "--ignore-missing").ok();
    assert_eq!(site.shown()["router"].as_array().unwrap().len(), 1);
    // a header format needs a device; the routers do not wait for it
    let host = "[host]\nwire = \"header\"\ndevices = [\"eth7\"]\npeers = [\"10.0.0.0/8\"]\n\n";
    let router = "[[router]]\ndevice = \"v0\"\ncapacity = \"20mbit\"\n";
    let ran = site.apply(&format!("{host}{router}"), "--ignore-missing");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.err.contains("none of its devices exists yet"),
        "{ran:?}"
    );
    let shown = site.shown();
    assert_eq!(shown["host"], Value::Null);
    assert_eq!(shown["router"][0]["capacity"], "20mbit");
    site.apply("", "").ok();
    traces.assert_nothing_left();
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp lab run`: real kernels in the virtual-time machine, run as users run it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::Ran;
use crate::place::{number, two_second_run, Lab, SHORT};
use serde_json::Value;

#[test]
fn a_run_reports_all_results() {
    let lab = Lab::new();
    // a quick case of `xcp lab all`: its result is kept if that has run
    let args = ["brief", "--variant", "configured-11", "--kernel", "newest"];
    let ran = lab.run(&[&args[..], &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let result = ran.json();
    assert_eq!(result["experiment"], "brief");
    let release = result["kernel"].as_str().unwrap();
    let major = release.split('.').next().and_then(|n| n.parse().ok());
    assert!(major.is_some_and(|major: u32| major >= 7), "{release}");
    assert_eq!(result["ok"], true);
    let xcp = &result["variants"][0];
    assert_eq!(xcp["name"], "configured-11");
    assert!(number(&xcp["link_utilisation"]) >= 0.98, "{xcp}");
    assert_eq!(xcp["flows"].as_array().unwrap().len(), 2);
    for flow in xcp["flows"].as_array().unwrap() {
        assert_eq!(flow["control"], "xcp", "{xcp}");
    }
    assert_eq!(xcp["checks"].as_array().unwrap().len(), 3);
    let samples = lab.report("configured-11.csv").lines().count();
    assert!(samples > 140, "a sample every 100 ms: {samples}");
    assert!(lab.report("report.html").contains("brief"));
}

#[test]
fn another_seed_gives_another_run() {
    let lab = Lab::new();
    let file = lab.file("x.toml", &two_second_run());
    let seen = ["1", "2"].map(|seed| {
        let ran = lab.run(&[&file, "--seed", seed]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        lab.report("xcp.csv")
    });
    assert!(seen[0] != seen[1], "both seeds give the same run");
}

#[test]
fn sockets_opened_by_protocol_number_use_xcp() {
    let by_number = SHORT.replace(
        "control = \"xcp\"",
        "control = \"xcp\"\nsocket = \"protocol\"",
    );
    let plain = "[[variant]]\nname = \"plain\"\ncontrol = \"cubic\"\nqueue = \"xcp\"\n";
    let lab = Lab::new();
    for (ip, kernel) in [(4, "6.12"), (6, "6.18")] {
        let file = lab.file("x.toml", &format!("ip = {ip}\n{by_number}{plain}"));
        let ran = lab.run(&[&file, "--json", "--kernel", kernel]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let result = ran.json();
        let [xcp, plain] = [0, 1].map(|i| &result["variants"][i]);
        for (variant, control) in [(xcp, "xcp"), (plain, "cubic")] {
            for flow in variant["flows"].as_array().unwrap() {
                assert_eq!(flow["control"], control, "{variant}");
            }
        }
        let queue = |variant: &Value| variant["queue_packets"]["mean"].as_f64().unwrap();
        assert!(queue(xcp) <= 5.0 && queue(plain) > 20.0, "{result}");
        assert!(xcp["link_utilisation"].as_f64().unwrap() >= 0.98, "{xcp}");
        assert_eq!(xcp["drops"], 0, "{xcp}");
    }
    let cubic = by_number.replace("control = \"xcp\"", "control = \"cubic\"");
    let ran = lab.run(&[&lab.file("x.toml", &cubic)]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("the protocol number is XCP's"), "{ran:?}");
}

#[test]
fn the_example_of_the_lab_guide_runs() {
    let guide = include_str!("../../../../../docs/reference/experiment-file.md");
    let example = guide.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let lab = Lab::new();
    let ran = lab.run(&[&lab.file("short.toml", example), "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let drops = |variant: usize| ran.json()["variants"][variant]["drops"].clone();
    assert_eq!(drops(0), 0, "XCP must drop nothing");
    assert_ne!(drops(1), 0, "CUBIC must fill the queue");
}

#[test]
fn a_failed_check_gives_exit_status_1() {
    let lab = Lab::new();
    let check = "[[check]]\nvariant = \"xcp\"\nmetric = \"queue_max\"\nmax = 0\n";
    let short = two_second_run();
    let ran = lab.run(&[&lab.file("x.toml", &format!("{short}{check}"))]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.out.contains("FAILED  xcp  queue_packets.max <= 0"),
        "{ran:?}"
    );
}

#[test]
fn a_known_gap_passes_until_it_is_closed() {
    let lab = Lab::new();
    let short = two_second_run();
    let check = |metric: &str, why: &str| {
        let check = format!("[[check]]\nvariant = \"xcp\"\nmetric = \"{metric}\"\nmax = 0\n");
        format!("{check}known_gap = \"{why}\"\n")
    };
    let missed = check("queue_max", "packets come in bursts");
    let ran = lab.run(&[&lab.file("x.toml", &format!("{short}{missed}")), "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let result = ran.json();
    let gap = &result["variants"][0]["checks"][0];
    assert_eq!(result["ok"], true, "{result}");
    assert_eq!(gap["ok"], true, "{gap}");
    assert_eq!(gap["verdict"], "known_gap", "{gap}");
    assert_eq!(gap["known_gap"], "packets come in bursts", "{gap}");
    assert!(gap["measured"].as_f64().unwrap() > 0.0, "{gap}");

    let closed = check("drops", "the queue is short");
    let ran = lab.run(&[&lab.file("x.toml", &format!("{short}{missed}{closed}"))]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let line = |start: &str, end: &str| {
        let mut lines = ran.out.lines();
        lines.any(|l| l.starts_with(start) && l.ends_with(end))
    };
    let why = "  known gap: packets come in bursts";
    assert!(line("gap     xcp  queue_packets.max <= 0", why), "{ran:?}");
    let remedy = "  the known gap has closed: remove known_gap from the check";
    assert!(line("FAILED  xcp  drops <= 0", remedy), "{ran:?}");
}

#[test]
fn errors_in_experiment_files_name_line_and_column() {
    let lab = Lab::new();
    let form = "see the files in experiments/ for examples";
    for (text, place, reason) in [
        ("name = \"x\"\nabout = oops\n", ":2:9", ""),
        ("nam = \"x\"\n", ":1:1", "unknown field `nam`"),
        (
            &SHORT.replace("delay_ms = 50", "delay_ms = \"50\""),
            ":12:12",
            "invalid type",
        ),
        (
            &SHORT.replace("\"r\", \"d\"]\n\n", "\"r\", \"e\"]\n\n"),
            "",
            "bottleneck: no link",
        ),
    ] {
        let name = lab.file("x.toml", text);
        let ran = lab.run(&[&name]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(
            ran.err
                .starts_with(&format!("xcp: {name}{place}: {reason}")),
            "{ran:?}"
        );
        assert!(ran.err.ends_with(&format!("\n  help: {form}\n")), "{ran:?}");
    }
    let name = lab.path("none.toml").display().to_string();
    let ran = lab.run(&[&name]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.starts_with(&format!("xcp: {name}: ")), "{ran:?}");
}

#[test]
fn unknown_variants_capture_points_and_kernels_are_errors() {
    let lab = Lab::new();
    lab.run(&["zh-validation", "--variant", "vegas"]).failed(
        1,
        "xcp: variant vegas: zh-validation has no such variant\n  \
         help: use one of xcp, cubic, bbr, reno, cubic-red, cubic-fq_codel\n",
    );
    lab.run(&[&lab.file("x.toml", SHORT), "--pcap", "r-x"])
        .failed(
            1,
            "xcp: point r-x: short has no such point\n  help: use one of s-r, r-s, r-d, d-r\n",
        );
    lab.run(&["zh-validation", "--kernel", "2.4"]).failed(
        1,
        "xcp: 2.4: no such kernel\n  help: give 6.12, 6.18, newest, or the path of an image\n",
    );
    let text = lab.file("vmlinuz", "no kernel");
    let ran = lab.run(&["zh-validation", "--kernel", &text]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("not a Linux kernel image"), "{ran:?}");
}

#[test]
fn a_kernel_that_does_not_boot_is_reported() {
    // any run fetches the kernel; this is a short one
    let lab = Lab::new();
    let kernels = Path::new(&cache()).join("xcp/kernels/6.18");
    let short = lab.file("x.toml", &two_second_run());
    assert_eq!(lab.run(&[&short]).code, Some(0));

    let boot = fs::read_dir(kernels.join("boot")).unwrap().flatten();
    let image = boot
        .map(|e| e.path())
        .find(|p| p.display().to_string().contains("vmlinuz-"))
        .unwrap();
    let release = image.display().to_string();
    let release = release.split("vmlinuz-").nth(1).unwrap();
    let broken = lab.path("vmlinuz");
    fs::copy(&image, &broken).unwrap();
    let file = fs::File::options().write(true).open(&broken).unwrap();
    // overwrite a part of the compressed kernel
    file.write_all_at(&[0; 100_000], 1_000_000).unwrap();
    let modules = kernels.join("lib/modules").join(release);
    let named = format!("{}:{}", broken.display(), modules.display());
    let ran = lab.run(&[&short, "--kernel", &named]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("does not boot in the machine"), "{ran:?}");
    assert!(ran.err.contains("help: "), "{ran:?}");
}

#[test]
fn an_error_of_qemu_is_not_blamed_on_the_kernel() {
    let lab = Lab::new();
    let qemu = format!("qemu-system-{}", std::env::consts::ARCH);
    let real = Ran::of(Command::new("which").arg(&qemu)).ok().out;
    // fails when it is to run a machine; the lab also asks it for its version and firmware
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *icount*) printf 'no memory\\377\\n' >&2; exit 9;; esac\n\
         exec {} \"$@\"\n",
        real.trim()
    );
    let folder = lab.path("bin");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join(&qemu), script).unwrap();
    fs::set_permissions(folder.join(&qemu), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let experiment = lab.file("x.toml", &two_second_run());
    let ran = Ran::of(lab.command(&[&experiment, "--fresh"]).env("PATH", path));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let reason = format!("{qemu}: ended with exit status: 9:\nno memory\u{fffd}\n  help: ");
    assert!(ran.err.contains(&reason), "{ran:?}");
}

fn cache() -> String {
    std::env::var("XDG_CACHE_HOME")
        .unwrap_or_else(|_| format!("{}/.cache", std::env::var("HOME").unwrap()))
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let lab = Lab::new();
    let mut child = lab
        .command(&["zh-validation", "--fresh"])
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(
        said.any(|line| line.unwrap().ends_with(" %")),
        "no progress is shown"
    );
    let machines = children(child.id());
    assert!(!machines.is_empty());
    // signal the whole process group, as a terminal does
    assert_eq!(unsafe { libc::kill(-(child.id() as i32), libc::SIGINT) }, 0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    for pid in machines {
        assert!(!Path::new("/proc").join(pid.to_string()).exists());
    }
    assert_eq!(lab.temporary_files(), Vec::<PathBuf>::new());
    assert!(!lab.path("out").exists());
    let last = said.last().unwrap().unwrap();
    assert_eq!(last, "  help: everything was cleaned up");
}

#[test]
fn an_unwritable_output_folder_is_reported_before_the_run() {
    let lab = Lab::new();
    let file = lab.file("out", "");
    lab.run(&["zh-validation"]).failed(
        1,
        &format!("xcp: {file}: not a folder\n  help: give a writable folder: --out DIR\n"),
    );
}

/// The child processes of a process.
fn children(of: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{of}/task")).unwrap();
    tasks
        .map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap())
        .flat_map(|text| {
            let pids = text.split_whitespace().map(|pid| pid.parse().unwrap());
            pids.collect::<Vec<u32>>()
        })
        .collect()
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! `xcp router trace` and `xcp router show --watch`: their output in every format, and
//! every way in which they end.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{interrupt, NetNamespace, Ran};
use crate::common::test_lock;
use serde_json::Value;
use xcp_testbed::{can_run, router_memory};

/// The interval between two updates of `--watch`.
const UPDATE: Duration = Duration::from_millis(200);

/// Adds a router on `v0` of a namespace and sends XCP packets through it while `work`
/// runs.
fn with_traffic(name: &str, work: impl FnOnce(&NetNamespace)) {
    let space = NetNamespace::new(name);
    for device in ["v0", "v1"] {
        space.device(&format!("set {device} up"));
    }
    space.xcp("router add v0 --capacity 10mbit").ok();
    let frame = golden("forward");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let socket = space.within(|| packet_socket("v0"));
            while !over.load(Ordering::Relaxed) {
                assert_eq!(send(&socket, &frame), frame.len() as isize);
                thread::sleep(Duration::from_millis(2));
            }
        });
        // the sender must also stop if `work` panics
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _over = Over(&over);
        work(&space);
    });
    let _ = space.xcp("router del v0");
}

/// The bytes of a golden packet.
fn golden(name: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire");
    let text = fs::read_to_string(dir.join(format!("{name}.hex"))).unwrap();
    let digits: Vec<u8> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::bytes)
        .filter(u8::is_ascii_hexdigit)
        .collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// A socket that sends raw frames on a device.
fn packet_socket(device: &str) -> OwnedFd {
    let name = std::ffi::CString::new(device).unwrap();
    // SAFETY: the records are plain, and live through the calls.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let socket = OwnedFd::from_raw_fd(fd);
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let rc = libc::bind(fd, (&raw const to).cast(), size_of_val(&to) as u32);
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
        socket
    }
}

fn send(socket: &OwnedFd, frame: &[u8]) -> isize {
    // SAFETY: the frame lives through the call.
    unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) }
}

/// The next line of a command's output.
fn line(child: &mut Child) -> String {
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    let mut byte = [0];
    while line.is_empty() || !line.ends_with('\n') {
        out.read_exact(&mut byte).unwrap();
        line.push(byte[0] as char);
    }
    line
}

fn end(child: Child) -> Ran {
    let out = child.wait_with_output().unwrap();
    Ran {
        code: out.status.code(),
        out: String::from_utf8(out.stdout).unwrap(),
        err: String::from_utf8(out.stderr).unwrap(),
    }
}

#[test]
fn intervals_are_printed_as_csv_json_and_table() {
    let _lock = test_lock();
    if !can_run("trace") {
        return;
    }
    with_traffic("form", |space| {
        let csv = space.xcp("router trace v0 --csv --count 2").ok().out;
        let rows: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
        assert_eq!(rows.len(), 3, "{csv}");
        assert_eq!(
            rows[0][..4],
            ["time_s", "interval_s", "average_rtt_s", "capacity_bps"]
        );
        let value = |row: usize, name: &str| {
            let column = rows[0].iter().position(|n| *n == name).unwrap();
            rows[row][column].parse::<f64>().unwrap()
        };
        let frame_bits = golden("forward").len() as f64 * 8.0;
        for row in [1, 2] {
            assert_eq!(rows[row].len(), rows[0].len());
            assert_eq!(value(row, "capacity_bps"), 10e6);
            // an interval has at least one packet; a rate is in whole bytes per second
            let bits = (value(row, "input_rate_bps") + 8.0) * value(row, "interval_s");
            assert!(bits >= frame_bits, "{csv}");
            assert!(value(row, "feedback_bps") > 0.0, "{csv}");
        }
        let apart = value(2, "time_s") - value(1, "time_s");
        assert!((apart - value(2, "interval_s")).abs() < 1e-6, "{csv}");

        // on a slow machine it takes longer until there are three intervals
        let mut duration_s = 1;
        loop {
            let begun = Instant::now();
            let json = space.xcp(&format!("router trace v0 --json --duration {duration_s}"));
            assert!(begun.elapsed() >= Duration::from_secs(duration_s));
            let json = json.ok().out;
            for line in json.lines() {
                let interval: Value = serde_json::from_str(line).unwrap();
                assert_eq!(interval["capacity_bps"], 10_000_000);
            }
            if json.lines().count() >= 3 {
                break;
            }
            duration_s *= 2;
            assert!(duration_s < 60, "{json}");
        }

        let table = space.xcp("router trace v0 --count 1").ok().out;
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3, "{table}");
        assert!(lines[2].contains(" 10.0M "), "{table}");
        assert!(lines.iter().all(|line| line.len() <= 80), "{table}");
    });
}

#[test]
fn a_trace_ends_on_interrupt_closed_output_and_router_removal() {
    let _lock = test_lock();
    if !can_run("ends of a trace") {
        return;
    }
    with_traffic("ends", |space| {
        let mut first = space.start("router trace v0 --json");
        line(&mut first);
        space.xcp("router trace v0").failed(
            1,
            "xcp: v0: its trace is being read already\n  \
             help: end the other xcp router trace, or the lab run, first\n",
        );
        interrupt(&first);
        let ran = end(first);
        assert_eq!((ran.code, ran.err.as_str()), (Some(130), ""));

        let mut unread = space.start("router trace v0 --json");
        line(&mut unread);
        drop(unread.stdout.take());
        let ran = end(unread);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));

        let mut removed = space.start("router trace v0 --json");
        line(&mut removed);
        space.xcp("router del v0").ok();
        let ran = end(removed);
        // more intervals may have been printed before the removal
        for line in ran.out.lines() {
            let interval: Value = serde_json::from_str(line).unwrap();
            assert_eq!(interval["capacity_bps"], 10_000_000);
        }
        assert_eq!(ran.code, Some(1));
        assert_eq!(
            ran.err,
            "{\"error\":{\"thing\":\"v0\",\"reason\":\"its XCP router has been removed\",\
             \"remedy\":\"add it again: xcp router add v0\"}}\n"
        );
        space.xcp("router trace v0").failed(
            1,
            "xcp: v0: no XCP router on this device\n  \
             help: add one: xcp router add v0 --capacity 10mbit\n",
        );
    });
}

/// The upper limit of the memory of the router's maps without a ring buffer.
const MAPS_MAX_BYTES: u64 = 32 << 10;

/// Whether the router of `v0` has a ring buffer. Also checks and prints the memory of its
/// maps.
fn has_ring(space: &NetNamespace) -> bool {
    let (ring, bytes) = space.within(|| router_memory("v0").unwrap());
    println!("ring {ring}: {bytes:?}");
    let maps = bytes.iter().filter(|(name, _)| name != "program");
    let total: u64 = maps.map(|(_, bytes)| bytes).sum();
    assert!(total < MAPS_MAX_BYTES, "{bytes:?}");
    ring
}

#[test]
fn a_router_without_a_reader_has_no_ring_buffer() {
    let _lock = test_lock();
    if !can_run("memory of a trace") {
        return;
    }
    with_traffic("ring", |space| {
        assert!(!has_ring(space), "a new router has a ring buffer");
        let mut reader = space.start("router trace v0 --json");
        line(&mut reader);
        assert!(has_ring(space), "there is a reader, but no ring buffer");
        interrupt(&reader);
        end(reader);
        assert!(
            !has_ring(space),
            "the reader did not remove the ring buffer"
        );

        let mut killed = space.start("router trace v0 --json");
        line(&mut killed);
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert!(has_ring(space), "a killed reader leaves the ring buffer");
        space.xcp("router add v0 --capacity 10mbit").ok();
        assert!(!has_ring(space), "the next command must free it");

        let mut reader = space.start("router trace v0 --json");
        line(&mut reader);
        space.xcp("router add v0 --capacity 10mbit").ok();
        assert!(has_ring(space), "a command must not free it under a reader");
        line(&mut reader);
        interrupt(&reader);
        end(reader);
    });
}

#[test]
fn watch_continues_until_interrupted() {
    let _lock = test_lock();
    if !can_run("watch") {
        return;
    }
    with_traffic("json", |space| {
        let begun = Instant::now();
        let mut child = space.start("router show v0 --watch --json");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let packets = |line: String| {
            let status: Value = serde_json::from_str(&line).unwrap();
            status["xcp_packets"].as_u64().unwrap()
        };
        let mut next = || packets(lines.next().unwrap().unwrap());
        let first = next();
        let mut last = first;
        let mut updates = 1;
        while updates < 6 || last <= first + 50 {
            let now = next();
            assert!(now >= last, "{now} after {last}");
            last = now;
            updates += 1;
        }
        assert!(begun.elapsed() >= (updates - 1) * UPDATE);
        interrupt(&child);
        let ran = end(child);
        assert_eq!((ran.code, ran.err.as_str()), (Some(130), ""));

        let mut plain = space.start("router show v0 --watch");
        assert!(line(&mut plain).starts_with("device "));
        let begun = Instant::now();
        for _ in 0..3 {
            let line = line(&mut plain);
            assert!(line.starts_with("v0 ") && line.len() <= 80, "{line}");
            assert!(line.contains(" 10.0 Mb/s "), "{line}");
        }
        assert!(begun.elapsed() >= UPDATE);
        interrupt(&plain);
        let ran = end(plain);
        assert_eq!((ran.code, ran.err.as_str()), (Some(130), ""));
    });
}

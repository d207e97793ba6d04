// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Load: flows that send frames as fast as the queue accepts them, and counters of the
//! frames that arrive at the receiving device.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::frames::{self, frame, Class, Label, Port};
use crate::Result;

const RECEIVE_BUFFER: i32 = 64 << 20;

/// Counters of the received frames of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrived {
    pub packets: u64,
    pub bytes: u64,
    last: Option<u64>,
    /// Frames that arrived after one with a higher number.
    pub late: u64,
    /// Longest delay of a frame.
    pub longest: Duration,
}

impl Arrived {
    /// Number of frames sent up to the last one that arrived.
    pub fn numbers(&self) -> u64 {
        self.last.map_or(0, |last| last + 1)
    }
}

/// A sender or receiver thread that runs until it is dropped.
pub struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(mut work: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                work();
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts a flow that sends `length`-byte frames with a pause of `pause` after each.
pub fn flow(
    device: &str,
    flow: u32,
    class: Class,
    length: usize,
    pause: Duration,
) -> Result<Worker> {
    let port = Port::sender(device)?;
    let mut number = 0;
    Ok(Worker::start(move || {
        let label = Label {
            flow,
            number,
            sent: frames::now(),
        };
        port.send(&frame(class, length, label));
        number += 1;
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }))
}

/// Receives the frames that arrive on a device.
pub struct Sink {
    seen: Arc<Mutex<BTreeMap<u32, Arrived>>>,
    _worker: Worker,
}

impl Sink {
    pub fn open(device: &str) -> Result<Self> {
        let port = Port::receiver(device, RECEIVE_BUFFER)?;
        let seen: Arc<Mutex<BTreeMap<u32, Arrived>>> = Arc::default();
        let shared = seen.clone();
        let mut buffer = vec![0; 2048];
        let worker = Worker::start(move || {
            let Some((bytes, time)) = port.receive(&mut buffer) else {
                return;
            };
            let (Some(label), Ok(mut seen)) = (frames::label(bytes), shared.lock()) else {
                return;
            };
            let flow = seen.entry(label.flow).or_default();
            flow.packets += 1;
            flow.bytes += bytes.len() as u64;
            if flow.last.is_some_and(|last| label.number <= last) {
                flow.late += 1;
            }
            flow.last = flow.last.max(Some(label.number));
            flow.longest = flow.longest.max(time.saturating_sub(label.sent));
        });
        Ok(Self {
            seen,
            _worker: worker,
        })
    }

    /// The counters of all flows so far.
    pub fn seen(&self) -> BTreeMap<u32, Arrived> {
        self.seen.lock().map(|s| s.clone()).unwrap_or_default()
    }

    pub fn of(&self, flow: u32) -> Arrived {
        self.seen().get(&flow).copied().unwrap_or_default()
    }
}

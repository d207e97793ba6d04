// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Playing one variant of an experiment on a stage: flows start and stop,
//! everything is sampled, the metrics are computed. The same in the machine
//! and natively.

use std::io;
use std::time::{Duration, Instant};

use xcp_datapath::{host, socket};

use crate::capture::{Captures, Recording};
use crate::experiment::{Experiment, Queue, Socket, Variant};
use crate::metrics::{self, QueueSamples};
use crate::probe::Probe;
use crate::result::{Sample, Series, VariantResult};
use crate::stage::{device, Stage};
use crate::traffic::{Connection, End};
use crate::{interrupt, Error, Result};

/// The queue is looked at this often, everything else every tenth time.
const QUEUE_SAMPLE: Duration = Duration::from_millis(10);
const SAMPLE_EVERY: u64 = 10;
/// Flows start within this time after their start, by the seed.
const JITTER_MS: u64 = 100;

/// What came of a variant.
pub struct Outcome {
    pub result: VariantResult,
    pub series: Series,
    pub recordings: Vec<Recording>,
}

/// Plays a variant and captures at `points`; `progress` is told how far it
/// is, 0 to 1.
pub fn play(
    experiment: &Experiment,
    variant: &Variant,
    seed: u64,
    points: &[String],
    prefix: &str,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome> {
    let experiment = &experiment.of_variant(variant);
    let _host = HostOn::new(variant)?;
    let stage = Stage::build(experiment, variant, prefix)?;
    let [from, to] = &experiment.bottleneck;
    let probe = stage.within(from, || Probe::open(&device(from, to)))??;
    let starts = start_times(experiment, seed);
    let end = Duration::from_secs_f64(experiment.duration_s);
    let warmup = Duration::from_secs_f64(experiment.warmup_s);
    let mut captures = Captures::open(&stage, points)?;
    captures.begin()?;
    let begin = Instant::now();

    let mut flows: Vec<Option<Connection>> = experiment.flows.iter().map(|_| None).collect();
    let mut queue = QueueSamples::default();
    let mut series = Series::default();
    let mut tick = 0u64;
    loop {
        let due = QUEUE_SAMPLE * tick as u32;
        while begin.elapsed() < due {
            serve(&mut flows, due.saturating_sub(begin.elapsed()))?;
            if interrupt::requested() {
                return Err(interrupt::error());
            }
        }
        captures.collect();
        let state = probe.read()?;
        if due > warmup {
            queue.add(state.packets);
        }
        if tick.is_multiple_of(SAMPLE_EVERY) {
            series.samples.push(Sample {
                time_s: due.as_secs_f64(),
                queue_packets: state.packets,
                queue_bytes: state.bytes,
                sent_bytes: state.sent_bytes,
                drops: u64::from(state.drops),
                flows: flows
                    .iter_mut()
                    .map(|f| f.as_mut().map(Connection::sample).unwrap_or_default())
                    .collect(),
            });
            progress(due.as_secs_f64() / experiment.duration_s);
        }
        if due >= end {
            break;
        }
        for (i, flow) in experiment.flows.iter().enumerate() {
            if flows[i].is_none() && due >= starts[i] {
                flows[i] = Some(Connection::start(experiment, &stage, i, variant)?);
            }
            let over = flow.stop_s.is_some_and(|s| due.as_secs_f64() >= s);
            if let Some(connection) = flows[i].as_mut().filter(|_| over) {
                connection.stop();
            }
        }
        tick += 1;
    }
    let recordings = captures.finish()?;
    let mut result = metrics::evaluate(experiment, variant, &starts, &queue, &series);
    for (flow, connection) in result.flows.iter_mut().zip(&mut flows) {
        flow.control = connection.as_mut().map(Connection::control);
    }
    Ok(Outcome {
        result,
        series,
        recordings,
    })
}

/// Serves all connections for at most `wait`.
fn serve(flows: &mut [Option<Connection>], wait: Duration) -> Result<()> {
    let mut owners: Vec<(usize, End)> = Vec::new();
    let mut polls: Vec<libc::pollfd> = Vec::new();
    for (i, connection) in flows.iter().enumerate() {
        for (end, fd, events) in connection.iter().flat_map(Connection::interests) {
            owners.push((i, end));
            polls.push(libc::pollfd {
                fd,
                events,
                revents: 0,
            });
        }
    }
    let time = libc::timespec {
        tv_sec: wait.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(wait.subsec_nanos()),
    };
    // SAFETY: the slice and its length agree; no signal mask is changed.
    let ready = unsafe {
        libc::ppoll(
            polls.as_mut_ptr(),
            polls.len() as libc::nfds_t,
            &time,
            std::ptr::null(),
        )
    };
    if ready < 0 {
        let e = io::Error::last_os_error();
        return match e.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(Error::io("poll", &e)),
        };
    }
    for (poll, (i, end)) in polls.iter().zip(owners) {
        if poll.revents == 0 {
            continue;
        }
        if let Some(connection) = flows[i].as_mut() {
            connection
                .serve(end)
                .map_err(|e| Error::io(format!("flow {}", i + 1), &e))?;
        }
    }
    Ok(())
}

/// When each flow starts: its time, and a little more by the seed.
fn start_times(experiment: &Experiment, seed: u64) -> Vec<Duration> {
    let mut state = seed;
    experiment
        .flows
        .iter()
        .map(|f| {
            Duration::from_secs_f64(f.start_s)
                + Duration::from_millis(split_mix(&mut state) % JITTER_MS)
        })
        .collect()
}

/// SplitMix64: a few well-spread numbers from a seed.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// XCP on the host while a variant needs it, unless it was on already.
struct HostOn {
    ours: bool,
}

impl HostOn {
    fn new(variant: &Variant) -> Result<Self> {
        let wanted = variant.control == "xcp" || variant.queue == Queue::Xcp;
        let ours = wanted && !host::is_on();
        if ours {
            host::on(&host::Options {
                whole_feedback: !variant.fractions,
                socket_protocol: match variant.socket {
                    Socket::Tcp => socket::Wanted::Off,
                    Socket::Protocol => socket::Wanted::Number(socket::DEFAULT_NUMBER),
                },
                ..Default::default()
            })?;
        }
        Ok(Self { ours })
    }
}

impl Drop for HostOn {
    fn drop(&mut self) {
        if self.ours {
            let _ = host::off();
        }
    }
}

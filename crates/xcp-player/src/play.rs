// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Plays one variant of an experiment on its topology: starts and stops flows,
//! takes samples and computes the metrics. It works the same in the virtual
//! machine and natively.

use std::io;
use std::time::{Duration, Instant};

use xcp_datapath::trace::{Interval, Trace};
use xcp_datapath::{host, qdisc, router, socket};

use crate::capture::{Captures, Recording};
use crate::edges::Edges;
use crate::experiment::{Experiment, Socket, Variant};
use crate::gateways::Gateways;
use crate::link::device;
use crate::metrics::{self, QueueMeasurements};
use crate::modem::Modem;
use crate::pages::PageRun;
use crate::probe::{Probe, QueueState};
use crate::random::split_mix;
use crate::result::{Sample, Series, VariantResult};
use crate::topology::{has_own_queue, Topology};
use crate::traffic::Running;
use crate::transfers::TransferRun;
use crate::{interrupt, Error, Result};

/// The sampling interval of the queue; everything else is sampled every tenth
/// time.
const QUEUE_SAMPLE: Duration = Duration::from_millis(10);
const SAMPLE_EVERY: u64 = 10;
/// Flows start within this time after their `start_s`, at a time that depends
/// on the seed.
const JITTER_MS: u64 = 100;

/// The outcome of playing a variant.
pub struct Outcome {
    pub result: VariantResult,
    pub series: Series,
    pub recordings: Vec<Recording>,
}

/// Plays a variant and captures at `points`; `progress` is called with the
/// completed fraction, 0 to 1.
pub fn play(
    experiment: &Experiment,
    variant: &Variant,
    seed: u64,
    points: &[String],
    prefix: &str,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome> {
    let experiment = &experiment.of_variant(variant);
    let _host = HostXcpGuard::new(experiment, variant)?;
    let mut stage = Topology::build(experiment, variant, prefix)?;
    let mut edges = Edges::start(experiment, variant, &stage)?;
    let _gateways = Gateways::start(experiment, variant, &stage)?;
    let bottleneck = Bottleneck::open(experiment, variant, &stage)?;
    let trace = open_trace(experiment, variant, &stage)?;
    let mut modem = Modem::start(experiment, variant, &stage)?;
    let starts = start_times(experiment, seed);
    let end = Duration::from_secs_f64(experiment.duration_s);
    let warmup = Duration::from_secs_f64(experiment.warmup_s);
    let mut captures = Captures::open(&stage, points)?;
    captures.begin()?;
    let begin = Instant::now();
    let begin_s = monotonic_s();

    let mut flows: Vec<Option<Running>> = experiment.flows.iter().map(|_| None).collect();
    if let Some(pages) = &experiment.pages {
        let loading = PageRun::start(experiment, pages, &stage, variant, seed)?;
        flows.push(Some(Running::Pages(loading)));
    }
    let before_transfers = flows.len();
    let mut fetched = TransferRun::plan(experiment, seed);
    let mut seen = QueueMeasurements::default();
    let mut series = Series::default();
    let mut tick = 0u64;
    loop {
        let due = QUEUE_SAMPLE * tick as u32;
        while begin.elapsed() < due {
            serve(&mut flows, begin, due)?;
            fetched.finish(begin.elapsed(), before_transfers, &mut flows);
            if let Some(pages) = pages_of(&mut flows) {
                pages.advance(&stage, begin.elapsed())?;
            }
            if interrupt::requested() {
                return Err(interrupt::error());
            }
        }
        captures.collect();
        let (state, carried_bytes) = bottleneck.read()?;
        let xcp_packets = bottleneck.xcp_packets(&stage)?.unwrap_or(state.packets);
        let (sent, held) = (state.sent_bytes, u64::from(state.bytes));
        seen.delays.add(due.as_secs_f64(), sent, held);
        if due > warmup {
            seen.queue.add(state.packets);
            seen.xcp_queue.add(xcp_packets);
        }
        while let Some(interval) = trace
            .as_ref()
            .map_or(Ok(None), |t| t.next(Duration::ZERO))?
        {
            series.router.push(Interval {
                time_s: metrics::round(interval.time_s - begin_s, 6),
                ..interval
            });
        }
        if tick.is_multiple_of(SAMPLE_EVERY) {
            series.samples.push(Sample {
                time_s: due.as_secs_f64(),
                queue_packets: state.packets,
                queue_bytes: state.bytes,
                sent_bytes: state.sent_bytes,
                carried_bytes,
                drops: u64::from(state.drops),
                flows: flows
                    .iter_mut()
                    .take(experiment.flows.len())
                    .map(|f| f.as_mut().map(Running::sample).unwrap_or_default())
                    .collect(),
            });
            progress(due.as_secs_f64() / experiment.duration_s);
        }
        if due >= end {
            break;
        }
        change_links(experiment, &mut stage, due)?;
        if let Some(modem) = &mut modem {
            modem.speak(experiment, variant, due)?;
        }
        for event in experiment.events.iter().filter(|e| is_now(e.at_s, due)) {
            stage.change(experiment, variant, event)?;
            edges.change(experiment, &stage, event)?;
        }
        for (i, flow) in experiment.flows.iter().enumerate() {
            if flows[i].is_none() && due >= starts[i] {
                let now = begin.elapsed();
                flows[i] = Some(Running::start(experiment, &stage, i, variant, now)?);
            }
            let over = flow.stop_s.is_some_and(|s| due.as_secs_f64() >= s);
            if let Some(connection) = flows[i].as_mut() {
                connection.pause(flow.pauses_at(due.as_secs_f64()));
                if flow.send_buffer_raised_s.is_some_and(|s| is_now(s, due)) {
                    connection.raise_send_buffer(experiment.buffer_bytes as u32)?;
                }
                if over {
                    connection.stop();
                }
            }
        }
        fetched.begin(experiment, variant, &stage, due, &mut flows)?;
        tick += 1;
    }
    let recordings = captures.finish()?;
    seen.suspension = edges.stop()?;
    let mut result = metrics::evaluate(experiment, variant, &starts, &seen, &series);
    for (flow, connection) in result.flows.iter_mut().zip(&mut flows) {
        flow.control = connection.as_mut().map(Running::control);
    }
    if let Some(transfers) = &experiment.transfers {
        result.transfers = fetched.results(transfers);
    }
    result.pages = pages_of(&mut flows).map(|pages| pages.result(warmup));
    Ok(Outcome {
        result,
        series,
        recordings,
    })
}

/// The pages among all that is served, if there are any.
fn pages_of(served: &mut [Option<Running>]) -> Option<&mut PageRun> {
    served
        .iter_mut()
        .flatten()
        .find_map(|running| match running {
            Running::Pages(pages) => Some(pages),
            _ => None,
        })
}

/// The bottleneck's counters: those of the measured direction, and on a
/// half-duplex link also those of the other one.
struct Bottleneck<'a> {
    probes: Vec<Probe>,
    framing_bytes: u64,
    /// The node and the device whose queue discipline keeps XCP packets in a
    /// separate queue.
    own_queue: Option<(&'a str, String)>,
}

impl<'a> Bottleneck<'a> {
    fn open(experiment: &'a Experiment, variant: &Variant, stage: &Topology) -> Result<Self> {
        let [a, b] = &experiment.bottleneck;
        let link = experiment.bottleneck_link();
        let mut probes = vec![stage.within(a, || Probe::open(&device(a, b)))??];
        if link.is_some_and(|l| l.half_duplex) {
            probes.push(stage.within(b, || Probe::open(&device(b, a)))??);
        }
        Ok(Self {
            probes,
            framing_bytes: link.map_or(0, |l| l.framing_bytes.into()),
            own_queue: link
                .filter(|l| has_own_queue(variant, l))
                .map(|_| (a.as_str(), device(a, b))),
        })
    }

    /// Reads the queue, and the bytes that the link has carried.
    fn read(&self) -> Result<(QueueState, u64)> {
        let states: Vec<QueueState> = self.probes.iter().map(Probe::read).collect::<Result<_>>()?;
        let carried =
            |s: &QueueState| s.sent_bytes + self.framing_bytes * u64::from(s.sent_packets);
        Ok((states[0], states.iter().map(carried).sum()))
    }

    /// The number of XCP packets in the queue, if they have a separate one.
    fn xcp_packets(&self, stage: &Topology) -> Result<Option<u32>> {
        let Some((node, device)) = &self.own_queue else {
            return Ok(None);
        };
        let record = stage.within(node, || qdisc::record(device))??;
        Ok(record.map(|r| r.class[0].backlog_packets as u32))
    }
}

/// Opens the trace of the bottleneck's router, if it has one.
fn open_trace(
    experiment: &Experiment,
    variant: &Variant,
    stage: &Topology,
) -> Result<Option<Trace>> {
    if !experiment
        .bottleneck_link()
        .is_some_and(|l| variant.routes(l))
    {
        return Ok(None);
    }
    let [from, to] = &experiment.bottleneck;
    stage
        .within(from, || router::trace(&device(from, to)))?
        .map(Some)
}

/// Seconds on the clock that the router's trace uses.
fn monotonic_s() -> f64 {
    xcp_datapath::monotonic_ns() as f64 / 1e9
}

/// Whether a time of the experiment was reached since the last sample of the
/// queue.
fn is_now(time_s: f64, now: Duration) -> bool {
    let before = now.checked_sub(QUEUE_SAMPLE);
    before.is_none_or(|b| b.as_secs_f64() < time_s) && time_s <= now.as_secs_f64()
}

/// Applies the link rates and delays that change at this time.
fn change_links(experiment: &Experiment, stage: &mut Topology, now: Duration) -> Result<()> {
    let before = now.saturating_sub(QUEUE_SAMPLE);
    for (i, link) in experiment.links.iter().enumerate() {
        let rate = |time: Duration| link.rate_bps(time.as_secs_f64());
        if let (Some(next), true) = (rate(now), rate(now) != rate(before)) {
            stage.set_rate(i, next)?;
        }
        let delay_ms = |time: Duration| link.delay_ms(time.as_secs_f64());
        if delay_ms(now) != delay_ms(before) {
            stage.set_delay(i, Duration::from_secs_f64(delay_ms(now) / 1e3))?;
        }
    }
    Ok(())
}

/// Serves the sockets of all flows; waits at most until the next scheduled
/// send, or until `due`.
pub fn serve(flows: &mut [Option<Running>], begin: Instant, due: Duration) -> Result<()> {
    let failed = |i: usize, e: io::Error| Error::io(format!("flow {}", i + 1), &e);
    let mut next = due;
    for (i, flow) in flows.iter_mut().enumerate() {
        let Some(flow) = flow else { continue };
        flow.send_due(begin.elapsed()).map_err(|e| failed(i, e))?;
        next = flow.next().map_or(next, |at| next.min(at));
    }
    let wait = next.saturating_sub(begin.elapsed());
    let mut owners: Vec<usize> = Vec::new();
    let mut polls: Vec<libc::pollfd> = Vec::new();
    for (i, flow) in flows.iter().enumerate() {
        for (fd, events) in flow.iter().flat_map(Running::interests) {
            owners.push(i);
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
    for (poll, i) in polls.iter().zip(owners) {
        if poll.revents == 0 {
            continue;
        }
        if let Some(flow) = flows[i].as_mut() {
            flow.serve(poll.fd).map_err(|e| failed(i, e))?;
        }
    }
    Ok(())
}

/// The start time of each flow: its `start_s`, plus up to `JITTER_MS` that
/// depend on the seed.
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

/// Turns XCP on for the host while a variant needs it, unless it was already
/// on.
pub struct HostXcpGuard {
    ours: bool,
}

impl HostXcpGuard {
    pub fn new(experiment: &Experiment, variant: &Variant) -> Result<Self> {
        let wanted = experiment.has_kind(variant, "xcp") || variant.queue.has_router();
        let ours = wanted && !host::is_on();
        if ours {
            host::on(&host::Options {
                whole_feedback: !variant.fractions,
                without: variant.without.clone(),
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

impl Drop for HostXcpGuard {
    fn drop(&mut self) {
        if self.ours {
            let _ = host::off();
        }
    }
}

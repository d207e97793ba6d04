// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Checks of the `xcp` queue discipline, each on separate devices.

use std::thread::sleep;
use std::time::{Duration, Instant};

use xcp_abi::xcp_queue;
use xcp_datapath::qdisc;
use xcp_datapath::router::{self, Limits, Queueing};

use super::cycles;
use super::frames::{self, frame, Class, Label, Port};
use super::load::{flow, Arrived, Sink};
use super::tools::{shown, tc, Pair, Shown, SinkDevice};
use crate::check::Check;
use crate::{Error, Result};

/// 10 Mb/s.
const RATE_BYTES_PER_S: u64 = 1_250_000;
const NO_PAUSE: Duration = Duration::ZERO;
/// Pause between full-size packets at about a tenth of the rate.
const SOMETIMES: Duration = Duration::from_millis(12);
/// Time until queues are full and senders wait.
const SETTLE: Duration = Duration::from_millis(500);
const XCP: usize = 0;
const OTHER: usize = 1;

/// Runs all checks; `cycles` is how often the queue discipline changes under load.
pub fn check(cycles: u32, progress: &mut dyn FnMut(f64)) -> Result<Vec<Check>> {
    type Try = fn() -> Result<(bool, String)>;
    const QUICK: [(&str, Try); 12] = [
        ("installed with tc", by_hand),
        ("counters", counters),
        ("classes", classes),
        ("existing queue discipline", what_was_there),
        ("rate", rate),
        ("no burst after idling", no_burst),
        ("weights", weights),
        ("delay within XCP's weight", delay),
        ("shared medium", one_medium),
        ("address resolution first", resolution),
        ("replaced with tc", replaced),
        ("fast devices with several queues", several_queues),
    ];
    let mut checks = Vec::new();
    for (i, (name, attempt)) in QUICK.into_iter().enumerate() {
        let (ok, seen) = attempt()?;
        checks.push(Check {
            name: name.into(),
            ok,
            seen,
        });
        progress(0.2 * (i + 1) as f64 / QUICK.len() as f64);
    }
    checks.extend(cycles::check(cycles, &mut |done| {
        progress(0.2 + 0.8 * done)
    })?);
    Ok(checks)
}

fn limited(rate_bytes_per_s: u64, packets: u32, medium: u32) -> qdisc::Options {
    qdisc::Options {
        rate_bytes_per_s,
        limits: Limits {
            packets,
            medium,
            ..Default::default()
        },
        ..Default::default()
    }
}

/// The options of a router whose queue discipline is `xcp`. Each queue takes `packets`, or the
/// default number if that is 0.
fn queueing(capacity_bytes_per_s: u64, packets: u32) -> router::Options {
    router::Options {
        capacity_bytes_per_s,
        queueing: Queueing::Auto(Limits {
            packets,
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn record(device: &str) -> Result<xcp_queue> {
    qdisc::record(device)?.ok_or_else(|| Error::new(device, "has no record", "report this"))
}

fn numbered(class: Class, length: usize, number: u64) -> Vec<u8> {
    let label = Label {
        flow: 1,
        number,
        sent: frames::now(),
    };
    frame(class, length, label)
}

/// The frames that `sink` receives of two flows during some time.
fn during(sink: &Sink, time: Duration) -> [Arrived; 2] {
    let before = [1, 2].map(|flow| sink.of(flow));
    sleep(time);
    [1, 2].map(|flow| {
        let mut arrived = sink.of(flow);
        arrived.bytes -= before[flow as usize - 1].bytes;
        arrived
    })
}

/// Checks `tc qdisc replace dev DEV root xcp` on a device without a router.
fn by_hand() -> Result<(bool, String)> {
    let pair = Pair::new("h")?;
    let sink = Sink::open(&pair.far)?;
    let port = Port::sender(&pair.near)?;
    qdisc::register()?;
    tc(&format!("qdisc replace dev {} root xcp", pair.near))?;
    for number in 0..500 {
        port.send(&numbered(Class::Other, 1000, number));
    }
    sleep(SETTLE);
    let seen = shown(&pair.near)?;
    tc(&format!("qdisc del dev {} root", pair.near))?;
    let after = shown(&pair.near)?.kind;
    // installing and removing once without a router also removes the registration
    qdisc::install(&pair.near, qdisc::Options::default())?;
    qdisc::remove(&pair.near)?;
    let wanted = Shown {
        kind: "xcp".into(),
        bytes: 500_000,
        packets: 500,
        ..Default::default()
    };
    let arrived = sink.of(1).packets;
    Ok((
        seen == wanted && arrived == 500 && after == "noqueue",
        format!("{seen:?}, {arrived} arrived; after deletion: {after}"),
    ))
}

/// Checks that `tc -s qdisc show` and the records agree on sent, queued and dropped packets.
fn counters() -> Result<(bool, String)> {
    let pair = Pair::new("c")?;
    let sink = Sink::open(&pair.far)?;
    let port = Port::sender(&pair.near)?;
    port.allow(16 << 20)?;
    let dev = &pair.near;
    router::add(dev, queueing(RATE_BYTES_PER_S / 10, 100))?;
    for number in 0..180 {
        let class = if number % 6 == 0 {
            Class::Xcp
        } else {
            Class::Other
        };
        port.send(&numbered(class, 1000, number));
    }
    let full = (shown(dev)?, record(dev)?.class);
    sleep(Duration::from_secs(3));
    let empty = (shown(dev)?, record(dev)?.class);
    router::del(dev)?;
    let agree = |(tc, class): &(Shown, [xcp_abi::xcp_queue_class; 2])| {
        let sum = |of: fn(&xcp_abi::xcp_queue_class) -> u64| of(&class[0]) + of(&class[1]);
        tc.bytes == sum(|c| c.sent_B)
            && tc.packets == sum(|c| c.sent_packets)
            && tc.backlog == sum(|c| c.backlog_B)
            && tc.queued == sum(|c| c.backlog_packets)
            && tc.drops == sum(|c| c.dropped_packets)
            && tc.backlog == tc.queued * 1000
            && tc.bytes == tc.packets * 1000
            && tc.packets + tc.queued + tc.drops == 180
    };
    let (other, xcp) = (&full.1[OTHER], &full.1[XCP]);
    let ok = agree(&full)
        && agree(&empty)
        && (99..=100).contains(&other.backlog_packets)
        && xcp.dropped_packets == 0
        && empty.1[XCP].sent_packets == 30
        && empty.0.queued == 0
        && empty.0.packets == sink.of(1).packets;
    Ok((ok, format!("full: {:?}; empty: {:?}", full.0, empty.0)))
}

macro_rules! golden {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../testdata/wire/", $name, ".hex")),
        )
    };
}

/// Checks that packets of every wire format, in both directions, go to the XCP queue, and
/// other packets do not.
fn classes() -> Result<(bool, String)> {
    const XCPS: [(&str, &str); 15] = [
        golden!("syn"),
        golden!("syn-ack"),
        golden!("forward"),
        golden!("forward-ipv6"),
        golden!("forward-first"),
        golden!("forward-vlan"),
        golden!("both"),
        golden!("return"),
        golden!("2005-forward"),
        golden!("2005-return"),
        golden!("header-standard"),
        golden!("header-minimal"),
        golden!("header-2004-standard"),
        golden!("header-2004-minimal"),
        // ARP packets use the XCP queue
        golden!("none-arp"),
    ];
    const OTHERS: [(&str, &str); 6] = [
        golden!("none-timestamps"),
        golden!("none-bare"),
        golden!("none-udp"),
        golden!("none-other-experiment"),
        golden!("option-version"),
        golden!("header-version-4"),
    ];
    let pair = Pair::new("k")?;
    let port = Port::sender(&pair.near)?;
    let dev = &pair.near;
    router::add(dev, queueing(RATE_BYTES_PER_S, 0))?;
    let mut wrong = Vec::new();
    let all = XCPS.map(|p| (XCP, p)).into_iter();
    for (class, (name, hex)) in all.chain(OTHERS.map(|p| (OTHER, p))) {
        let before = record(dev)?.class[class].sent_packets;
        port.send(&bytes_of(hex));
        sleep(Duration::from_millis(10));
        if record(dev)?.class[class].sent_packets != before + 1 {
            wrong.push(name);
        }
    }
    router::del(dev)?;
    let count = XCPS.len() + OTHERS.len();
    Ok((
        wrong.is_empty(),
        format!("{count} packets, in the wrong queue: {wrong:?}"),
    ))
}

/// The bytes of a golden packet's file.
fn bytes_of(hex: &str) -> Vec<u8> {
    hex.lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .filter_map(|word| u8::from_str_radix(word, 16).ok())
        .collect()
}

/// Checks that an existing queue discipline is kept, that the default one is restored, and
/// that nothing leaks.
fn what_was_there() -> Result<(bool, String)> {
    let pair = Pair::new("w")?;
    let dev = &pair.near;
    sleep(cycles::SETTLE);
    let before = xcp_testbed::loaded()?;
    let options = queueing(RATE_BYTES_PER_S, 0);
    tc(&format!("qdisc add dev {dev} root pfifo limit 7"))?;
    let refused = router::add(dev, options).err();
    let refused = refused.map_or_else(String::new, |e| format!("{e}; {}", e.remedy));
    let left = (shown(dev)?.kind, xcp_testbed::loaded()?);
    router::add(
        dev,
        router::Options {
            queueing: Queueing::Keep,
            ..options
        },
    )?;
    let kept = shown(dev)?.kind;
    router::del(dev)?;
    tc(&format!("qdisc del dev {dev} root"))?;
    router::add(dev, options)?;
    let there = shown(dev)?.kind;
    router::del(dev)?;
    sleep(cycles::SETTLE);
    let after = (shown(dev)?.kind, xcp_testbed::loaded()?);
    let ok = refused.contains("pfifo")
        && refused.contains(&format!("tc qdisc del dev {dev} root"))
        && left == ("pfifo".to_owned(), before)
        && kept == "pfifo"
        && there == "xcp"
        && after == ("noqueue".to_owned(), before);
    Ok((
        ok,
        format!(
            "refused: \"{refused}\"; then {left:?}; kept {kept}; added {there}; \
             after {after:?}, before {before:?}"
        ),
    ))
}

/// Checks that a full queue sends at the configured rate, and at a new rate at once.
fn rate() -> Result<(bool, String)> {
    let pair = Pair::new("r")?;
    let sink = Sink::open(&pair.far)?;
    let dev = &pair.near;
    let mut seen = Vec::new();
    qdisc::install(dev, limited(RATE_BYTES_PER_S, 0, 0))?;
    let load = flow(dev, 1, Class::Other, 1514, NO_PAUSE)?;
    for rate in [RATE_BYTES_PER_S, RATE_BYTES_PER_S / 4, 4 * RATE_BYTES_PER_S] {
        qdisc::install(dev, limited(rate, 0, 0))?;
        sleep(SETTLE);
        let begin = Instant::now();
        let [arrived, _] = during(&sink, Duration::from_secs(5));
        let wanted = rate as f64 * begin.elapsed().as_secs_f64();
        seen.push(arrived.bytes as f64 / wanted);
    }
    qdisc::remove(dev)?;
    drop(load);
    // a packet more or less at the start and the end
    let ok = seen.iter().all(|r| (r - 1.0).abs() < 0.002);
    Ok((ok, format!("measured / configured rate: {seen:.4?}")))
}

/// Checks that packets after an idle time are not sent faster than the rate.
fn no_burst() -> Result<(bool, String)> {
    let pair = Pair::new("b")?;
    let sink = Sink::open(&pair.far)?;
    let port = Port::sender(&pair.near)?;
    qdisc::install(&pair.near, limited(RATE_BYTES_PER_S, 0, 0))?;
    port.send(&numbered(Class::Other, 1250, 0));
    sleep(Duration::from_secs(2));
    // each packet takes 1 ms; the last of 20 starts 19 ms after the first
    for number in 1..=20 {
        port.send(&numbered(Class::Other, 1250, number));
    }
    sleep(SETTLE);
    qdisc::remove(&pair.near)?;
    let longest = sink.of(1).longest.as_secs_f64() * 1e3;
    Ok((
        (18.5..19.5).contains(&longest) && sink.of(1).packets == 21,
        format!("the 20th packet was sent after {longest:.2} ms"),
    ))
}

/// Checks that two full queues share the rate by weight, independent of packet lengths.
fn weights() -> Result<(bool, String)> {
    let pair = Pair::new("s")?;
    let sink = Sink::open(&pair.far)?;
    let dev = &pair.near;
    router::add(dev, weighted(50))?;
    let loads = [
        flow(dev, 1, Class::Xcp, 1514, NO_PAUSE)?,
        flow(dev, 2, Class::Other, 300, NO_PAUSE)?,
    ];
    let mut seen = Vec::new();
    for percent in [50, 25, 75] {
        router::add(dev, weighted(percent))?;
        sleep(SETTLE);
        let [xcp, other] = during(&sink, Duration::from_secs(4));
        seen.push(xcp.bytes as f64 / (xcp.bytes + other.bytes) as f64);
    }
    router::del(dev)?;
    drop(loads);
    let wanted = [0.5, 0.25, 0.75];
    let ok = seen
        .iter()
        .zip(wanted)
        .all(|(s, w): (&f64, f64)| (s - w).abs() < 0.005);
    Ok((ok, format!("XCP's share {seen:.4?}, expected {wanted:?}")))
}

/// The options of a router that gives XCP this share of the link.
fn weighted(percent: u8) -> router::Options {
    router::Options {
        xcp_share_percent: Some(percent),
        ..queueing(RATE_BYTES_PER_S, 0)
    }
}

/// Checks that XCP packets within XCP's weight wait for at most one other packet.
fn delay() -> Result<(bool, String)> {
    let pair = Pair::new("d")?;
    let sink = Sink::open(&pair.far)?;
    let dev = &pair.near;
    router::add(dev, weighted(10))?;
    let other = flow(dev, 2, Class::Other, 1500, NO_PAUSE)?;
    sleep(SETTLE);
    let pause = Duration::from_micros(7_300); // 0.55 Mb/s
    let xcp = flow(dev, 1, Class::Xcp, 500, pause)?;
    sleep(Duration::from_secs(3));
    let longest = [1, 2].map(|f| sink.of(f).longest.as_secs_f64() * 1e3);
    router::del(dev)?;
    drop((xcp, other));
    Ok((
        // 1,500 bytes take 1.2 ms
        longest[0] < 1.3 && longest[1] > 20.0,
        format!(
            "longest delay: XCP {:.2} ms, other traffic {:.1} ms",
            longest[0], longest[1]
        ),
    ))
}

/// Checks that address resolution does not wait behind a full XCP queue, and that many such
/// packets do not keep others waiting.
fn resolution() -> Result<(bool, String)> {
    const QUEUED: u32 = 50;
    let pair = Pair::new("a")?;
    let receiver = Port::receiver(&pair.far, 1 << 20)?;
    let port = Port::sender(&pair.near)?;
    port.allow(16 << 20)?;
    let dev = &pair.near;
    router::add(dev, queueing(RATE_BYTES_PER_S / 10, QUEUED))?;
    // more than the queue takes
    for number in 0..2 * u64::from(QUEUED) {
        port.send(&numbered(Class::Xcp, 1000, number));
    }
    let (_, hex) = golden!("none-arp");
    let (request, mut buffer) = (bytes_of(hex), vec![0; 2048]);
    let (mut data, mut requests) = (Vec::new(), Vec::new());
    // ends, too, if nothing but requests arrives
    for at in 0..1000 {
        // two requests for each packet that is sent
        if data.len() < 10 {
            port.send(&request);
            port.send(&request);
        }
        let Some((bytes, _)) = receiver.receive(&mut buffer) else {
            break;
        };
        match frames::label(bytes) {
            Some(label) => data.push(label.number),
            None => requests.push(at),
        }
    }
    router::del(dev)?;
    let before = |limit: usize| requests.iter().filter(|at| **at < limit).count();
    Ok((
        // the first two packets may have been sent before the first request
        (3..=5).contains(&before(10)) && data.is_sorted() && data.len() >= QUEUED as usize,
        format!(
            "{} of the first 10 packets sent; {} data packets in order",
            before(10),
            data.len()
        ),
    ))
}

/// Checks that two devices share one medium equally, and that one alone gets all of it.
fn one_medium() -> Result<(bool, String)> {
    let pairs = [Pair::new("m")?, Pair::new("n")?];
    let [first, second] = &pairs;
    for pair in &pairs {
        qdisc::install(&pair.near, limited(RATE_BYTES_PER_S, 0, 7))?;
    }
    let sinks = [Sink::open(&first.far)?, Sink::open(&second.far)?];
    let loads = [
        flow(&first.near, 1, Class::Other, 1514, NO_PAUSE)?,
        flow(&second.near, 1, Class::Other, 1514, NO_PAUSE)?,
    ];
    sleep(SETTLE);
    let heard = || [&sinks[0], &sinks[1]].map(|sink| sink.of(1).bytes);
    let measure = |seconds: f64| {
        let (before, begin) = (heard(), Instant::now());
        sleep(Duration::from_secs_f64(seconds));
        let whole = RATE_BYTES_PER_S as f64 * begin.elapsed().as_secs_f64();
        let after = heard();
        [0, 1].map(|i| (after[i] - before[i]) as f64 / whole)
    };
    let both = measure(4.0);
    let [one, two] = loads;
    drop(two);
    sleep(SETTLE);
    let alone = measure(4.0);
    drop(one);
    for pair in &pairs {
        qdisc::remove(&pair.near)?;
    }
    let near = |a: f64, b: f64| (a - b).abs() < 0.003;
    Ok((
        near(both[0], 0.5) && near(both[1], 0.5) && near(alone[0], 1.0) && alone[1] == 0.0,
        format!("share of the rate, both active: {both:.4?}, one alone: {alone:.4?}"),
    ))
}

/// Checks that the router reports when its queue discipline was replaced, and uses the backlog
/// and rate of the new one.
fn replaced() -> Result<(bool, String)> {
    let pair = Pair::new("o")?;
    let _sink = Sink::open(&pair.far)?;
    let dev = &pair.near;
    router::add(dev, weighted(50))?;
    let load = flow(dev, 1, Class::Xcp, 1514, NO_PAUSE)?;
    let other = flow(dev, 2, Class::Other, 1514, SOMETIMES)?;
    sleep(SETTLE);
    let before = router::show(dev)?;
    let slower = RATE_BYTES_PER_S * 8 / 4;
    tc(&format!(
        "qdisc replace dev {dev} root tbf rate {slower}bit burst 4k limit 100k"
    ))?;
    sleep(Duration::from_secs(5));
    let after = router::show(dev)?;
    let other_rate = xcp_testbed::router_link(dev)?.state.sharing.other_Bps;
    drop((load, other));
    let backlog = shown(dev)?.backlog;
    router::del(dev)?;
    tc(&format!("qdisc del dev {dev} root"))?;
    let link_bps = after.link_bps.unwrap_or_default();
    let near = link_bps.abs_diff(slower) < slower / 20;
    Ok((
        !before.qdisc_replaced
            && before.sharing.is_some_and(|s| s.other_rate_bps > 0)
            && after.qdisc_replaced
            && after.sharing.is_none()
            && other_rate == 0
            && near
            && after.queue_bytes.abs_diff(backlog) < 10_000,
        format!(
            "replaced: {}, then {}; link rate {link_bps} of {slower} b/s, queue {} of \
             {backlog} B; sharing {:?}, then {:?} and {other_rate} B/s",
            before.qdisc_replaced,
            after.qdisc_replaced,
            after.queue_bytes,
            before.sharing,
            after.sharing
        ),
    ))
}

/// Checks that fast devices keep their multiple queues, slower ones do not, and that a change
/// of the rate changes this.
fn several_queues() -> Result<(bool, String)> {
    let fast = SinkDevice::with_queues("u", 4)?;
    let mut seen = Vec::new();
    let of = |rate| router::Options {
        capacity_bytes_per_s: rate,
        ..weighted(50)
    };
    for rate in [1_000_000_000, 1_250_000_000] {
        let options = of(rate);
        router::add(fast.name(), options)?;
        seen.push(shown(fast.name())?.kind);
        // adding it again with the same options changes nothing
        let again = router::add(fast.name(), options)?;
        seen.push(format!("{again:?}"));
        router::del(fast.name())?;
        seen.push(shown(fast.name())?.kind);
    }
    let slow = of(1_000_000_000);
    let keep = router::Options {
        queueing: Queueing::Keep,
        ..slow
    };
    for options in [of(1_250_000_000), slow, slow, keep] {
        let change = router::add(fast.name(), options);
        seen.push(change.map_or_else(|e| e.to_string(), |c| format!("{c:?}")));
        seen.push(shown(fast.name())?.kind);
    }
    router::del(fast.name())?;
    let apart = ["xcp", "Unchanged", "mq", "mq", "Unchanged", "mq"];
    let changed = [
        "Added",
        "mq",
        "Changed",
        "xcp",
        "Unchanged",
        "xcp",
        "Changed",
        "mq",
    ];
    Ok((seen == [&apart[..], &changed].concat(), seen.join(", ")))
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The format of the configuration file. The comments of the fields are printed in
//! xcp.toml(5) and in the JSON schema.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xcp_cli::capacity::{Capacity, Rate};
use xcp_cli::cli::{GATEWAY_CONNECTIONS, GATEWAY_PER_SOURCE};
use xcp_cli::value::{self, BadValue};
use xcp_datapath::host::{self, PeerPolicies};
use xcp_datapath::router::{self, Cells, Framing, LawTerms, Limits, Queueing};
use xcp_datapath::socket::Wanted;
use xcp_datapath::{wire, Prefix, SenderFeature, Wire};

use crate::device;

/// The state of XCP on a system. xcp apply removes everything that is not in the file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Lets sockets of this host use XCP. Without this table they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Makes devices XCP routers, with one table for each name or pattern. A pattern
    /// skips devices that a table above it has selected; a name that a table above has
    /// selected is an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub router: Vec<Router>,
    /// Joins XCP routers across a network without XCP (XCP-i). The daemon reads this
    /// table when it starts: xcp edged run --config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<Edge>,
    /// Uses XCP on a link for hosts that do not use it. The gateway reads this table when
    /// it starts, and on SIGHUP: xcp gateway run --config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
}

/// A gateway, for hosts that do not use XCP.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// The devices to which the hosts without XCP are connected.
    #[serde(deserialize_with = "devices")]
    #[schemars(with = "Vec<String>")]
    pub lan: Vec<String>,
    /// The device of the link to use XCP on.
    pub wan: String,
    /// The capacity of the link, such as "10mbit", or "auto": makes the WAN device an
    /// XCP router while the gateway runs. A rate also shapes the device. Without this, the
    /// device needs a table [[router]].
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "some_parsed",
        serialize_with = "write_some"
    )]
    #[schemars(with = "Option<String>")]
    pub capacity: Option<Capacity>,
    /// Split only connections from or to these addresses. The longest prefix that matches
    /// an address decides.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "prefixes"
    )]
    #[schemars(with = "Vec<String>")]
    pub include: Vec<Prefix>,
    /// Forward connections from or to these addresses.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "prefixes"
    )]
    #[schemars(with = "Vec<String>")]
    pub exclude: Vec<Prefix>,
    /// Split only connections to these ports.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "ports"
    )]
    #[schemars(with = "Vec<u16>")]
    pub ports: Vec<u16>,
    /// Forward connections to these ports.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "ports"
    )]
    #[schemars(with = "Vec<u16>")]
    pub exclude_ports: Vec<u16>,
    /// The most connections; further ones are forwarded.
    #[serde(default = "gateway_connections", deserialize_with = "connections")]
    #[schemars(with = "u32")]
    pub max_connections: u32,
    /// The most connections of one source address; further ones are forwarded.
    #[serde(default = "gateway_per_source", deserialize_with = "connections")]
    #[schemars(with = "u32")]
    pub max_per_source: u32,
}

/// An edge of a network without XCP.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// The file with the key that all edges share: xcp edged key FILE generates one.
    pub key: PathBuf,
    /// Addresses of upstream edges, from which probes are requested. Requests from
    /// downstream edges are answered in any case.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "addresses"
    )]
    #[schemars(with = "Vec<String>")]
    pub upstream: Vec<IpAddr>,
}

/// How this host uses XCP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// New sockets use XCP unless they choose another congestion control. Otherwise
    /// they use it if they choose it: setsockopt(TCP_CONGESTION, "xcp").
    #[serde(skip_serializing_if = "is_default")]
    pub default: bool,
    /// The path of a control group: only its sockets, and those of the groups below it,
    /// can use XCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Only sockets of this network namespace can use XCP. Otherwise containers in the
    /// control group can, too.
    #[serde(skip_serializing_if = "is_default")]
    pub this_netns: bool,
    /// The wire format of outgoing connections: option, option-2005, header or
    /// header-2004. Incoming ones use the peer's format.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "wire_format")]
    #[schemars(with = "String")]
    pub wire: Wire,
    /// Use XCP only with these addresses, such as "10.0.0.0/8".
    #[serde(skip_serializing_if = "is_default", deserialize_with = "prefixes")]
    #[schemars(with = "Vec<String>")]
    pub peers: Vec<Prefix>,
    /// Devices on which XCP headers are added and read, and on which a SACK block or
    /// padding is removed from an ACK that has no room for feedback.
    #[serde(skip_serializing_if = "is_default")]
    pub devices: Vec<String>,
    /// The IP protocol of the wire formats header and header-2004.
    #[serde(skip_serializing_if = "is_ip_proto", deserialize_with = "ip_proto")]
    #[schemars(with = "u8")]
    pub ip_proto: IpProto,
    /// The protocol number that opens a TCP socket with XCP, or "off". The default is
    /// 200 if the kernel permits it.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "socket_protocol",
        serialize_with = "write_socket_protocol"
    )]
    #[schemars(with = "NumberOrText")]
    pub socket_protocol: Wanted,
    /// Sender features that are switched off, for tests: losses, idle, app-limit, totals.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "features")]
    #[schemars(with = "Vec<String>")]
    pub without: Vec<SenderFeature>,
}

/// One or more devices that are XCP routers for the traffic that they send.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// The name or an alternative name of the device, or a pattern: * stands for any
    /// characters, ? for one, [abc] for one of these. A pattern never matches lo.
    pub device: String,
    /// The capacity of the link, such as "10mbit" or "2.5gbit"; "auto" to measure it, if
    /// the device driver holds packets back while the link is busy.
    #[serde(deserialize_with = "parsed", serialize_with = "written")]
    #[schemars(with = "String")]
    pub capacity: Capacity,
    /// Measure the capacity, and use less than configured if the link carries less. The
    /// default is true.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub measure: bool,
    /// Use this project's control law; false: the published one, without the changes that
    /// docs/design/law.md lists. The default is true.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub anticipate: bool,
    /// Limit for RTTs in headers, such as "500ms"; the default is 1s. Set it above the
    /// longest RTT of your paths, including queueing delay.
    #[serde(
        default = "default_max_rtt",
        skip_serializing_if = "is_default_max_rtt",
        deserialize_with = "max_rtt",
        serialize_with = "write_time"
    )]
    #[schemars(with = "String")]
    pub max_rtt: Duration,
    /// Percentage of the link for XCP when it competes with other traffic. By default, XCP's
    /// share is in proportion to the numbers of flows.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "percent"
    )]
    pub xcp_share: Option<u8>,
    /// Use the queue discipline xcp if the kernel supports BPF queue disciplines; false:
    /// keep the device's queue discipline. The default is true.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub qdisc: bool,
    /// Shape the device to this rate, such as "10mbit", or to its "capacity", with the
    /// queue discipline xcp or, if the kernel does not support it, a token bucket.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shape: Option<Shape>,
    /// Queue limit for shape, in packets. The default is 1000 in each queue of the queue
    /// discipline xcp; in a token bucket, 200 ms at its rate and at least 100 packets.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "packets"
    )]
    pub limit: Option<u32>,
    /// Bytes that the link adds to every packet; negative if it removes some.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        deserialize_with = "overhead"
    )]
    pub overhead: i32,
    /// Minimum bytes of a packet on the link; shorter ones are padded.
    #[serde(default, skip_serializing_if = "is_default", deserialize_with = "mpu")]
    pub mpu: u32,
    /// How the link divides packets into cells: "atm" (ADSL) or "ptm" (VDSL2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<Cut>,
    /// The IP protocol of the wire formats header and header-2004.
    #[serde(
        default,
        skip_serializing_if = "is_ip_proto",
        deserialize_with = "ip_proto"
    )]
    #[schemars(with = "u8")]
    pub ip_proto: IpProto,
}

/// The IP protocol number of XCP's header, 253 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IpProto(pub u8);

impl Default for IpProto {
    fn default() -> Self {
        Self(wire::IP_PROTO)
    }
}

/// The rate that a device is shaped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Capacity,
    Rate(Rate),
}

/// How a link divides packets into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cut {
    Atm,
    Ptm,
}

/// A value that contradicts others.
#[derive(Debug)]
pub struct Conflict {
    /// The key of the value.
    pub key: &'static str,
    pub reason: String,
    pub remedy: String,
}

impl Conflict {
    fn new(key: &'static str, reason: &str, remedy: &str) -> Self {
        Self {
            key,
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
        }
    }
}

impl Router {
    /// Converts the table to options of the data path.
    pub fn options(&self) -> Result<router::Options, Conflict> {
        if self.capacity == Capacity::Auto && !self.measure {
            return Err(Conflict::new(
                "measure",
                "must not be false with capacity \"auto\"",
                "give the capacity, or remove measure",
            ));
        }
        Ok(router::Options {
            capacity_bytes_per_s: self.capacity.bytes_per_s(),
            measure: self.measure,
            without: match self.anticipate {
                true => LawTerms::default(),
                false => LawTerms::all(),
            },
            max_rtt: self.max_rtt,
            xcp_share_percent: self.xcp_share,
            framing: Framing {
                overhead_bytes: self.overhead,
                mpu_bytes: self.mpu,
                cells: match self.cells {
                    None => Cells::None,
                    Some(Cut::Atm) => Cells::Atm,
                    Some(Cut::Ptm) => Cells::Ptm,
                },
            },
            queueing: self.queueing()?,
            ip_proto: self.ip_proto.0,
            ..Default::default()
        })
    }

    fn queueing(&self) -> Result<Queueing, Conflict> {
        let rate = match (self.shape, self.capacity) {
            (None, _) if self.limit.is_some() => {
                return Err(Conflict::new(
                    "limit",
                    "has no effect without shape",
                    "add shape, or remove limit",
                ))
            }
            (None, _) if self.qdisc => return Ok(Queueing::Auto(Limits::default())),
            (None, _) => return Ok(Queueing::Keep),
            (Some(_), _) if !self.qdisc => {
                return Err(Conflict::new(
                    "qdisc",
                    "must not be false with shape, which replaces the queue discipline",
                    "remove one of them",
                ))
            }
            (Some(Shape::Rate(rate)), _) | (Some(Shape::Capacity), Capacity::Rate(rate)) => rate,
            (Some(Shape::Capacity), Capacity::Auto) => {
                return Err(Conflict::new(
                    "shape",
                    "needs a rate with capacity \"auto\"",
                    "give a rate, such as \"10mbit\"",
                ))
            }
        };
        Ok(Queueing::Shape {
            rate_bytes_per_s: rate.bytes_per_s,
            limit_packets: self.limit.unwrap_or(0),
        })
    }

    /// Converts options of the data path to a table.
    pub fn of(device: String, options: &router::Options) -> Self {
        let capacity = match options.capacity_bytes_per_s {
            0 => Capacity::Auto,
            bytes_per_s => Capacity::Rate(Rate { bytes_per_s }),
        };
        let (qdisc, shape, limit) = match options.queueing {
            Queueing::Auto(Limits { packets: 0, .. }) => (true, None, None),
            Queueing::Auto(limits) => (true, Some(Shape::Capacity), Some(limits.packets)),
            // kernels without BPF queue disciplines always use this
            Queueing::Keep => (!xcp_datapath::features::has_qdisc(), None, None),
            Queueing::Shape {
                rate_bytes_per_s,
                limit_packets,
            } => {
                let shape = match rate_bytes_per_s == options.capacity_bytes_per_s {
                    true => Shape::Capacity,
                    false => Shape::Rate(Rate {
                        bytes_per_s: rate_bytes_per_s,
                    }),
                };
                (
                    true,
                    Some(shape),
                    (limit_packets > 0).then_some(limit_packets),
                )
            }
        };
        Self {
            device,
            capacity,
            measure: options.measure,
            anticipate: options.without != LawTerms::all(),
            max_rtt: options.max_rtt,
            xcp_share: options.xcp_share_percent,
            qdisc,
            shape,
            limit,
            overhead: options.framing.overhead_bytes,
            mpu: options.framing.mpu_bytes,
            cells: match options.framing.cells {
                Cells::None => None,
                Cells::Atm => Some(Cut::Atm),
                Cells::Ptm => Some(Cut::Ptm),
            },
            ip_proto: IpProto(options.ip_proto),
        }
    }
}

impl Host {
    /// The reason why a gateway could not work with this table, if there is one.
    pub fn conflict_with(&self, gateway: &Gateway) -> Option<Conflict> {
        (self.wire.is_header() && device::contains(&self.devices, &gateway.wan)).then(|| {
            let reason = format!(
                "must not be {} on the WAN device of the gateway, {}: it cannot split connections that have a header between IP and TCP",
                self.wire, gateway.wan
            );
            Conflict::new("wire", &reason, "remove wire, or the device")
        })
    }

    /// Converts the table to options of the data path.
    pub fn options(&self) -> Result<host::Options, Conflict> {
        let peer_policies =
            PeerPolicies::new(self.wire, &self.devices, &self.peers, self.ip_proto.0)
                .map_err(|e| Conflict::new("wire", &e.reason, "add devices and peers"))?;
        Ok(host::Options {
            cgroup: self.cgroup.clone(),
            this_netns: self.this_netns,
            make_default: self.default,
            peer_policies,
            socket_protocol: self.socket_protocol,
            without: self.without.clone(),
            ..Default::default()
        })
    }

    /// Converts options of the data path to a table.
    pub fn of(options: &host::Options) -> Self {
        let policies = &options.peer_policies.policies;
        let wire = policies.iter().find_map(|s| s.wire).unwrap_or_default();
        let mut peers: Vec<Prefix> = policies
            .iter()
            .filter(|s| s.wire.is_some())
            .filter_map(|s| s.peers)
            .collect();
        peers.sort_by_key(ToString::to_string);
        Self {
            default: options.make_default,
            cgroup: options.cgroup.clone(),
            this_netns: options.this_netns,
            wire,
            peers,
            devices: options.peer_policies.devices.clone(),
            ip_proto: IpProto(options.peer_policies.ip_proto),
            socket_protocol: options.socket_protocol,
            without: options.without.clone(),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_ip_proto(number: &IpProto) -> bool {
    is_default(number)
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

fn default_max_rtt() -> Duration {
    router::Options::default().max_rtt
}

fn is_default_max_rtt(value: &Duration) -> bool {
    *value == default_max_rtt()
}

/// Converts an error of our own parsers to one of the TOML parser: reason and remedy, a
/// line each.
fn refused<E: serde::de::Error>(bad: &BadValue) -> E {
    E::custom(format!("{}\n{}", bad.reason, bad.remedy))
}

fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, BadValue>,
) -> Result<T, D::Error> {
    parse(&String::deserialize(deserializer)?).map_err(|bad| refused(&bad))
}

fn number<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, BadValue>,
) -> Result<T, D::Error> {
    parse(&i64::deserialize(deserializer)?.to_string()).map_err(|bad| refused(&bad))
}

fn texts<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, BadValue>,
) -> Result<Vec<T>, D::Error> {
    let all = Vec::<String>::deserialize(deserializer)?;
    let parsed: Result<Vec<T>, BadValue> = all.iter().map(|text| parse(text)).collect();
    parsed.map_err(|bad| refused(&bad))
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err = BadValue>>(d: D) -> Result<T, D::Error> {
    text(d, T::from_str)
}

fn some_parsed<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Capacity>, D::Error> {
    parsed(d).map(Some)
}

fn write_some<S: Serializer>(value: &Option<Capacity>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => written(value, serializer),
        None => serializer.serialize_none(),
    }
}

fn gateway_connections() -> u32 {
    GATEWAY_CONNECTIONS
}

fn gateway_per_source() -> u32 {
    GATEWAY_PER_SOURCE
}

fn written<S: Serializer>(value: &Capacity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn wire_format<'de, D: Deserializer<'de>>(d: D) -> Result<Wire, D::Error> {
    text(d, value::wire)
}

fn prefixes<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Prefix>, D::Error> {
    let mut all = texts(d, value::prefix)?;
    all.sort_by_key(ToString::to_string);
    Ok(all)
}

fn devices<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    let all = Vec::<String>::deserialize(d)?;
    match all.is_empty() {
        true => Err(refused(&BadValue::new("empty", "name at least one device"))),
        false => Ok(all),
    }
}

fn ports<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u16>, D::Error> {
    let all = Vec::<i64>::deserialize(d)?;
    let parsed = all.iter().map(|port| value::port(&port.to_string()));
    parsed
        .collect::<Result<_, _>>()
        .map_err(|bad| refused(&bad))
}

fn connections<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    number(d, value::connections)
}

fn addresses<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<IpAddr>, D::Error> {
    texts(d, value::router)
}

fn features<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<SenderFeature>, D::Error> {
    let mut all = texts(d, value::sender_feature)?;
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

fn max_rtt<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    text(d, value::max_rtt)
}

fn write_time<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value::write_rtt(*time))
}

fn percent<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u8>, D::Error> {
    number(d, value::percent).map(Some)
}

fn packets<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    number(d, value::packets).map(Some)
}

fn overhead<'de, D: Deserializer<'de>>(d: D) -> Result<i32, D::Error> {
    number(d, value::overhead)
}

fn mpu<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    number(d, value::mpu)
}

fn ip_proto<'de, D: Deserializer<'de>>(d: D) -> Result<IpProto, D::Error> {
    number(d, value::ip_proto).map(IpProto)
}

/// The type of the field socket_protocol in the file.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected \"off\" or a protocol number")]
enum NumberOrText {
    Number(u64),
    Text(String),
}

fn socket_protocol<'de, D: Deserializer<'de>>(d: D) -> Result<Wanted, D::Error> {
    let text = match NumberOrText::deserialize(d)? {
        NumberOrText::Number(number) => number.to_string(),
        NumberOrText::Text(text) => text,
    };
    value::socket_protocol(&text).map_err(|bad| refused(&bad))
}

fn write_socket_protocol<S: Serializer>(wanted: &Wanted, serializer: S) -> Result<S::Ok, S::Error> {
    match wanted {
        Wanted::IfPermitted => serializer.serialize_none(),
        Wanted::Number(number) => serializer.serialize_u8(*number),
        Wanted::Off => serializer.serialize_str("off"),
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "capacity" => Ok(Self::Capacity),
            rate => rate.parse().map(Self::Rate).map_err(|bad| refused(&bad)),
        }
    }
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Capacity => serializer.serialize_str("capacity"),
            Self::Rate(rate) => serializer.collect_str(rate),
        }
    }
}

impl JsonSchema for Shape {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Shape".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

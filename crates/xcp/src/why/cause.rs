// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Causes why XCP is not used, or is limited: a sentence and a remedy for each.

use std::net::IpAddr;

use xcp_datapath::{Fallback, Warning, Wire};

/// A cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Missing features that hosts need: name and consequence.
    KernelLacks(Vec<(String, String)>),
    Off,
    OtherNamespace,
    NotAPeer,
    /// The route chooses another congestion control.
    Route(String),
    /// The program has not chosen XCP, and it is not the default.
    NotDefault(String),
    /// A test connection used XCP, but XCP is not the default.
    OpenedNotDefault(String),
    Program(String),
    OlderOrElsewhere(String),
    /// The last router that received the option, and the first that did not.
    OptionRemoved {
        after: Option<IpAddr>,
        before: IpAddr,
    },
    /// The peer did not answer with XCP; `last` is the last router that received the option.
    Peer {
        wire: Wire,
        last: Option<IpAddr>,
    },
    SynCookie,
    Signed,
    Mptcp,
    NoRoom,
    /// The path has no router; or the router on this device does not get the packets.
    NoRouter(Option<(String, Warning)>),
    Silent,
    DeviceStopped,
    NoMemory,
    /// Nothing was sent yet: data packets are needed to find routers.
    NothingSent,
    Distrusted,
    SendBuffer,
    ReceiveBuffer,
    SackBlocks(u64),
}

impl Cause {
    /// Converts the reason of a fallback.
    pub fn of_fallback(reason: Fallback, wire: Wire, is_mptcp: bool) -> Self {
        match reason {
            Fallback::Peer => Self::Peer { wire, last: None },
            Fallback::SynCookie => Self::SynCookie,
            Fallback::Signed => Self::Signed,
            Fallback::NoRoom if is_mptcp => Self::Mptcp,
            Fallback::NoRoom => Self::NoRoom,
            Fallback::NoRouter => Self::NoRouter(None),
            Fallback::Silent => Self::Silent,
            Fallback::Stopped => Self::DeviceStopped,
            Fallback::Memory => Self::NoMemory,
        }
    }

    /// XCP is used, with a limitation.
    pub fn is_remark(&self) -> bool {
        matches!(
            self,
            Self::Distrusted | Self::SendBuffer | Self::ReceiveBuffer | Self::SackBlocks(_)
        )
    }

    /// Its name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::KernelLacks(_) => "kernel_lacks",
            Self::Off => "off",
            Self::OtherNamespace => "other_namespace",
            Self::NotAPeer => "not_a_peer",
            Self::Route(_) => "route",
            Self::NotDefault(_) => "not_default",
            Self::OpenedNotDefault(_) => "opened_not_default",
            Self::Program(_) => "program",
            Self::OlderOrElsewhere(_) => "older_or_elsewhere",
            Self::OptionRemoved { .. } => "option_removed",
            Self::Peer { .. } => "peer",
            Self::SynCookie => "syn_cookie",
            Self::Signed => "signed",
            Self::Mptcp => "mptcp",
            Self::NoRoom => "no_room",
            Self::NoRouter(_) => "no_router",
            Self::Silent => "silent",
            Self::DeviceStopped => "stopped",
            Self::NoMemory => "memory",
            Self::NothingSent => "nothing_sent",
            Self::Distrusted => "distrusted",
            Self::SendBuffer => "send_buffer",
            Self::ReceiveBuffer => "receive_buffer",
            Self::SackBlocks(_) => "sack_blocks",
        }
    }

    pub fn reason(&self) -> String {
        match self {
            Self::KernelLacks(missing) => {
                let names: Vec<&str> = missing.iter().map(|(name, _)| name.as_str()).collect();
                format!(
                    "this kernel lacks features that XCP needs: {}",
                    names.join(", ")
                )
            }
            Self::Off => "XCP is off on this host".into(),
            Self::OtherNamespace => {
                "XCP is on for the sockets of another network namespace only".into()
            }
            Self::NotAPeer => {
                "XCP is not used with this address: it is not among the configured peers".into()
            }
            Self::Route(control) => {
                format!("the route to the peer chooses the congestion control {control}")
            }
            Self::NotDefault(control) => format!(
                "the program has chosen no congestion control, so it uses {control}: XCP is not \
                 the default"
            ),
            Self::OpenedNotDefault(control) => format!(
                "XCP works with this peer, but programs use {control} unless they choose XCP: it \
                 is not the default"
            ),
            Self::Program(control) => {
                format!("the program has chosen the congestion control {control}")
            }
            Self::OlderOrElsewhere(control) => format!(
                "the connection uses {control}: it is older than `xcp host on --default`, or its \
                 program is in a control group without XCP"
            ),
            Self::OptionRemoved { after, before } => {
                let from = after.map_or("this host".into(), |a| a.to_string());
                format!("the path removes the TCP option of XCP, between {from} and {before}")
            }
            Self::Peer { wire, .. } if wire.is_header() => {
                format!(
                    "the peer does not answer in the wire format {wire}: it does not support it, \
                     or the path drops packets of its IP protocol"
                )
            }
            Self::Peer { last, .. } => {
                let seen = last.map_or(String::new(), |router| {
                    format!(" ({router} still received the option)")
                });
                format!("the peer does not answer with XCP{seen}")
            }
            Self::SynCookie => {
                "the queue of the listener on this host was full, so it answered with a SYN \
                 cookie, which cannot store options"
                    .into()
            }
            Self::Signed => "TCP-MD5 or TCP-AO signs the TCP options, so none can be added".into(),
            Self::Mptcp => "MPTCP's options leave no room for XCP's".into(),
            Self::NoRoom => {
                "other TCP options (AccECN, or those of another program) leave no room for XCP's"
                    .into()
            }
            Self::NoRouter(hidden) => match hidden {
                Some((device, warning)) => format!(
                    "the path has no XCP router: the one on {device} of this host does not get \
                     the packets, since {}",
                    warning.reason
                ),
                None => "the path has no XCP router".into(),
            },
            Self::Silent => {
                "feedback stopped coming back: the path removes the option from packets or ACKs"
                    .into()
            }
            Self::DeviceStopped => {
                "the device makes GSO packets again (offload), which cannot carry XCP's headers: \
                 another program has raised its gso_max_segs"
                    .into()
            }
            Self::NoMemory => "the kernel had no memory for the connection's state".into(),
            Self::NothingSent => {
                "the peer supports XCP, but no data was sent yet, which is needed to find a router"
                    .into()
            }
            Self::Distrusted => {
                "XCP is used, but losses or delays show a bottleneck without an XCP router, so the \
                 window follows CUBIC's rules"
                    .into()
            }
            Self::SendBuffer => {
                "XCP is used, but the send buffer is too small for the window".into()
            }
            Self::ReceiveBuffer => {
                "XCP is used, but the peer's receive buffer is too small for the window".into()
            }
            Self::SackBlocks(count) => {
                format!(
                    "XCP is used, but SACK blocks left no room for feedback in {count} ACKs of this \
                     host since XCP was switched on"
                )
            }
        }
    }

    pub fn remedy(&self) -> String {
        match self {
            Self::KernelLacks(missing) => {
                let what: Vec<&str> = missing.iter().map(|(_, what)| what.as_str()).collect();
                what.join("; ")
            }
            Self::Off => "switch it on: xcp host on --default".into(),
            Self::OtherNamespace => {
                "run xcp host on again with the same options, but without --netns".into()
            }
            Self::NotAPeer => {
                "run xcp host on again with the same options and a further --peers PREFIX, or \
                 add it to peers in xcp.toml"
                    .into()
            }
            Self::Route(_) => {
                "change the route: ip route change ... congctl xcp, or leave out congctl".into()
            }
            Self::NotDefault(_) | Self::OpenedNotDefault(_) => {
                "run xcp host on again with the same options and --default; for one program: xcp \
                 run -- COMMAND"
                    .into()
            }
            Self::Program(_) => {
                "configure the program to leave the congestion control to the system, or to choose \
                 xcp"
                .into()
            }
            Self::OlderOrElsewhere(_) => {
                "restart the program; `xcp host show` prints the control group with XCP".into()
            }
            Self::OptionRemoved { .. } => {
                "configure the firewall or proxy there to pass TCP option 254 (option-2005: 14 and \
                 15)"
                .into()
            }
            Self::Peer { wire, .. } if wire.is_header() => {
                "switch XCP on at the peer in the same format, or allow its IP protocol on the path"
                    .into()
            }
            Self::Peer { .. } => {
                "switch it on at the peer (xcp host on --default); if it is on, the path after \
                 that router, or the return path, removes the option"
                    .into()
            }
            Self::SynCookie => {
                "give the listener a longer queue: net.core.somaxconn, net.ipv4.tcp_max_syn_backlog"
                    .into()
            }
            Self::Signed | Self::Mptcp => {
                "none for this connection: it uses the default congestion control".into()
            }
            Self::NoRoom => {
                "try the smaller wire format option-2005, or switch the other option off \
                 (net.ipv4.tcp_ecn)"
                    .into()
            }
            Self::NoRouter(hidden) => hidden.as_ref().map_or_else(
                || "add one at the narrowest link: xcp router add DEV --capacity RATE".into(),
                |(_, warning)| warning.remedy.clone(),
            ),
            Self::Silent => {
                "find the firewall or proxy that removes it; the connection looks for a router \
                 again automatically"
                    .into()
            }
            Self::DeviceStopped => {
                "run xcp host on again with the same options, including --wire and --dev, and \
                 find the program that raises gso_max_segs"
                    .into()
            }
            Self::NoMemory => {
                "raise net.core.optmem_max, of which a connection needs several hundred bytes; see \
                 also free(1)"
                    .into()
            }
            Self::NothingSent => "run xcp why again when the program has sent data".into(),
            Self::Distrusted => {
                "make the real bottleneck an XCP router, or configure the router with the link's \
                 real capacity"
                    .into()
            }
            Self::SendBuffer => {
                "raise net.ipv4.tcp_wmem: xcp doctor --path RATE,RTT computes the size".into()
            }
            Self::ReceiveBuffer => {
                "raise net.ipv4.tcp_rmem at the peer (xcp doctor --path RATE,RTT), unless its \
                 program reads slowly"
                    .into()
            }
            Self::SackBlocks(_) => {
                "make room for feedback: run xcp host on again with the same options and --dev \
                 DEV, the device that sends the ACKs"
                    .into()
            }
        }
    }
}

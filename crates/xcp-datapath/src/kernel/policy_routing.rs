// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The routing rule and table that deliver packets with a mark locally, whatever their
//! destination. This is the configuration that Linux documents for transparent proxies:
//! `ip rule add fwmark MARK lookup TABLE` and `ip route add local default dev lo table TABLE`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::rtnl::{self, Device};
use crate::Result;

/// The rule comes before those that users add without a priority, and after that of the table
/// `local`, which is 0.
const PRIORITY: u32 = 10;

fn families() -> impl Iterator<Item = AddressFamily> {
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    let v6 = has_ipv6.then_some(AddressFamily::Inet6);
    [AddressFamily::Inet].into_iter().chain(v6)
}

/// Adds the rules and routes that are missing. Returns whether a rule was missing. Changes nothing
/// while packets are delivered, because each change makes Linux look up all routes again.
///
/// # Errors
/// The kernel refuses them.
pub fn deliver_locally(mark: u32) -> Result<bool> {
    let loopback = Device::find("lo")?.index;
    let mut missing = false;
    for family in families() {
        if is_delivered(family, mark) {
            continue;
        }
        let message = RouteNetlinkMessage::NewRoute(route(family, mark, loopback));
        rtnl::request(message, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK)?;
        if !has_rule(family, mark)? {
            missing = true;
            let message = RouteNetlinkMessage::NewRule(rule(family, mark));
            rtnl::request(message, NLM_F_CREATE | NLM_F_ACK)?;
        }
    }
    Ok(missing)
}

/// Whether a packet with the mark would be delivered locally, although its destination is the
/// address of another host: one for documentation.
fn is_delivered(family: AddressFamily, mark: u32) -> bool {
    let mut ask = RouteMessage::default();
    ask.header.address_family = family;
    let (bits, elsewhere) = match family {
        AddressFamily::Inet6 => (
            128,
            RouteAddress::Inet6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        ),
        _ => (32, RouteAddress::Inet(Ipv4Addr::new(192, 0, 2, 1))),
    };
    ask.header.destination_prefix_length = bits;
    ask.attributes.push(RouteAttribute::Destination(elsewhere));
    ask.attributes.push(RouteAttribute::Mark(mark));
    // fails without a route
    let answer = rtnl::request(RouteNetlinkMessage::GetRoute(ask), 0).unwrap_or_default();
    answer.iter().any(|message| match message {
        RouteNetlinkMessage::NewRoute(route) => route.header.kind == RouteType::Local,
        _ => false,
    })
}

/// Removes the rules and routes. Returns whether there were any.
///
/// # Errors
/// The kernel refuses to remove a rule.
pub fn stop_delivering(mark: u32) -> Result<bool> {
    let mut removed = false;
    for family in families() {
        while has_rule(family, mark)? {
            let message = RouteNetlinkMessage::DelRule(rule(family, mark));
            rtnl::request(message, NLM_F_ACK)?;
            removed = true;
        }
        let message = RouteNetlinkMessage::DelRoute(route(family, mark, 0));
        removed |= rtnl::request(message, NLM_F_ACK).is_ok();
    }
    Ok(removed)
}

fn rule(family: AddressFamily, mark: u32) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family;
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![
        RuleAttribute::Priority(PRIORITY),
        RuleAttribute::FwMark(mark),
        RuleAttribute::Table(mark),
    ];
    rule
}

fn has_rule(family: AddressFamily, mark: u32) -> Result<bool> {
    let mut ask = RuleMessage::default();
    ask.header.family = family;
    let all = rtnl::request(RouteNetlinkMessage::GetRule(ask), NLM_F_DUMP)?;
    Ok(all.iter().any(|message| match message {
        RouteNetlinkMessage::NewRule(rule) => {
            let has = |attribute| rule.attributes.contains(&attribute);
            has(RuleAttribute::FwMark(mark)) && has(RuleAttribute::Table(mark))
        }
        _ => false,
    }))
}

/// The route of the table; `device` 0 stands for any.
fn route(family: AddressFamily, table: u32, device: u32) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family;
    route.header.protocol = RouteProtocol::Static;
    route.header.scope = RouteScope::Host;
    route.header.kind = RouteType::Local;
    route.attributes.push(RouteAttribute::Table(table));
    if device > 0 {
        route.attributes.push(RouteAttribute::Oif(device));
    }
    route
}

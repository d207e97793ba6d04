// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The routing rule and table that deliver packets with a mark locally, whatever their
//! destination. This is the configuration that Linux documents for transparent proxies,
//! `ip rule add fwmark MARK lookup TABLE` and `ip route add local default dev lo table TABLE`,
//! with an exception for the routes back to sources.

use std::path::Path;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::rtnl::{self, Device};
use crate::Result;

/// The rules come before those that users add without a priority, and after that of the table
/// `local`, which is 0.
const PRIORITY: u32 = 10;

fn families() -> impl Iterator<Item = AddressFamily> {
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    let v6 = has_ipv6.then_some(AddressFamily::Inet6);
    [AddressFamily::Inet].into_iter().chain(v6)
}

/// Whether this kernel has routing rules (CONFIG_IP_MULTIPLE_TABLES).
pub fn has_rules() -> bool {
    all_rules().is_ok_and(|all| !all.is_empty())
}

/// The rules of all families.
fn all_rules() -> Result<Vec<RuleMessage>> {
    let ask = RouteNetlinkMessage::GetRule(RuleMessage::default());
    let all = rtnl::request(ask, NLM_F_DUMP)?.into_iter();
    let rule = |message| match message {
        RouteNetlinkMessage::NewRule(rule) => Some(rule),
        _ => None,
    };
    Ok(all.filter_map(rule).collect())
}

/// Whether a family has all rules of [`rules`].
fn has_ours(all: &[RuleMessage], family: AddressFamily, mark: u32) -> bool {
    rules(family, mark).iter().all(|ours| {
        all.iter().any(|rule| {
            // priority and mark
            let mut wanted = ours.attributes[..2].iter();
            rule.header.family == family && wanted.all(|a| rule.attributes.contains(a))
        })
    })
}

/// Adds the rules and routes that are missing. Returns whether a rule was missing.
///
/// # Errors
/// The kernel refuses them.
pub fn deliver_locally(mark: u32) -> Result<bool> {
    let loopback = Device::find("lo")?.index;
    let present = all_rules()?;
    let mut missing = false;
    for family in families() {
        let route = RouteNetlinkMessage::NewRoute(route(family, mark, loopback));
        rtnl::add_missing(route)?;
        if has_ours(&present, family, mark) {
            continue;
        }
        for rule in rules(family, mark) {
            missing |= rtnl::add_missing(RouteNetlinkMessage::NewRule(rule))?;
        }
    }
    Ok(missing)
}

/// Removes the rules and routes. Returns whether there were any.
pub fn stop_delivering(mark: u32) -> bool {
    let mut removed = false;
    for family in families() {
        for rule in rules(family, mark) {
            let delete = || RouteNetlinkMessage::DelRule(rule.clone());
            while rtnl::request(delete(), NLM_F_ACK).is_ok() {
                removed = true;
            }
        }
        let message = RouteNetlinkMessage::DelRoute(route(family, mark, 0));
        removed |= rtnl::request(message, NLM_F_ACK).is_ok();
    }
    removed
}

/// The rules, in the order in which they are added:
///
/// ```text
/// 12: fwmark MARK nop
/// 10: fwmark MARK iif lo goto 12
/// 11: fwmark MARK lookup TABLE
/// ```
/// With src_valid_mark, which VPNs set, Linux uses the mark of a packet also to look up the
/// route back to its source, as from the device lo. Without the second rule, the source would
/// be local, and Linux would drop the packet.
fn rules(family: AddressFamily, mark: u32) -> [RuleMessage; 3] {
    let rule = |place: u32, action, attribute| {
        let mut rule = RuleMessage::default();
        rule.header.family = family;
        rule.header.action = action;
        rule.attributes = vec![
            RuleAttribute::Priority(PRIORITY + place),
            RuleAttribute::FwMark(mark),
        ];
        rule.attributes.extend(attribute);
        rule
    };
    let mut back = rule(0, RuleAction::Goto, Some(RuleAttribute::Goto(PRIORITY + 2)));
    back.attributes.push(RuleAttribute::Iifname("lo".into()));
    [
        rule(2, RuleAction::Nop, None),
        back,
        rule(1, RuleAction::ToTable, Some(RuleAttribute::Table(mark))),
    ]
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

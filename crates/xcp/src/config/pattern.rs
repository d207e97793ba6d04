// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Assigns the router tables of a configuration to devices.

use glob::Pattern;
use xcp_cli::failure::Failure;
use xcp_datapath::DeviceInfo;

use super::file::{File, Table};
use super::types::Router;

/// Characters that mark a name as a pattern.
const WILD: [char; 3] = ['*', '?', '['];
const LOOPBACK: &str = "lo";

/// Returns the devices that have a table, sorted by name. Patterns do not select the WAN device
/// of a gateway with a capacity, which adds the router itself.
pub fn assign<'a>(
    file: &'a File,
    links: &[DeviceInfo],
    ignore_missing: bool,
) -> Result<Vec<(String, Table, &'a Router)>, Failure> {
    let mut assigned: Vec<(String, Table, &Router)> = Vec::new();
    let gateway = file.config.gateway.as_ref();
    let wan = gateway.filter(|g| g.capacity.is_some()).map(|g| &g.wan);
    let is_wan = |link: &DeviceInfo| names(link).any(|n| wan.is_some_and(|wan| n == wan));
    for (i, router) in file.config.router.iter().enumerate() {
        let table = Table::Router(i);
        let name = router.device.as_str();
        let wrong = |reason, remedy| file.wrong(table, "device", reason, remedy);
        let known = |assigned: &[(String, Table, &Router)], link: &DeviceInfo| {
            assigned.iter().any(|(name, ..)| *name == link.name)
        };
        if is_pattern(name) {
            let pattern = Pattern::new(name).map_err(|e| {
                let reason = format!("not a pattern: {}", e.msg);
                wrong(reason, "write one such as \"eth*\"")
            })?;
            for link in links.iter().filter(|l| l.name != LOOPBACK && !is_wan(l)) {
                if names(link).any(|n| pattern.matches(n)) && !known(&assigned, link) {
                    assigned.push((link.name.clone(), table, router));
                }
            }
            continue;
        }
        match find(links, name) {
            Some(link) if known(&assigned, link) => {
                let reason = format!("{} already has a table above", link.name);
                return Err(wrong(reason, "remove one of them"));
            }
            Some(link) if is_wan(link) => {
                let reason = format!("{} is a router of the gateway", link.name);
                let remedy = "remove capacity from the table [gateway], or this table";
                return Err(wrong(reason, remedy));
            }
            Some(link) => assigned.push((link.name.clone(), table, router)),
            None if ignore_missing => {}
            None => {
                return Err(wrong(
                    format!("no such network device here: {name}"),
                    "list the devices with `ip link`; --ignore-missing ignores those that \
                     do not exist yet",
                ))
            }
        }
    }
    assigned.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    Ok(assigned)
}

/// Whether a name stands for several devices.
pub fn is_pattern(name: &str) -> bool {
    name.contains(WILD)
}

/// The device with this name or alternative name.
pub fn find<'a>(links: &'a [DeviceInfo], name: &str) -> Option<&'a DeviceInfo> {
    links.iter().find(|link| names(link).any(|n| n == name))
}

fn names(link: &DeviceInfo) -> impl Iterator<Item = &str> {
    let alternative = link.alternative_names.iter().map(String::as_str);
    std::iter::once(link.name.as_str()).chain(alternative)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, alternative: &[&str]) -> DeviceInfo {
        DeviceInfo {
            index: 1,
            name: name.into(),
            alternative_names: alternative.iter().map(|n| (*n).into()).collect(),
            is_bridge: false,
            has_xdp: false,
        }
    }

    fn file(devices: &[&str]) -> File {
        let table = |d: &&str| format!("[[router]]\ndevice = \"{d}\"\ncapacity = \"1mbit\"\n");
        let text: String = devices.iter().map(table).collect();
        File::parse("f".into(), text).expect("valid")
    }

    fn assigned(devices: &[&str], ignore_missing: bool) -> Result<Vec<String>, String> {
        assigned_in(&file(devices), ignore_missing)
    }

    fn assigned_in(file: &File, ignore_missing: bool) -> Result<Vec<String>, String> {
        let links = [
            link("lo", &[]),
            link("eth0", &["uplink", "enp1s0"]),
            link("eth1", &[]),
            link("wlan0", &[]),
        ];
        let found = assign(file, &links, ignore_missing).map_err(|e| e.to_string())?;
        let told = |(name, table, _): &(String, Table, &Router)| match table {
            Table::Router(i) => format!("{name} {i}"),
            Table::Host => unreachable!("a router"),
        };
        Ok(found.iter().map(told).collect())
    }

    #[test]
    fn devices_are_found_by_name_alternative_name_and_pattern() {
        let all = |devices: &[&str]| assigned(devices, false).expect("all there");
        assert_eq!(all(&["eth1", "uplink"]), ["eth0 1", "eth1 0"]);
        assert_eq!(all(&["eth1", "*"]), ["eth0 1", "eth1 0", "wlan0 1"]);
        assert_eq!(all(&["enp*"]), ["eth0 0"]);
        assert_eq!(all(&["eth[12]", "lo"]), ["eth1 0", "lo 1"]);
        assert!(all(&["ppp*"]).is_empty());
    }

    #[test]
    fn the_wan_device_of_a_gateway_is_left_to_it() {
        let with = |device: &str, lines: &str| {
            let gateway = format!("[gateway]\nlan = [\"eth1\"]\nwan = \"uplink\"\n{lines}\n");
            let router = format!("[[router]]\ndevice = \"{device}\"\ncapacity = \"1mbit\"\n");
            let file = File::parse("f".into(), gateway + &router).expect("valid");
            assigned_in(&file, false)
        };
        let capacity = "capacity = \"1mbit\"";
        assert_eq!(with("eth*", capacity), Ok(vec!["eth1 0".into()]));
        assert_eq!(with("eth*", ""), Ok(vec!["eth0 0".into(), "eth1 0".into()]));
        let refused = with("eth0", capacity).expect_err("refused");
        assert_eq!(refused, "f:6:10: eth0 is a router of the gateway");
    }

    #[test]
    fn missing_and_repeated_devices_are_rejected() {
        let refused = |devices: &[&str]| assigned(devices, false).expect_err("refused");
        assert_eq!(
            refused(&["eth1", "eth2"]),
            "f:5:10: no such network device here: eth2"
        );
        assert_eq!(
            refused(&["enp1s0", "uplink"]),
            "f:5:10: eth0 already has a table above"
        );
        assert!(refused(&["a[b"]).starts_with("f:2:10: not a pattern: "));
        assert_eq!(assigned(&["eth1", "eth2"], true), Ok(vec!["eth1 0".into()]));
    }
}

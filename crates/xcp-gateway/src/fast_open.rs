// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! TCP Fast Open (RFC 7413) between gateways: the SYN carries the first data, so that a new
//! connection costs no round trip. Cookies are not needed, because both gateways belong to
//! the operator of the link. Only destinations that have answered with XCP before get such a
//! SYN: there is a gateway, or a host with XCP, in front of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for the first data of a source before a SYN without data is sent: in some
/// protocols, such as ssh and SMTP, the server speaks first. It is short compared with the round
/// trips that Fast Open saves.
pub(crate) const FIRST_DATA: Duration = Duration::from_millis(20);
/// How long a destination stays known without another connection.
const KNOWN: Duration = Duration::from_secs(3600);
/// The most destinations to know.
const KNOWN_MAX: usize = 16_384;

/// The destinations that have answered with XCP, and when.
#[derive(Default)]
pub(crate) struct KnownPeers(Mutex<HashMap<IpAddr, Instant>>);

impl KnownPeers {
    pub fn has(&self, peer: IpAddr) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&peer).is_some_and(|at| at.elapsed() < KNOWN)
    }

    /// Remembers whether a destination has answered with XCP.
    pub fn learn(&self, peer: IpAddr, answers: bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !answers {
            known.remove(&peer);
            return;
        }
        if known.len() >= KNOWN_MAX {
            known.retain(|_, at| at.elapsed() < KNOWN);
        }
        if known.len() < KNOWN_MAX || known.contains_key(&peer) {
            known.insert(peer, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_known_until_it_answers_without_xcp() {
        let known = KnownPeers::default();
        let peer = IpAddr::from([192, 0, 2, 1]);
        assert!(!known.has(peer));
        known.learn(peer, true);
        assert!(known.has(peer));
        known.learn(peer, false);
        assert!(!known.has(peer));
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A modem at the measured bottleneck that reports the link's capacity to the
//! router: late, or wrong by a factor, if the variant sets that.

use std::time::Duration;

use xcp_datapath::capacity_hint::Feed;

use crate::experiment::{Experiment, Variant};
use crate::link::device;
use crate::topology::Topology;
use crate::Result;

const EVERY: Duration = Duration::from_millis(100);
const EXPIRES: Duration = Duration::from_secs(1);

pub struct Modem {
    feed: Feed,
    next: Duration,
}

impl Modem {
    /// Returns None if the variant has no modem.
    pub fn start(
        experiment: &Experiment,
        variant: &Variant,
        stage: &Topology,
    ) -> Result<Option<Self>> {
        let routes = experiment
            .bottleneck_link()
            .is_some_and(|link| variant.routes(link));
        if variant.modem.is_none() || !routes {
            return Ok(None);
        }
        let [from, to] = &experiment.bottleneck;
        let feed = stage.within(from, || Feed::open(&device(from, to)))??;
        let next = Duration::ZERO;
        Ok(Some(Self { feed, next }))
    }

    /// Reports the capacity if a report is due at this time of the run.
    pub fn speak(
        &mut self,
        experiment: &Experiment,
        variant: &Variant,
        now: Duration,
    ) -> Result<()> {
        let (Some(modem), Some(link)) = (&variant.modem, experiment.bottleneck_link()) else {
            return Ok(());
        };
        if now < self.next {
            return Ok(());
        }
        self.next += EVERY;
        let of_s = (now.as_secs_f64() - modem.late_ms / 1e3).max(0.0);
        let bps = link.rate_bps(of_s).unwrap_or(0.0) * modem.factor;
        self.feed.set_hint((bps / 8.0) as u64, EXPIRES)
    }
}

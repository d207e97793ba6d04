// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The player without XCP-i's daemons: in the guest of most variants, so that their
//! results stay valid while those change.

use std::time::Duration;

use crate::experiment::{Event, Experiment, Variant};
use crate::stage::Stage;
use crate::{Error, Result};

/// No daemons.
pub struct Edges(());

impl Edges {
    /// Refuses variants that have some.
    pub fn start(_: &Experiment, variant: &Variant, _: &Stage) -> Result<Self> {
        if variant.edges {
            return Err(missing(&variant.name));
        }
        Ok(Self(()))
    }

    /// There is nothing to change.
    pub fn change(&mut self, _: &Experiment, _: &Stage, _: &Event) -> Result<()> {
        Ok(())
    }

    /// Nor to stop.
    pub fn stop(self) -> Result<Option<Duration>> {
        Ok(None)
    }
}

/// What needs the other guest.
pub fn missing(thing: &str) -> Error {
    Error::new(thing, "this guest is built without edges", "report this")
}

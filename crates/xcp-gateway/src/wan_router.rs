// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The XCP router of the WAN device, which exists while the gateway runs.

use xcp_datapath::{gateway, router, Result};

/// The router, if the gateway has one. Dropping this removes it.
#[derive(Default)]
pub(crate) struct WanRouter {
    wanted: Option<(String, router::Options)>,
    /// The router has the wanted options.
    is_set: bool,
}

impl WanRouter {
    /// Adds, changes or removes the router.
    ///
    /// # Errors
    /// The device does not exist, or cannot be a router: [`Self::repair`] tries again.
    pub fn set(&mut self, device: &str, options: Option<router::Options>) -> Result<()> {
        let wanted = options.map(|options| (device.to_owned(), options));
        let moved = |(before, _): &(String, _)| options.is_none() || before != device;
        let removed = match self.wanted.as_ref().is_some_and(moved) {
            true => gateway::remove_routers().map(drop),
            false => Ok(()),
        };
        self.wanted = wanted;
        removed.and(self.add())
    }

    /// Adds or changes the router if that has failed before, or if the device has been replaced
    /// by another one of the same name.
    ///
    /// # Errors
    /// See [`Self::set`].
    pub fn repair(&mut self) -> Result<()> {
        match &self.wanted {
            Some((device, _)) if !self.is_set || !router::devices()?.contains(device) => self.add(),
            _ => Ok(()),
        }
    }

    fn add(&mut self) -> Result<()> {
        let Some((device, options)) = &self.wanted else {
            return Ok(());
        };
        let added = gateway::add_router(device, *options);
        self.is_set = added.is_ok();
        added.map(drop)
    }

    /// The options of the router.
    pub fn options(&self) -> Option<&router::Options> {
        self.wanted.as_ref().map(|(_, options)| options)
    }
}

impl Drop for WanRouter {
    fn drop(&mut self) {
        if self.wanted.is_some() {
            // `xcp gateway off` tries again
            let _ = gateway::remove_routers();
        }
    }
}

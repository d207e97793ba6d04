// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The XCP router of the WAN device, which exists while the gateway runs.

use xcp_datapath::{gateway, router, Result};

/// The router, if the gateway has one. Dropping this removes it.
#[derive(Default)]
pub(crate) struct WanRouter(Option<(String, router::Options)>);

impl WanRouter {
    /// Adds, changes or removes the router.
    ///
    /// # Errors
    /// The device does not exist, or cannot be a router: [`Self::repair`] tries again.
    pub fn set(&mut self, device: &str, options: Option<router::Options>) -> Result<()> {
        let wanted = options.map(|options| (device.to_owned(), options));
        let moved = |(before, _): &(String, _)| options.is_none() || before != device;
        let removed = match self.0.as_ref().is_some_and(moved) {
            true => gateway::remove_routers().map(drop),
            false => Ok(()),
        };
        self.0 = wanted;
        removed.and(self.add())
    }

    /// Adds the router again if the device has been replaced by another one of the same name.
    ///
    /// # Errors
    /// See [`Self::set`].
    pub fn repair(&self) -> Result<()> {
        match &self.0 {
            Some((device, _)) if !router::devices()?.contains(device) => self.add(),
            _ => Ok(()),
        }
    }

    fn add(&self) -> Result<()> {
        let Some((device, options)) = &self.0 else {
            return Ok(());
        };
        gateway::add_router(device, *options).map(drop)
    }

    /// The options of the router.
    pub fn options(&self) -> Option<&router::Options> {
        self.0.as_ref().map(|(_, options)| options)
    }
}

impl Drop for WanRouter {
    fn drop(&mut self) {
        if self.0.is_some() {
            // `xcp gateway off` tries again
            let _ = gateway::remove_routers();
        }
    }
}

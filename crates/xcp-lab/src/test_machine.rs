// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A kernel with everything that its machines need, and their kept results.

use std::sync::OnceLock;

use crate::cache::{Label, Session};
use crate::guest::Request;
use crate::initramfs::{self, Guest};
use crate::kernel::{self, Kernel};
use crate::machine::{self, Played, Setup};
use crate::Result;

/// A kernel, and the equipment for each guest program.
pub(crate) struct TestMachine<'a> {
    pub kernel: Kernel,
    fresh: bool,
    say: &'a (dyn Fn(&str) + Sync),
    player: OnceLock<Equipment<'a>>,
    checks: OnceLock<Equipment<'a>>,
}

/// The archive that a machine boots from, and the kept results.
pub(crate) struct Equipment<'a> {
    pub base: Vec<u8>,
    pub kept: Session<'a>,
}

impl<'a> TestMachine<'a> {
    /// Finds or fetches the kernel. With `fresh`, kept results are ignored.
    pub fn new(kernel: Option<&str>, fresh: bool, say: &'a (dyn Fn(&str) + Sync)) -> Result<Self> {
        Ok(Self {
            kernel: kernel::find(kernel, say)?,
            fresh,
            say,
            player: OnceLock::new(),
            checks: OnceLock::new(),
        })
    }

    /// The release of the kernel.
    pub fn release(&self) -> &str {
        &self.kernel.release
    }

    /// The equipment of machines with this guest program.
    pub fn equipment(&self, guest: Guest) -> Result<&Equipment<'a>> {
        let place = match guest {
            Guest::Player => &self.player,
            Guest::Checks => &self.checks,
        };
        if let Some(there) = place.get() {
            return Ok(there);
        }
        let base = initramfs::base(&self.kernel, guest, &[])?.finish();
        let kept = Session::open(&self.kernel, &base, self.fresh, self.say)?;
        Ok(place.get_or_init(|| Equipment { base, kept }))
    }

    fn kept(&self) -> Result<&Session<'a>> {
        Ok(&self.equipment(Guest::Player)?.kept)
    }

    /// The key of a request's result: 64 hex digits.
    pub fn key(&self, request: &Request) -> Result<String> {
        self.kept()?.name(Setup::of(request), request)
    }

    /// Returns the kept result of an earlier machine.
    pub fn find(&self, request: &Request) -> Result<Option<Played>> {
        self.kept()?.find(Setup::of(request), request)
    }

    /// Boots a machine, waits for it and keeps its result.
    pub fn play(&self, request: &Request, on_progress: &dyn Fn(f64)) -> Result<Played> {
        let Equipment { base, kept } = self.equipment(Guest::Player)?;
        let played = machine::play(&self.kernel, base, request, on_progress)?;
        let label = Label::of_play(request, &played);
        kept.keep(Setup::of(request), request, &label, &played);
        Ok(played)
    }
}

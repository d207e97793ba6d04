// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A kernel with all that its machines need, and what they gave before.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::cache::{Label, Session};
use crate::guest::Request;
use crate::initramfs::{self, Guest};
use crate::kernel::{self, Kernel};
use crate::machine::{self, Played, Setup};
use crate::{Error, Result};

/// A kernel, and what the machines with each guest have besides.
pub(crate) struct TestMachine<'a> {
    pub kernel: Kernel,
    fresh: bool,
    say: &'a (dyn Fn(&str) + Sync),
    player: OnceLock<Equipment<'a>>,
    checks: OnceLock<Equipment<'a>>,
}

/// The archive that a machine boots with, and kept results.
pub(crate) struct Equipment<'a> {
    pub base: Vec<u8>,
    pub kept: Session<'a>,
}

impl<'a> TestMachine<'a> {
    /// Finds or fetches the kernel. `fresh` plays also what is kept.
    pub fn new(kernel: Option<&str>, fresh: bool, say: &'a (dyn Fn(&str) + Sync)) -> Result<Self> {
        Ok(Self {
            kernel: kernel::find(kernel, say)?,
            fresh,
            say,
            player: OnceLock::new(),
            checks: OnceLock::new(),
        })
    }

    /// Of the kernel.
    pub fn release(&self) -> &str {
        &self.kernel.release
    }

    /// What a machine with this guest has.
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

    /// The name of a request's result: 64 hex digits.
    pub fn key(&self, request: &Request) -> Result<String> {
        self.kept()?.name(Setup::of(request), request)
    }

    /// What an earlier machine gave.
    pub fn find(&self, request: &Request) -> Result<Option<Played>> {
        self.kept()?.find(Setup::of(request), request)
    }

    /// Boots a machine, waits for it, and keeps what it gave. `work` is a new
    /// folder for it.
    pub fn play(&self, request: &Request, work: &Path, tell: &dyn Fn(f64)) -> Result<Played> {
        fs::create_dir(work).map_err(|e| Error::io(work.display().to_string(), &e))?;
        let Equipment { base, kept } = self.equipment(Guest::Player)?;
        let played = machine::play(&self.kernel, base, request, work, tell)?;
        let label = Label::of_play(request, &played);
        kept.keep(Setup::of(request), request, &label, &played);
        Ok(played)
    }
}

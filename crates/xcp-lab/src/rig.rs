// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! A kernel with all that its machines need, and what they gave before.

use std::fs;
use std::path::Path;

use crate::guest::Request;
use crate::kept::{Label, Session};
use crate::kernel::{self, Kernel};
use crate::machine::{self, Played, Setup};
use crate::{initramfs, Error, Result};

/// A kernel, the archive that its machines boot with, and kept results.
pub(crate) struct Rig<'a> {
    pub kernel: Kernel,
    pub base: Vec<u8>,
    pub kept: Session<'a>,
}

impl<'a> Rig<'a> {
    /// Finds or fetches the kernel. `fresh` plays also what is kept.
    pub fn new(kernel: Option<&str>, fresh: bool, say: &'a (dyn Fn(&str) + Sync)) -> Result<Self> {
        let kernel = kernel::find(kernel, say)?;
        let base = initramfs::base(&kernel)?.finish();
        let kept = Session::open(&kernel, &base, fresh, say)?;
        Ok(Self { kernel, base, kept })
    }

    /// Of the kernel.
    pub fn release(&self) -> &str {
        &self.kernel.release
    }

    /// The name of a request's result: 64 hex digits.
    pub fn key(&self, request: &Request) -> Result<String> {
        self.kept.name(Setup::of(request), request)
    }

    /// What an earlier machine gave.
    pub fn find(&self, request: &Request) -> Result<Option<Played>> {
        self.kept.find(Setup::of(request), request)
    }

    /// Boots a machine, waits for it, and keeps what it gave. `work` is a new
    /// folder for it.
    pub fn play(&self, request: &Request, work: &Path, tell: &dyn Fn(f64)) -> Result<Played> {
        fs::create_dir(work).map_err(|e| Error::io(work.display().to_string(), &e))?;
        let played = machine::play(&self.kernel, &self.base, request, work, tell)?;
        let label = Label::of_play(request, &played);
        self.kept.keep(Setup::of(request), request, &label, &played);
        Ok(played)
    }
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! What a run does with kept results: it looks for those of its variants, and
//! keeps the others. No trouble with the store ends the run.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use super::key::{Ingredients, Key};
use super::{Label, Store};
use crate::guest::Request;
use crate::kernel::Kernel;
use crate::machine::{Played, Setup};
use crate::{emulator, Error, Result};

/// The kept results of one kernel and one archive.
pub(crate) struct Session<'a> {
    /// None if there is no folder for them.
    store: Option<Store>,
    ingredients: Ingredients,
    /// Of the kernel.
    release: String,
    /// Runs everything again.
    fresh: bool,
    say: &'a (dyn Fn(&str) + Sync),
    /// The user knows that results cannot be kept.
    said: AtomicBool,
}

impl<'a> Session<'a> {
    /// `archive` is the guest's without its request; `say` tells the user.
    pub fn open(
        kernel: &Kernel,
        archive: &[u8],
        fresh: bool,
        say: &'a (dyn Fn(&str) + Sync),
    ) -> Result<Self> {
        let image = fs::read(&kernel.image)
            .map_err(|e| Error::io(kernel.image.display().to_string(), &e))?;
        let mut session = Self {
            store: None,
            ingredients: Ingredients::new(archive, &image, emulator::installed()?),
            release: kernel.release.clone(),
            fresh,
            say,
            said: AtomicBool::new(false),
        };
        match Store::open() {
            Ok(store) => session.store = Some(store),
            Err(e) => session.complain(&e),
        }
        Ok(session)
    }

    fn key(&self, request: &Request) -> Result<Key> {
        let arguments = Setup::of(request).arguments(&self.release);
        self.ingredients.key(&arguments, request)
    }

    /// What an earlier run of this request gave.
    pub fn find(&self, request: &Request) -> Result<Option<Played>> {
        let store = self.store.as_ref().filter(|_| !self.fresh);
        let Some(store) = store else { return Ok(None) };
        Ok(store.get(&self.key(request)?))
    }

    /// Keeps what a run of this request gave.
    pub fn keep(&self, request: &Request, played: &Played) {
        let Some(store) = &self.store else { return };
        let label = Label::new(request, played);
        let put = |key| store.put(&key, &label, played);
        if let Err(e) = self.key(request).and_then(put) {
            self.complain(&e);
        }
    }

    fn complain(&self, e: &Error) {
        if !self.said.swap(true, Ordering::Relaxed) {
            (self.say)(&format!("results are not kept: {e}; {}", e.remedy));
        }
    }
}

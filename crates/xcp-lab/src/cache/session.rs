// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! Access of a run to kept results: it looks up the results of its variants, and keeps new
//! ones. Errors of the store do not end the run.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::entry::{CacheValue, Label};
use super::key::{Ingredients, Key};
use super::store::Store;
use crate::kernel::Kernel;
use crate::machine::Setup;
use crate::{emulator, Error, Result};

/// The kept results of one kernel and one archive.
pub(crate) struct Session<'a> {
    /// None if the folder cannot be used.
    store: Option<Store>,
    ingredients: Ingredients,
    kernel: Kernel,
    /// Ignore kept results.
    fresh: bool,
    say: &'a (dyn Fn(&str) + Sync),
    /// Whether a warning was printed that results cannot be kept.
    said: AtomicBool,
}

impl<'a> Session<'a> {
    /// `archive` is the guest's archive without the request; `say` prints a line to the user.
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
            ingredients: Ingredients::new(
                archive,
                &image,
                &emulator::installed(kernel.architecture)?,
            ),
            kernel: kernel.clone(),
            fresh,
            say,
            said: AtomicBool::new(false),
        };
        match Store::open() {
            Ok(store) => session.store = Some(store),
            Err(e) => session.warn_once(&e),
        }
        Ok(session)
    }

    /// Returns the kept result of this request or task on a machine with this setup.
    pub fn find<T: CacheValue>(&self, setup: Setup, request: &impl Serialize) -> Result<Option<T>> {
        let store = self.store.as_ref().filter(|_| !self.fresh);
        let Some(store) = store else { return Ok(None) };
        Ok(store.get(&self.key(setup, request)?))
    }

    /// Keeps the result of a machine.
    pub fn keep(
        &self,
        setup: Setup,
        request: &impl Serialize,
        label: &Label,
        value: &impl CacheValue,
    ) {
        let Some(store) = &self.store else { return };
        let put = |key| store.put(&key, label, value);
        if let Err(e) = self.key(setup, request).and_then(put) {
            self.warn_once(&e);
        }
    }

    /// The name of a result in the folder: 64 hex digits.
    pub fn name(&self, setup: Setup, request: &impl Serialize) -> Result<String> {
        Ok(self.key(setup, request)?.as_str().to_owned())
    }

    fn key(&self, setup: Setup, request: &impl Serialize) -> Result<Key> {
        let arguments = setup.arguments(self.kernel.architecture, &self.kernel.release);
        self.ingredients.key(&arguments, request)
    }

    fn warn_once(&self, e: &Error) {
        if !self.said.swap(true, Ordering::Relaxed) {
            (self.say)(&format!("results are not cached: {e}; {}", e.remedy));
        }
    }
}

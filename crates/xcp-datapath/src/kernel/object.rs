// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! BPF objects: opens them from memory, loads them, and finds their parts by name.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{
    ErrorKind, Map, MapCore, MapFlags, MapHandle, MapMut, Object, ObjectBuilder, OpenMapMut,
    OpenObject, PrintLevel, ProgramMut,
};

use crate::error::{denied, is_root};
use crate::load_error::{self, LoadError};
use crate::{Error, Result};
use xcp_abi::Record;

/// A compiled file of bpf/.
pub struct Image {
    name: &'static str,
    /// The kernel feature that it needs, in plain words.
    pub feature: &'static str,
    bytes: &'static [u8],
}

impl Image {
    /// The compiled file of that name.
    pub const fn new(name: &'static str, feature: &'static str, bytes: &'static [u8]) -> Self {
        Self {
            name,
            feature,
            bytes,
        }
    }

    /// An identifier of this build of the object.
    pub fn build(&self) -> String {
        hash(self.bytes)
    }

    pub(crate) fn bytes(&self) -> &'static [u8] {
        self.bytes
    }

    #[cfg(test)]
    pub(crate) fn with(&self, bytes: &'static [u8]) -> Self {
        Self { bytes, ..*self }
    }
}

/// The FNV-1a hash of bytes, as 16 hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

macro_rules! image {
    ($name:literal, $feature:literal) => {
        Image::new(
            $name,
            $feature,
            include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")),
        )
    };
}

pub const CC: Image = image!("cc", "congestion control in BPF (struct_ops)");
pub const OPTION: Image = image!("option", "TCP options in BPF (sock_ops)");
pub const DEVICE: Image = image!("device", "headers between IP and TCP (tc)");
pub const CLOUD: Image = image!("cloud", "packet programs on ingress (tc)");
pub const GATEWAY: Image = image!("gateway", "transparent proxies in BPF (tc, sk_lookup)");
pub const ROUTER: Image = image!("router", "packet programs on egress (tc)");
pub const QDISC: Image = image!("qdisc", "queue disciplines in BPF");
pub const SOCKET: Image = image!("socket", "sockets by protocol number (IPPROTO_XCP)");

static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Prints the messages of libbpf and the kernel's verifier on standard error.
pub fn set_verbose(verbose: bool) {
    VERBOSE.store(verbose, Ordering::Relaxed);
}

fn print(level: PrintLevel, text: String) {
    load_error::record_message(level, &text);
    if VERBOSE.load(Ordering::Relaxed) {
        // a panic here would abort the process, because C code (libbpf) calls this
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Prints messages of libbpf only after [`set_verbose`].
pub fn quiet() {
    static PRINT: Once = Once::new();
    PRINT.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Debug, print)));
    });
}

/// Opens an object without loading it.
pub fn open(image: &Image) -> Result<OpenObject> {
    quiet();
    ObjectBuilder::default()
        .name(image.name)
        .and_then(|builder| builder.open_memory(image.bytes))
        .map_err(|e| failure(image.feature, &e))
}

/// Loads an object that [`open`] returned. Fails if the kernel lacks a feature.
pub fn load(image: &Image, object: OpenObject) -> Result<Object> {
    try_load(object).map_err(|refusal| refusal.describe(image.feature))
}

/// Like [`load`], but returns the kind of failure.
pub fn try_load(object: OpenObject) -> std::result::Result<Object, LoadError> {
    let (loaded, log) = load_error::capture_log(|| object.load());
    loaded.map_err(|e| LoadError::new(&e, log, is_root()))
}

/// Describes a failed BPF operation and its most likely remedy.
pub fn failure(thing: &str, err: &libbpf_rs::Error) -> Error {
    let remedy = match err.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => denied(is_root()),
        _ => "run `xcp doctor` to check this kernel, and run the command again with --verbose",
    };
    Error::new(thing, err.to_string(), remedy)
}

/// Finds a map of an opened object by the end of its name, because libbpf shortens and
/// prefixes the names of data sections.
pub fn open_map<'a>(object: &'a mut OpenObject, name: &str) -> Result<OpenMapMut<'a>> {
    object
        .maps_mut()
        .find(|m| m.name().to_str().is_some_and(|n| n.ends_with(name)))
        .ok_or_else(|| missing(name))
}

/// Sets the content of a data section of an opened object.
pub fn set_data<R: Record>(object: &mut OpenObject, section: &str, record: &R) -> Result<()> {
    open_map(object, section)?
        .set_initial_value(record.bytes())
        .map_err(|e| failure(section, &e))
}

/// Makes an opened object reuse the maps that are pinned under these names in a folder.
pub fn reuse(object: &mut OpenObject, maps: &[&str], folder: &Path) -> Result<()> {
    for map in maps {
        open_map(object, map)?
            .reuse_pinned_map(folder.join(map))
            .map_err(|e| failure(map, &e))?;
    }
    Ok(())
}

pub fn map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>> {
    object
        .maps()
        .find(|m| m.name().to_str().is_some_and(|n| n.ends_with(name)))
        .ok_or_else(|| missing(name))
}

pub fn map_mut<'a>(object: &'a mut Object, name: &str) -> Result<MapMut<'a>> {
    object
        .maps_mut()
        .find(|m| m.name().to_str().is_some_and(|n| n.ends_with(name)))
        .ok_or_else(|| missing(name))
}

pub fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>> {
    object
        .progs_mut()
        .find(|p| p.name() == name)
        .ok_or_else(|| missing(name))
}

pub fn missing(name: &str) -> Error {
    Error::new(
        name,
        "not in the BPF object",
        "this build is broken: build again",
    )
}

/// How long to wait for the kernel to release a name.
const NAME_PATIENCE: Duration = Duration::from_secs(10);

/// Registers the struct_ops of a map with the kernel, and pins the link.
pub fn register(object: &mut Object, map: &str, thing: &str, path: &Path) -> Result<()> {
    let mut ops = map_mut(object, map)?;
    let failure = |e: libbpf_rs::Error| match e.kind() {
        ErrorKind::AlreadyExists => Error::new(
            thing,
            "the kernel already has one with this name",
            "find it: bpftool struct_ops show; bpftool link show; lsmod",
        ),
        _ => failure(thing, &e),
    };
    until_released(|| ops.attach_struct_ops())
        .map_err(failure)?
        .pin(path)
        .map_err(failure)
}

/// Retries while the name is in use: the kernel releases the name asynchronously after its
/// owner was removed (seen: after an `xcp run` that was killed).
fn until_released<T>(mut attempt: impl FnMut() -> libbpf_rs::Result<T>) -> libbpf_rs::Result<T> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && begun.elapsed() < NAME_PATIENCE => {
                thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

/// Pins a map at a path.
pub fn pin_map(object: &mut Object, name: &str, path: &Path) -> Result<()> {
    map_mut(object, name)?
        .pin(path)
        .map_err(|e| failure(&path.display().to_string(), &e))
}

/// Opens a map that an earlier command pinned.
pub fn pinned_map(path: &Path) -> Result<MapHandle> {
    MapHandle::from_pinned_path(path).map_err(|e| failure(&path.display().to_string(), &e))
}

/// The kernel's ID of a map.
pub fn map_id(map: &MapHandle) -> Result<u32> {
    map.info()
        .map(|info| info.info.id)
        .map_err(|e| failure("map", &e))
}

/// Writes the single record of a data section.
pub fn write_record<R: Record>(map: &impl MapCore, record: &R) -> Result<()> {
    map.update(&0u32.to_ne_bytes(), record.bytes(), MapFlags::ANY)
        .map_err(|e| failure("map", &e))
}

/// Reads the record at a key.
pub fn read_record<R: Record>(map: &impl MapCore, key: u32) -> Result<R> {
    let bytes = map
        .lookup(&key.to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| failure("map", &e))?
        .ok_or_else(|| missing("record"))?;
    R::from_bytes(&bytes).ok_or_else(|| other_version("map"))
}

/// Reads all CPUs' records of a per-CPU array with one entry.
pub fn read_per_cpu<R: Record>(map: &impl MapCore) -> Result<Vec<R>> {
    map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| failure("map", &e))?
        .ok_or_else(|| missing("record"))?
        .iter()
        .map(|bytes| R::from_bytes(bytes).ok_or_else(|| other_version("map")))
        .collect()
}

/// The error for records that this version cannot read.
pub fn other_version(what: &str) -> Error {
    Error::new(
        what,
        "written by another version of xcp",
        "replace it: `xcp router add DEV ...`, also while traffic flows; or `xcp host off` and \
         `xcp host on ...`",
    )
}

/// The number of possible CPUs.
pub fn cpus() -> Result<u32> {
    libbpf_rs::num_possible_cpus()
        .map(|n| n as u32)
        .map_err(|e| failure("/sys/devices/system/cpu/possible", &e))
}

/// Whether anything is pinned at this path.
pub fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_in_use_causes_retries() {
        let fails = |errno, times| {
            let mut attempts = 0;
            let result = until_released(|| {
                attempts += 1;
                match attempts > times {
                    true => Ok(()),
                    false => Err(libbpf_rs::Error::from_raw_os_error(errno)),
                }
            });
            (result.is_ok(), attempts)
        };
        assert_eq!(fails(libc::EEXIST, 3), (true, 4));
        assert_eq!(fails(libc::EPERM, 3), (false, 1));
        assert_eq!(fails(libc::EPERM, 0), (true, 1));
    }
}

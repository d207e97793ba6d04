// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The records, enums and constants of bpf/abi.h and core/, under their C names.
//! `generated.rs` is generated from these headers; see tests/current.rs.

#[allow(non_camel_case_types, non_snake_case)] // C's names; B and Bps are bytes
#[rustfmt::skip]
mod generated;

pub use generated::*;

use std::mem::size_of;

/// A record that is valid for any bytes: all its fields are integers, also its padding.
///
/// # Safety
/// Implementors are `repr(C)`, have no hidden padding, and are valid for any bytes.
pub unsafe trait Record: Copy + Default {
    /// Reads the record from these bytes; None if their number is not its size.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Self>() {
            return None;
        }
        // SAFETY: the length is right and any bytes are a valid record.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// The record's bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: a record of this size, borrowed for as long as self is.
        unsafe { std::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) }
    }
}

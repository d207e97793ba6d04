// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
//! The memory layout of records, from a BPF object's type information (BTF). A build reads
//! pinned maps only if it uses the same layout; equal sizes do not guarantee that.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use libbpf_rs::btf::types::{Array, Composite, MemberAttr, Var};
use libbpf_rs::btf::{Btf, BtfKind, BtfType};
use libbpf_rs::HasSize;

use crate::object::{self, Image};
use crate::{bpffs, Result};

/// A folder next to the pinned maps. A folder in it is named after the layout of the records.
const FOLDER: &str = "layout";

/// Records the layout of the maps that are pinned in a folder.
pub fn mark(dir: &Path, image: &Image, names: &[&str]) -> Result<()> {
    let _ = std::fs::remove_dir_all(dir.join(FOLDER));
    bpffs::mark(&path(dir, image, names)?)
}

/// Whether the maps pinned in a folder have the layout of this build.
pub fn is_ours(dir: &Path, image: &Image, names: &[&str]) -> Result<bool> {
    Ok(object::exists(&path(dir, image, names)?))
}

fn path(dir: &Path, image: &Image, names: &[&str]) -> Result<PathBuf> {
    let layout = object::hash(of(image, names)?.as_bytes());
    Ok(dir.join(FOLDER).join(layout))
}

/// The layout of maps, data sections and records as text: the names, offsets and sizes of all
/// their fields.
fn of(image: &Image, names: &[&str]) -> Result<String> {
    let failure = |e| object::failure(image.feature, &e);
    let missing = || object::missing("type information");
    let btf = Btf::from_raw("object", image.bytes()).map_err(failure)?;
    let btf = btf.ok_or_else(missing)?;
    let mut text = String::new();
    for name in names {
        let map = btf
            .type_by_name::<Var<'_>>(name)
            .and_then(|v| v.next_type());
        let record = || btf.type_by_name::<Composite<'_>>(name).map(|c| *c);
        describe(
            &btf,
            map.or_else(record).ok_or_else(missing)?,
            &mut text,
            true,
        );
    }
    Ok(text)
}

/// Appends the description of a type. With `of_map`, pointers are followed, because they stand
/// for the types of a map's keys and values.
fn describe(btf: &Btf<'_>, described: BtfType<'_>, text: &mut String, of_map: bool) {
    let described = described.skip_mods_and_typedefs();
    if let Ok(composite) = Composite::try_from(described) {
        let _ = write!(text, "{{{}:", composite.size());
        for member in composite.iter() {
            let offset = match member.attr {
                MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. } => offset,
            };
            let _ = write!(text, "{:?}@{offset}", member.name.unwrap_or_default());
            if let Some(inner) = btf.type_by_id::<BtfType<'_>>(member.ty) {
                describe(btf, inner, text, of_map);
            }
        }
        text.push('}');
    } else if let Ok(array) = Array::try_from(described) {
        let _ = write!(text, "[{}]", array.capacity());
        describe(btf, array.contained_type(), text, of_map);
    } else if let (true, BtfKind::Ptr, Some(inner)) =
        (of_map, described.kind(), described.next_type())
    {
        describe(btf, inner, text, false);
    } else {
        let _ = write!(text, "{:?}{};", described.kind(), size(described));
    }
}

/// The size of a number, bytes.
fn size(number: BtfType<'_>) -> usize {
    libbpf_rs::btf_type_match!(match number {
        BtfKind::Int(int) => usize::from(int.bits) / 8,
        BtfKind::Enum(some) => some.size(),
        BtfKind::Enum64(some) => some.size(),
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["cpus", "config", "link", "xcp_router_record"];

    /// The layout of the router's object after a name in it was replaced.
    fn renamed(name: &str, other: &str) -> String {
        let (name, other) = (format!("\0{name}\0"), format!("\0{other}\0"));
        assert_eq!(name.len(), other.len());
        let mut bytes = object::ROUTER.bytes().to_vec();
        let places: Vec<usize> = bytes
            .windows(name.len())
            .enumerate()
            .filter(|(_, there)| *there == name.as_bytes())
            .map(|(at, _)| at)
            .collect();
        assert!(!places.is_empty(), "{name:?}");
        for at in places {
            bytes[at..at + name.len()].copy_from_slice(other.as_bytes());
        }
        of(&object::ROUTER.with(bytes.leak()), &NAMES).unwrap()
    }

    #[test]
    fn layouts_with_fields_of_equal_size_differ() {
        let text = of(&object::ROUTER, &NAMES).unwrap();
        // fields of a map, of a nested record, of a data section and of the ring buffer
        for field in ["next_pos", "capacity_Bps", "whole_feedback", "backlog_B"] {
            assert!(text.contains(&format!("{field:?}@")), "{field}: {text}");
            let other = field.to_uppercase();
            assert_ne!(renamed(field, &other), text, "{field}");
        }
        // a type that only functions use is not part of the layout
        assert_eq!(renamed("__sk_buff", "__SK_BUFF"), text);
    }
}

//! Addresses of an object in a process.

use std::fs::File;

use memtrace_model::{AbsAddr, Mapping, VirtOffset};

use crate::elf::{Elf, virt_offset};

/// Returns the address in a process of a byte of an object, of which `mapping` is a part and `file` the file. `None` if the
/// mapping belongs to no segment of the object.
pub fn address_in(mapping: &Mapping, file: &File, virt: VirtOffset) -> Option<AbsAddr> {
    let elf = Elf::parse_headers(file).ok()?;
    let start = virt_offset(elf.segments(), mapping.offset)?;
    Some(AbsAddr(mapping.start.0.wrapping_sub(start.0).wrapping_add(virt.0)))
}

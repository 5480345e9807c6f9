//! Assigns each byte of each mapping to one part of the explanation. Pure.

mod anonymous;
mod parts;
mod sums;

use std::path::Path;

use self::anonymous::Pieces;
pub(super) use self::parts::{Closer, Parts, Readings, span_of};
use self::sums::{Files, Named};
use super::allocator::Serving;
use super::glibc::{Region, Trouble};
use crate::model::{HeapMemory, HeapSource, MappingKind, MemorySizes};
use crate::procfs::smaps::Area;
use crate::procfs::tmpfs::Tmpfs;

/// Returns the regions that can contain glibc's memory: readable, writable, private memory without a file. Adjacent
/// mappings are joined.
pub(super) fn regions(areas: &[Area], tmpfs: &Tmpfs) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for area in areas.iter().filter(|area| area.entry.readable && area.entry.writable) {
        let is_brk = match tmpfs.kind(area) {
            MappingKind::Heap => true,
            MappingKind::Anonymous if area.entry.file.is_none() => false,
            _ => continue,
        };
        let span = span_of(area);
        match regions.last_mut() {
            Some(last) if last.span.end == span.start && last.is_brk == is_brk => last.span.end = span.end,
            _ => regions.push(Region { span, is_brk }),
        }
    }
    regions
}

/// Assigns each mapping to its parts.
pub(super) fn assemble(readings: &Readings, closer: &impl Closer) -> Parts {
    let mut parts = Parts { heap: heap(readings), ..Parts::default() };
    let (mut files, mut shmem) = (Files::default(), Named::default());
    let mut pieces = Pieces::new(readings, closer);
    let mut kinds = MappingKind::ALL.map(|kind| (kind, MemorySizes::default()));
    for (index, area) in readings.areas.iter().enumerate() {
        let (kind, held) = (readings.tmpfs.kind(area), area.sizes.held());
        parts.pss.0 += area.sizes.pss.0;
        if let Some((_, sum)) = kinds.iter_mut().find(|(of, _)| *of == kind) {
            *sum += held;
        }
        match kind {
            MappingKind::Heap | MappingKind::Anonymous => pieces.add(index, kind, &mut parts),
            MappingKind::File => files.add(&area.entry.path, area.sizes),
            MappingKind::Shmem => shmem.add(&shared_name(&area.entry.path), held),
            MappingKind::Stack => parts.main_stack += held,
            MappingKind::Special => parts.special += held,
            MappingKind::Hugetlb => {
                // These pages are not in the RSS, and stand in the place of what would be.
                parts.hugetlb += MemorySizes { resident: area.sizes.hugetlb, huge: area.sizes.hugetlb, ..held };
            }
        }
    }
    parts.anonymous = pieces.anonymous();
    parts.files = files.ranked();
    parts.shmem = shmem.ranked();
    parts.kinds = kinds.into_iter().filter(|(_, held)| *held != MemorySizes::default()).collect();
    parts
}

/// Memory that no folder has a name for says `(deleted)` without having been deleted.
fn shared_name(path: &Path) -> String {
    let name = path.to_string_lossy();
    let nameless = ["/memfd:", "/dev/zero", "/SYSV"].iter().any(|start| name.starts_with(start));
    match name.strip_suffix(" (deleted)") {
        Some(name) if nameless => name.to_owned(),
        _ => name.into_owned(),
    }
}

fn heap(readings: &Readings) -> HeapMemory {
    let name = |name: &str| Some(name.to_owned());
    let (allocator, source) = match (&readings.serving, &readings.glibc) {
        (Serving::Unmarked(kind), _) => {
            let with_others = if anonymous::names_its_own(&readings.areas, kind) {
                ""
            } else {
                "; what the program maps for itself without a name is counted with it"
            };
            let why = format!("{kind} keeps no marks at its blocks that could be read{with_others}");
            (name(kind), HeapSource::Unknown(why))
        }
        (Serving::Glibc, None) => (name("glibc"), HeapSource::Unknown(trouble(Trouble::Unreadable))),
        (serving, Some(found)) => match found.trouble {
            None => (name("glibc"), HeapSource::Known(found.books)),
            Some(_) if found.books.blocks > 0 => (name("glibc"), HeapSource::Known(found.books)),
            Some(what) if *serving == Serving::Glibc => (name("glibc"), HeapSource::Unknown(trouble(what))),
            Some(_) => (None, HeapSource::Unknown(unknown())),
        },
        (Serving::Unknown, None) => (None, HeapSource::Unknown(unknown())),
    };
    HeapMemory { allocator, held: MemorySizes::default(), source }
}

fn unknown() -> String {
    String::from("the process has no allocator that memtrace knows")
}

fn trouble(trouble: Trouble) -> String {
    String::from(match trouble {
        Trouble::Torn => "glibc's marks could not be read consistently: the process changes them all the time",
        Trouble::Swapped => "a part is swapped out, and is not brought back to be looked at",
        Trouble::Unreadable => "the process' memory may not be read: that takes CAP_SYS_PTRACE",
    })
}

#[cfg(test)]
mod tests;

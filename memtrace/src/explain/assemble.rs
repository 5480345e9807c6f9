//! Attributes each byte of each VMA to one part of the explanation: heap, stacks, files and others. Memory is read only
//! through a `RangeInspector`.

mod anonymous;
mod go_parts;
mod memory;
mod parts;
mod sums;

use std::path::Path;

use memtrace_host::procfs::{Tmpfs, Vma};
use memtrace_model::{Bytes, HeapMemory, HeapSource, MappingKind, MemorySizes};

use self::anonymous::AnonymousMemory;
use self::memory::span_of;
pub(super) use self::memory::{ProcessMemory, RangeInspector};
use self::parts::Parts;
use self::sums::{FileTotals, NameTotals};
use super::allocator::MallocProvider;
use super::glibc::{HeapError, Region};

/// Returns the regions that may belong to glibc: private, readable and writable memory without a file. Adjacent VMAs
/// are joined.
pub(super) fn regions(vmas: &[Vma], tmpfs: &Tmpfs) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for vma in vmas.iter().filter(|vma| vma.entry.readable && vma.entry.writable) {
        let is_brk = match tmpfs.kind(vma) {
            MappingKind::Heap => true,
            MappingKind::Anonymous if vma.entry.file.is_none() => false,
            _ => continue,
        };
        let span = span_of(vma);
        match regions.last_mut() {
            Some(last) if last.span.end == span.start && last.is_brk == is_brk => last.span.end = span.end,
            _ => regions.push(Region { span, is_brk }),
        }
    }
    regions
}

/// Attributes the memory of each VMA to parts of the explanation.
pub(super) fn assemble(memory: &ProcessMemory, inspector: &impl RangeInspector) -> Parts {
    let mut parts = Parts { heap: heap(memory), ..Parts::default() };
    let (mut files, mut shmem) = (FileTotals::default(), NameTotals::default());
    let mut anonymous = AnonymousMemory::new(memory, inspector);
    let mut kinds = MappingKind::ALL.map(|kind| (kind, MemorySizes::default()));
    for (index, vma) in memory.vmas.iter().enumerate() {
        let kind = memory.tmpfs.kind(vma);
        let held = vma.sizes.held(kind);
        parts.pss.0 += vma.sizes.pss.0;
        if let Some((_, sum)) = kinds.iter_mut().find(|(other, _)| *other == kind) {
            *sum += held;
        }
        match kind {
            MappingKind::Heap | MappingKind::Anonymous => anonymous.add(index, kind, &mut parts),
            MappingKind::File => files.add(&vma.entry.path, vma.sizes),
            MappingKind::Shmem => shmem.add(&shared_name(&vma.entry.path), held),
            MappingKind::Stack => parts.main_stack += held,
            MappingKind::Special => parts.special += held,
            MappingKind::Hugetlb => {
                // Pages of hugetlbfs are not in the RSS, so their size counts as the resident size.
                parts.hugetlb += MemorySizes { resident: vma.sizes.hugetlb, huge: vma.sizes.hugetlb, ..held };
            }
        }
    }
    if let HeapSource::Known(stats) = &parts.heap.source {
        let held = &mut parts.heap.held;
        held.returnable = Bytes(held.returnable.0.saturating_add(stats.trimmable.0)).min(held.resident);
    }
    parts.go = anonymous.go_sizes();
    parts.anonymous = anonymous.by_name();
    parts.files = files.ranked();
    parts.shmem = shmem.ranked();
    parts.kinds = kinds.into_iter().filter(|(_, held)| *held != MemorySizes::default()).collect();
    parts
}

/// Returns the name of a shared mapping. For memory that never had a name in a directory, removes the suffix
/// `(deleted)`.
fn shared_name(path: &Path) -> String {
    let name = path.to_string_lossy();
    let is_unlinked = ["/memfd:", "/dev/zero", "/SYSV"].iter().any(|start| name.starts_with(start));
    match name.strip_suffix(" (deleted)") {
        Some(name) if is_unlinked => name.to_owned(),
        _ => name.into_owned(),
    }
}

fn heap(memory: &ProcessMemory) -> HeapMemory {
    let name = |name: &str| Some(name.to_owned());
    let (allocator, source) = match (&memory.provider, &memory.glibc) {
        (MallocProvider::Other(kind), _) => {
            let with_others = if anonymous::names_its_own(&memory.vmas, kind) {
                ""
            } else {
                "; unnamed mappings of the program itself are counted with it"
            };
            let why = format!("{kind} has no block headers that could be read{with_others}");
            (name(kind), HeapSource::Unknown(why))
        }
        (MallocProvider::Glibc, None) => (name("glibc"), HeapSource::Unknown(describe(HeapError::Unreadable))),
        (provider, Some(walk)) => match walk.error {
            None => (name("glibc"), HeapSource::Known(walk.stats)),
            Some(_) if walk.stats.blocks > 0 => (name("glibc"), HeapSource::Known(walk.stats)),
            Some(error) if *provider == MallocProvider::Glibc => (name("glibc"), HeapSource::Unknown(describe(error))),
            Some(_) => (None, HeapSource::Unknown(no_allocator())),
        },
        (MallocProvider::Unknown, None) => (None, HeapSource::Unknown(no_allocator())),
    };
    HeapMemory { allocator, held: MemorySizes::default(), source }
}

fn no_allocator() -> String {
    String::from("the process has no allocator that memtrace knows")
}

fn describe(error: HeapError) -> String {
    String::from(match error {
        HeapError::Inconsistent => "glibc's heap changed during each attempt to read it; try again",
        HeapError::Swapped => "a part of the heap is swapped out, and memtrace does not swap it in",
        HeapError::Unreadable => {
            "memtrace has no permission to read the memory of the process, which takes CAP_SYS_PTRACE"
        }
        HeapError::Late => "there was no time left to read the heap",
    })
}

#[cfg(test)]
mod tests;

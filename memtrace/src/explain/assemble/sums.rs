//! Sums of memory sizes, by name and by file.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use memtrace_host::procfs::Sizes;
use memtrace_model::{FileMemory, MappingKind, MemorySizes, NamedMemory};

/// Memory sizes by name.
#[derive(Debug, Default)]
pub(super) struct NameTotals(BTreeMap<String, NamedMemory>);

impl NameTotals {
    pub(super) fn add(&mut self, name: &str, held: MemorySizes) {
        let named = self.0.entry(name.to_owned()).or_default();
        named.mappings += 1;
        named.held += held;
    }

    /// Adds memory of several mappings, under its name.
    pub(super) fn add_mappings(&mut self, memory: NamedMemory) {
        let named = self.0.entry(memory.name).or_default();
        named.mappings += memory.mappings;
        named.held += memory.held;
    }

    pub(super) fn ranked(self) -> Vec<NamedMemory> {
        let mut all: Vec<_> = self.0.into_iter().map(|(name, named)| NamedMemory { name, ..named }).collect();
        all.sort_by_key(|named| Reverse((named.held.resident, named.held.reserved)));
        all
    }
}

/// Memory sizes of files by path.
#[derive(Debug, Default)]
pub(super) struct FileTotals(BTreeMap<String, FileMemory>);

impl FileTotals {
    pub(super) fn add(&mut self, path: &Path, sizes: Sizes) {
        let file = self.0.entry(path.to_string_lossy().into_owned()).or_default();
        file.held += sizes.held(MappingKind::File);
        // A written page of a private mapping is a copy, no longer part of the file.
        file.copied.0 += sizes.anonymous.0.min(sizes.resident.0);
    }

    pub(super) fn ranked(self) -> Vec<FileMemory> {
        let mut all: Vec<_> = self.0.into_iter().map(|(path, file)| FileMemory { path, ..file }).collect();
        all.sort_by_key(|file| Reverse((file.held.resident, file.held.reserved)));
        all
    }
}

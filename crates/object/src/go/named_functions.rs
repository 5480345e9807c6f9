//! Functions of the runtime whose code leads to its variables.

use std::ops::Range;

use super::file_bytes::FileBytes;
use super::function_table::FunctionTable;
use crate::elf::{Elf, Source};

/// A function of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuntimeFunction {
    /// Adds the numbers of a cycle to the published ones. Loads the list of buckets, and no other variable.
    FlushLocked,
    /// Publishes a cycle after a collection. Loads the number of the cycle, and no other variable of four bytes.
    Flush,
    /// Records a sampled block. Loads the sampling rate.
    ProfileAlloc,
    /// Copies the profile for the program. The linker keeps it only if the program can call it.
    MemProfile,
}

impl RuntimeFunction {
    const COUNT: usize = 4;

    /// Names of the functions. In later releases, `runtime.MemProfile` and runtime/pprof call `memProfileInternal`.
    const NAMES: [(&str, Self); 5] = [
        ("runtime.mProf_FlushLocked", Self::FlushLocked),
        ("runtime.mProf_Flush", Self::Flush),
        ("runtime.profilealloc", Self::ProfileAlloc),
        ("runtime.MemProfile", Self::MemProfile),
        ("runtime.memProfileInternal", Self::MemProfile),
    ];

    /// Start of all names.
    const PREFIX: &str = "runtime.";
}

/// Addresses of the code of the functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NamedFunctions([Option<Range<u64>>; RuntimeFunction::COUNT]);

impl NamedFunctions {
    /// Looks for the functions among all functions of the table.
    pub(super) fn find<S: Source>(table: &FunctionTable, elf: &Elf<S>) -> Self {
        let mut bytes = FileBytes::new(elf);
        let mut found = Self::default();
        for index in 0..table.count() {
            let Some(name) = table.name(&mut bytes, index) else { continue };
            if !bytes.is_at(name, RuntimeFunction::PREFIX.as_bytes()) {
                continue;
            }
            let named = RuntimeFunction::NAMES.iter().find(|(text, _)| {
                let end = name.checked_add(text.len() as u64);
                bytes.is_at(name, text.as_bytes()) && end.and_then(|end| bytes.byte(end)) == Some(0)
            });
            if let Some((_, function)) = named {
                found.0[*function as usize] = table.code(&mut bytes, index);
            }
        }
        found
    }

    /// Returns the addresses of the code of a function; `None` if the linker or the compiler has dropped the function.
    pub(super) fn code(&self, function: RuntimeFunction) -> Option<Range<u64>> {
        self.0[function as usize].clone()
    }

    /// Returns true if the program can read its profile. Otherwise the linker turns sampling off (`linksetup`,
    /// cmd/link/internal/ld/lib.go).
    pub(super) fn has_profile(&self) -> bool {
        self.code(RuntimeFunction::MemProfile).is_some()
    }
}

//! Reasons why the sampler of an allocator is not used.

use crate::elf::ElfError;

/// Reason why the sampler of an allocator is not used.
#[derive(Debug, thiserror::Error)]
pub enum SamplerRefusal {
    /// The file cannot be read as ELF.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The object has no allocator with a sampler.
    #[error("the object has no allocator that samples")]
    NoSampler,
    /// The object has an allocator with a sampler, but no symbol table.
    #[error("the functions by which {0} reports its samples have no symbols, because the object is stripped")]
    Stripped(&'static str),
    /// The allocator is built without its sampler.
    #[error("{0}")]
    NotBuilt(&'static str),
    /// jemalloc does not report the address of a sampled block that it frees.
    #[error("jemalloc is older than 5.3, and does not report which sample is freed")]
    OldJemalloc,
    /// The sampler lacks a function or a variable.
    #[error("{0} has no symbol or no code")]
    Missing(&'static str),
}

impl SamplerRefusal {
    /// Returns true if the object has an allocator with a sampler, which the user may expect to be used.
    pub const fn is_of_allocator(&self) -> bool {
        !matches!(self, Self::Elf(_) | Self::NoSampler)
    }
}

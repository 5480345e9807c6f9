//! Kinds of memory and their resident pages.

mod mapping_kind;
mod residency;

pub use mapping_kind::{MappingKind, MappingTraits};
pub use residency::{Residency, ResidentKind, ResidentRange, Touched};

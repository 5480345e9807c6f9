//! Prediction of the objects that the dynamic loader will map for a command.

mod candidates;
mod ld_cache;
mod possible;
mod root;

pub use candidates::{Candidates, candidates, libraries};
pub use ld_cache::parse as parse_ld_cache;
pub use possible::possible_allocators;

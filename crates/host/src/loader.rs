//! Prediction of the objects that the dynamic loader will map for a command.

mod candidates;
mod ld_cache;
mod root;

pub use candidates::{Candidates, candidates, libraries};

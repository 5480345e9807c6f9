//! The traced processes: what they run, which files they map, and which allocators these contain.

mod allocators;
mod late;
mod numbers;
mod poll;
mod tracker;

pub(super) use tracker::{Followed, News};

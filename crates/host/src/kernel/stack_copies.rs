//! Copies of user stacks whose walk in BPF ended at an object without an unwind table, and the end of these walks.

mod assembly;
mod reader;
mod walk;

pub use assembly::StackCopy;
pub use reader::StackCopyReader;
pub use walk::{CodeLookup, FinishedWalk};

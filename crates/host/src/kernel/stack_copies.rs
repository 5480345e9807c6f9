//! Stack copies: user stacks that BPF copied because its walk reached an object without an unwind table. User space
//! finishes these walks.

mod assembly;
mod reader;
mod walk;

pub use assembly::StackCopy;
pub use reader::StackCopyReader;
pub use walk::{CodeLookup, FinishedWalk};

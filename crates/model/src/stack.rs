//! Call stacks.

mod call_stack;
mod finished;
mod id;
mod stacks;
mod tree;

pub use call_stack::{Stack, StackEnd, split_frame};
pub use finished::FinishedStacks;
pub use id::{StackId, StackKey};
pub use stacks::Stacks;
pub use tree::{Merged, Node, Tree};

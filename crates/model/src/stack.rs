//! Call stacks.

mod call_stack;
mod id;
mod stacks;
mod tree;

pub use call_stack::{Stack, StackEnd, split_frame};
pub use id::{StackId, StackKey};
pub use stacks::Stacks;
pub use tree::{Merged, Node, Tree};

//! Call stacks.

mod call_stack;
mod id;
mod stacks;
mod tree;

pub use call_stack::{Stack, StackEnd};
pub use id::{StackId, StackKey};
pub use stacks::Stacks;
pub use tree::{Merged, Node, Tree};

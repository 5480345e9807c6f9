//! Tags that target processes set themselves.

use std::fmt;

pub use memtrace_common::vocabulary::{TagAction, TagValue};

/// Effect of a function on the tag of a thread, process or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagEffect {
    /// Change of the tag.
    pub action: TagAction,
    /// Source of the new tag; `None` for [`TagAction::Leave`].
    pub source: Option<TagSource>,
    /// Kind of value that the tag has.
    pub value: TagValue,
    /// Condition, if any: the index of an argument, and a value. The function has an effect only if the lower 32 bits
    /// of the argument equal the value.
    pub condition: Option<(u8, u32)>,
}

/// Source of a new tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagSource {
    /// Argument with this index, from 0.
    Argument(u8),
    /// Result of the function.
    Result,
}

/// A tag that a target process has set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TagName {
    /// A number, such as the ID of a module or the address of its handle.
    Number(u64),
    /// A name.
    Text(String),
}

impl fmt::Display for TagName {
    /// Writes the name or the number. Numbers of more than 32 bits are hexadecimal, because most are addresses.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) if u32::try_from(*number).is_ok() => write!(out, "{number}"),
            Self::Number(number) => write!(out, "{number:#x}"),
            Self::Text(name) => out.write_str(name),
        }
    }
}

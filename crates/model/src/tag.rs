//! Tags that target processes set themselves.

use std::fmt;

use memtrace_common::wire::MAX_TAG_STEPS;

use crate::{format, plain};

pub use memtrace_common::vocabulary::{TagAction, TagValue};

/// Effect of a function on the tag of a thread, process or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagEffect {
    /// Change of the tag.
    pub action: TagAction,
    /// Source of the new tag; `None` if the action sets none.
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
    /// Field of a structure to which an argument points.
    Field(TagField),
    /// Result of the function.
    Result,
}

impl TagSource {
    /// Returns the index of the argument that leads to the tag; `None` for the result of the function.
    #[must_use]
    pub const fn argument(self) -> Option<u8> {
        match self {
            Self::Argument(argument) | Self::Field(TagField { argument, .. }) => Some(argument),
            Self::Result => None,
        }
    }
}

/// Field of a structure: `*(*(arg1+0x18)+8)` is the word at offset 8 of the structure to which the word at offset 0x18
/// of the structure at `arg1` points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagField {
    /// Index of the argument that points to the first structure.
    pub argument: u8,
    /// Number of words that are read.
    pub steps: u8,
    /// Number that is added to the argument, and to each word that was read. The numbers for words that are not read are 0.
    pub offsets: [i32; MAX_TAG_STEPS + 1],
}

/// Number format of tags that are numbers. Without one, numbers of at most 32 bits are decimal, and longer ones are
/// hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagFormat {
    /// Hexadecimal numbers.
    Hex,
    /// Decimal numbers.
    Dec,
}

impl TagFormat {
    /// All formats, ordered as in the help.
    pub const ALL: &[Self] = &[Self::Hex, Self::Dec];

    /// Returns the name on the command line and in recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Dec => "dec",
        }
    }

    /// Returns the format with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }
}

/// Calls of a function that changes tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagFunctionCalls {
    /// The function with its effect, as the user gave it: `set=set_module(id=arg0)`.
    pub rule: String,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that changed a tag.
    pub effective: u64,
    /// Values of the argument that the condition tests; `None` without a condition.
    pub tested: Option<TestedArgument>,
}

/// Values of an argument that a condition tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestedArgument {
    /// Index of the argument.
    pub argument: u8,
    /// First distinct values of the lower 32 bits, with their numbers of calls.
    pub values: Vec<(u32, u64)>,
    /// Number of calls with other values.
    pub others: u64,
}

impl fmt::Display for TagFunctionCalls {
    /// Writes a sentence without its full stop.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, calls, effective, tested } = self;
        let rule = plain(rule);
        if *calls == 0 {
            return write!(out, "{rule} had no effect: the function was never called; inlined calls have no probe");
        }
        let calls_of = |count: u64| format::counted(count, "call", "calls");
        match *effective {
            0 => write!(out, "{rule} had no effect in {}", calls_of(*calls))?,
            all if all == *calls => write!(out, "{rule} had an effect in {}", calls_of(all))?,
            some => write!(out, "{rule} had an effect in {} of {}", format::grouped(some), calls_of(*calls))?,
        }
        let Some(TestedArgument { argument, values, others }) = tested else { return Ok(()) };
        for (index, (value, calls)) in values.iter().enumerate() {
            let separator = if index == 0 { format!("; arg{argument} = ") } else { String::from(", ") };
            write!(out, "{separator}{value} ({})", calls_of(*calls))?;
        }
        if *others > 0 {
            write!(out, ", others ({})", calls_of(*others))?;
        }
        Ok(())
    }
}

/// A tag that a target process has set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TagName {
    /// A number, such as the ID of a module or the address of its handle.
    Number(u64),
    /// A name.
    Text(String),
}

impl TagName {
    /// Returns the name, or the number in `format`. Without a format, numbers of more than 32 bits are hexadecimal, because
    /// most are addresses.
    #[must_use]
    pub fn text(&self, format: Option<TagFormat>) -> String {
        match (self, format) {
            (Self::Text(name), _) => name.clone(),
            (Self::Number(number), Some(TagFormat::Hex)) => format!("{number:#x}"),
            (Self::Number(number), None) if u32::try_from(*number).is_err() => format!("{number:#x}"),
            (Self::Number(number), Some(TagFormat::Dec) | None) => number.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_chosen_format() {
        let text = |number, format| TagName::Number(number).text(format);
        assert_eq!([7, 1 << 32].map(|number| text(number, None)), ["7", "0x100000000"]);
        assert_eq!([7, 1 << 32].map(|number| text(number, Some(TagFormat::Dec))), ["7", "4294967296"]);
        assert_eq!([0, 0xa000_0001].map(|number| text(number, Some(TagFormat::Hex))), ["0x0", "0xa0000001"]);
        assert_eq!(TagName::Text(String::from("net")).text(Some(TagFormat::Hex)), "net");
        for &format in TagFormat::ALL {
            assert_eq!(TagFormat::from_name(format.name()), Some(format));
        }
    }

    #[test]
    fn calls_without_an_effect_state_the_tested_values() {
        let rule = String::from("set=f(id=arg1,if=arg0==7)");
        let none = TagFunctionCalls { rule: rule.clone(), ..TagFunctionCalls::default() };
        assert_eq!(
            none.to_string(),
            "set=f(id=arg1,if=arg0==7) had no effect: the function was never called; inlined calls have no probe"
        );
        let tested = |others| Some(TestedArgument { argument: 0, values: vec![(0, 1), (1, 2000)], others });
        let without = TagFunctionCalls { rule, calls: 2001, effective: 0, tested: tested(0) };
        assert_eq!(
            without.to_string(),
            "set=f(id=arg1,if=arg0==7) had no effect in 2,001 calls; arg0 = 0 (1 call), 1 (2,000 calls)"
        );
        let some = TagFunctionCalls { calls: 2006, effective: 2000, tested: tested(5), ..without.clone() };
        assert_eq!(
            some.to_string(),
            "set=f(id=arg1,if=arg0==7) had an effect in 2,000 of 2,006 calls; arg0 = 0 (1 call), 1 (2,000 calls), \
             others (5 calls)"
        );
        let all = TagFunctionCalls { calls: 3, effective: 3, tested: None, ..without };
        assert_eq!(all.to_string(), "set=f(id=arg1,if=arg0==7) had an effect in 3 calls");
    }
}

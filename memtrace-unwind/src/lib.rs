//! From a stack frame to its caller by tables.
//!
//! The same code runs in the kernel half and in tests outside of the kernel: it reads the stack through [`Memory`] and
//! asks a [`Table`] what holds at an address. [`Walk::step`] goes from one frame to the next; [`lookup`] finds an
//! address' rule in tables as they lie in the maps, [`cache`] remembers it in two words, and [`Window`] reads the stack
//! in pieces.
//!
//! Nothing here allocates, panics or loops without a bound, whatever the stack and the tables say.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod cache;
pub mod lookup;
mod walk;
mod window;

pub use walk::{Begin, Registers, Walk, mix};
pub use window::{Read, WINDOW_WORDS, Window, Windowed};

use memtrace_common::unwind::Rule;
use memtrace_common::wire::End;

/// The memory of the process whose stack is walked.
pub trait Memory {
    /// The word at `address`; `None` if it cannot be read.
    fn word(&mut self, address: u64) -> Option<u64>;
}

/// What is known about addresses of code.
pub trait Table {
    /// What to do at `pc`.
    fn at(&mut self, pc: u64) -> Lookup;

    /// The return address that belongs at `slot` of the stack, if somebody has put another one there to see the return.
    fn original_return(&mut self, slot: u64) -> Option<u64>;
}

/// What to do at an address.
///
/// All of it always has a value: the kernel refuses a program that so much as moves the field of a variant that is not
/// there, which compilers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    kind: Kind,
    /// [`Rule::default`] where there is none.
    rule: Rule,
    /// [`End::NoRow`] where the walk goes on.
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rule,
    Generated,
    Cut,
}

impl Lookup {
    /// Follow the frame pointer: the code was generated at run time.
    pub const GENERATED: Self = Self { kind: Kind::Generated, ..Self::cut(End::NoRow) };

    /// Apply this rule.
    #[inline(always)]
    #[must_use]
    pub const fn rule(rule: Rule) -> Self {
        Self { kind: Kind::Rule, rule, end: End::NoRow }
    }

    /// End the walk.
    #[inline(always)]
    #[must_use]
    pub const fn cut(end: End) -> Self {
        const NO_RULE: Rule =
            Rule { cfa_kind: 0, fp_kind: 0, ra_kind: 0, reserved: 0, cfa_offset: 0, fp_offset: 0, extra: 0 };
        Self { kind: Kind::Cut, rule: NO_RULE, end }
    }
}

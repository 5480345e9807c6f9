//! Stack unwinding with tables made from `.eh_frame`.
//!
//! The same code runs in BPF programs and, for copied stacks, in user space. The walk reads the stack through
//! [`Memory`] and finds the rule of an address through [`Table`]. [`Walk::step`] goes from one frame to its caller, and
//! [`Walk::simple_steps`] takes steps with cached rules. [`lookup`] finds the rule of an address in tables as stored in
//! BPF maps, [`cache`] stores each rule that was found in two words, and [`Window`] reads the stack in chunks.
//!
//! Nothing here allocates, panics or loops without a bound, for any stack and any table.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod cache;
mod call_site;
mod goroutine;
pub mod lookup;
mod registers;
mod walk;
mod window;

pub use goroutine::goroutine_sp;
pub use registers::{InitialRegisters, Registers};
pub use walk::{Position, Walk, mix};
pub use window::{ReadMemory, WINDOW_WORDS, Window, WindowedMemory};

use cache::CachedRule;
use memtrace_common::unwind::Rule;
use memtrace_common::wire::End;

/// Processor of the code that is unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// arm64.
    Aarch64,
}

/// Memory of the process that is unwound.
pub trait Memory {
    /// Returns the word at `address`; `None` if it is unreadable.
    fn word(&mut self, address: u64) -> Option<u64>;

    /// Returns eight bytes of code at `address`; `None` if they are unreadable.
    fn code(&mut self, address: u64) -> Option<u64> {
        self.word(address)
    }

    /// Returns the stack pointer of a goroutine, as [`goroutine_sp`] describes; `None` if a word is unreadable.
    fn goroutine_sp(&mut self, goroutine: u64, distance: u64) -> Option<u64> {
        goroutine_sp(goroutine, distance, |address| self.word(address))
    }

    /// Returns the processor of the code.
    fn machine(&self) -> Machine {
        Machine::X86_64
    }
}

/// Unwind rules and replaced return addresses of the process that is unwound.
pub trait Table {
    /// Returns the unwind rule at `pc`.
    fn lookup(&mut self, pc: u64) -> Lookup;

    /// Returns the original return address of stack slot `slot` if a uretprobe has replaced it.
    fn original_return(&mut self, slot: u64) -> Option<u64>;
}

/// Cache of the unwind rules that were found before.
pub trait RuleCache {
    /// Returns the rule at `pc` if it is cached.
    fn cached(&self, pc: u64) -> Option<CachedRule>;
}

/// Result of looking up the unwind rule of an address.
///
/// A structure with a kind, not an enum: compilers move fields of inactive variants, and the verifier rejects a program
/// that copies uninitialized memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    kind: Kind,
    /// [`Rule::default`] unless the kind is [`Kind::Rule`].
    rule: Rule,
    /// [`End::NoRow`] unless the kind is [`Kind::End`].
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rule,
    Generated,
    End,
}

impl Lookup {
    /// The address is in JIT code: follow the frame pointer.
    pub const GENERATED: Self = Self { kind: Kind::Generated, ..Self::end(End::NoRow) };

    /// Returns a lookup result with a rule.
    #[inline(always)]
    #[must_use]
    pub const fn rule(rule: Rule) -> Self {
        Self { kind: Kind::Rule, rule, end: End::NoRow }
    }

    /// Returns a lookup result that ends the walk.
    #[inline(always)]
    #[must_use]
    pub const fn end(end: End) -> Self {
        const NO_RULE: Rule =
            Rule { cfa_kind: 0, fp_kind: 0, ra_kind: 0, reserved: 0, cfa_offset: 0, fp_offset: 0, extra: 0 };
        Self { kind: Kind::End, rule: NO_RULE, end }
    }
}

//! Instructions to probe, and the code that proves them.

use std::collections::BTreeMap;

use super::place::GeneralRegister;
use crate::probe_site::site::Cost;
use crate::probe_site::window::Window;

/// The requested size, in terms of the arguments of a function from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedSize {
    Argument(u8),
    /// The product of two arguments.
    Product(u8, u8),
}

/// Instructions to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultSites {
    pub results: Vec<ResultSite>,
    pub sizes: Vec<SizeSite>,
    pub tails: Vec<TailSite>,
    /// Code that was analysed. Other code must not jump into it, except to the entry.
    pub code: AnalysedCode,
}

/// An instruction at which a register has the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResultSite {
    pub address: u64,
    pub cost: Cost,
    pub block: GeneralRegister,
    /// Register with the requested size; `None` if a size site has seen it.
    pub size: Option<GeneralRegister>,
    /// Bytes by which the stack pointer is lower than at the entry.
    pub lowered: i64,
    /// Words below the return address at which the caller's preserved registers are, in the order of
    /// [`GeneralRegister::PRESERVED`]; 0 for one that still has its word.
    pub saved: [u8; 6],
}

/// An instruction at which a register has the requested size, on the way to a result site without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeSite {
    pub address: u64,
    pub cost: Cost,
    pub size: GeneralRegister,
    /// Bytes by which the stack pointer is lower than at the entry.
    pub lowered: i64,
}

/// Instructions of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnalysedCode {
    entry: u64,
    /// Addresses of the instructions, with the addresses after them.
    instructions: BTreeMap<u64, u64>,
}

impl AnalysedCode {
    /// Returns the code of a function by the addresses of its instructions, each with the address after it.
    pub(super) fn new(entry: u64, instructions: impl Iterator<Item = (u64, u64)>) -> Self {
        Self { entry, instructions: instructions.collect() }
    }

    /// Returns true if the byte at this address is that of an analysed instruction.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.instructions.range(..=address).next_back().is_some_and(|(_, after)| address < *after)
    }

    /// Returns the contiguous parts of the code, without the first byte of the entry.
    pub(crate) fn windows(&self) -> Vec<Window> {
        let mut windows: Vec<Window> = Vec::new();
        for (&at, &after) in &self.instructions {
            match windows.last_mut().filter(|last| last.last + 1 == at) {
                Some(last) => last.last = after - 1,
                None => windows.push(Window { first: at, last: after - 1 }),
            }
        }
        for window in windows.iter_mut().filter(|window| window.first == self.entry) {
            window.first += 1;
        }
        windows
    }
}

/// A jump to another function that returns the block, with the requested size in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TailSite {
    pub address: u64,
    pub size: GeneralRegister,
    /// The other function. Its return has to be probed.
    pub target: u64,
}

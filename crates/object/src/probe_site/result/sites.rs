//! Result sites, size sites and tail sites of a function, and the code that was analysed to find them.

use std::collections::BTreeMap;

use super::place::GeneralRegister;
use crate::probe_site::site::Cost;
use crate::probe_site::window::Window;

/// The requested size, as an expression of the function's arguments. The first argument has number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedSize {
    Argument(u8),
    /// The product of two arguments.
    Product(u8, u8),
}

/// Instructions of a function to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultSites {
    pub results: Vec<ResultSite>,
    pub sizes: Vec<SizeSite>,
    pub tails: Vec<TailSite>,
    /// Code that was analysed. Other code must not jump into it, except to its entry.
    pub code: AnalysedCode,
}

/// An instruction with the block in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResultSite {
    pub address: u64,
    pub cost: Cost,
    pub block: GeneralRegister,
    /// Register with the requested size; `None` if a size site before this site has it.
    pub size: Option<GeneralRegister>,
    /// Stack pointer at the entry minus stack pointer at the instruction, in bytes.
    pub lowered: i64,
    /// Stack slot of each preserved register of the caller, as the number of words below the return address, in the order of
    /// [`GeneralRegister::PRESERVED`]; 0 for a register that is unchanged.
    pub saved: [u8; 6],
}

/// An instruction with the requested size in a register, on a path to a result site without the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeSite {
    pub address: u64,
    pub cost: Cost,
    pub size: GeneralRegister,
    /// Stack pointer at the entry minus stack pointer at the instruction, in bytes.
    pub lowered: i64,
}

/// Addresses of the analysed instructions of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnalysedCode {
    entry: u64,
    /// Address after each instruction, by the address of the instruction.
    instructions: BTreeMap<u64, u64>,
}

impl AnalysedCode {
    /// Creates the code of a function. `instructions` are the address of each instruction and the address after it.
    pub(super) fn new(entry: u64, instructions: impl Iterator<Item = (u64, u64)>) -> Self {
        Self { entry, instructions: instructions.collect() }
    }

    /// Returns true if the byte at this address belongs to an analysed instruction.
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
    /// Address of the other function. Its return must be probed.
    pub target: u64,
}

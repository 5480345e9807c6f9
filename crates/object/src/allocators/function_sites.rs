//! Probe sites of a function.

use super::function_results::FunctionResults;
use crate::probe_site::{LoadedWord, ResultRefusal, Site};

/// Probe sites of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionSites {
    /// Site for the entry of the function: the first instruction, or a later one that every call executes.
    pub entry: Site,
    /// Instruction at which a register has the word in front of the freed block, if there is one.
    pub loaded_word: Option<LoadedWord>,
    /// Result sites, or the reason why there are none; `None` for a function that returns no block.
    pub results: Option<Result<FunctionResults, ResultRefusal>>,
}

//! Probe sites of a function.

use super::function_results::FunctionResults;
use crate::probe_site::{LoadedWord, ResultRefusal, Site};

/// Probe sites of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionSites {
    /// The site that is reached as the entry.
    pub entry: Site,
    /// An instruction at which a register has the word in front of the block.
    pub loaded_word: Option<LoadedWord>,
    /// Instructions at which registers have the block and the size; `None` for a function that returns no block.
    pub results: Option<Result<FunctionResults, ResultRefusal>>,
}

//! Reasons that no stub can be made.

use super::layout::MAX_SITES;

/// Reason that no stub can be made.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
pub enum StubError {
    /// There are more sites than the header has records for.
    #[error("a stub has room for {MAX_SITES} functions only")]
    TooManySites,
    /// The code of all sites does not fit into the file.
    #[error("the code of the stub is too long")]
    CodeTooLong,
    /// An operand or a branch between the stub and this function does not fit into 32 bits.
    #[error("the stub is too far from {0}")]
    OutOfReach(String),
    /// The description of a site contradicts itself or its instruction: name of the function, and the contradiction.
    #[error("no stub can be made for {0}")]
    Operand(String),
}

//! Names of calls: the interface between stacks and the sources of names. Plain data in both directions.

use std::borrow::Cow;
use std::time::Duration;

use crate::model::{AbsAddr, Unnamed};

/// Source of the names of the code that one process image has generated at run time.
pub trait CodeNames {
    /// Returns true if the name of an address can depend on the time.
    fn depends_on_time(&self) -> bool;

    /// Returns true if callers that were found through the generated code may be wrong.
    fn is_uncertain(&self) -> bool;

    /// Returns the function at `address` at time `taken`, since tracing began.
    fn find(&mut self, address: AbsAddr, taken: Duration) -> GeneratedFunction<'_>;

    /// Records that a stack was cut at generated code.
    fn count_cut(&mut self);

    /// Returns a sentence for each kind of missing names or stacks.
    fn advice(&self) -> Vec<String>;
}

/// A function of generated code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFunction<'a> {
    /// Name as the runtime writes it, or the reason for a missing name.
    pub name: Result<Cow<'a, str>, Unnamed>,
    /// False if the function may keep no frame pointer, so that its caller is uncertain.
    pub finds_caller: bool,
}

//! Methods of measuring working sets.

/// Way in which touched pages are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkingSetMethod {
    /// The accessed bits of the page tables: `clear_refs` and `smaps`.
    #[default]
    Referenced,
}

impl WorkingSetMethod {
    /// Name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Referenced => "referenced",
        }
    }
}

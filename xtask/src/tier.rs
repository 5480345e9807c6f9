//! Tiers of the tests.

/// Extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// For each change.
    Short,
    /// Everything: also the tests in modules `long`, all kernels, and a soak with limits of times.
    Long,
}

//! Tiers of the tests.

/// Extent of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Tests for each change.
    Short,
    /// All tests, including tests in modules `long`, all kernels, and a long soak test with all limits.
    Long,
}

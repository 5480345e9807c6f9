//! Row of an unwind table.

/// Row of a table: its rule applies from its offset to the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Offset of the first address from the table's origin.
    pub(super) offset: u32,
    /// Index of the rule in the table.
    pub(super) rule: u32,
}

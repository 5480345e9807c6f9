//! Row of an unwind table.

/// Row: the rule that applies from an address to the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Offset of the address from the table's origin.
    pub(super) offset: u32,
    /// Index of the rule.
    pub(super) rule: u32,
}

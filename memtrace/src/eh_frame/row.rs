//! Rows of a table, with counters of the call frame information that they were made from.

/// From an address on, a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The address, counted from the table's origin.
    pub(super) offset: u32,
    /// The rule's number.
    pub(super) rule: u32,
}

/// How much call frame information an object has, and how much of it a table cannot say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How many descriptions (FDE) there are: about one for each function.
    pub descriptions: u64,
    /// How many of them could not be read, so that it is not known what they describe.
    pub unreadable: u64,
    /// How many of them could not be read to their end.
    pub broken: u64,
    /// How many describe no code of the object.
    pub outside: u64,
    /// How many rows the descriptions have.
    pub described_rows: u64,
    /// How many of those cannot be put into a table.
    pub untabled_rows: u64,
    /// How many of those do not tell the caller's frame pointer.
    pub unknown_fp_rows: u64,
}

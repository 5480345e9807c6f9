//! Functions that set marks.

/// Entry of a function that sets a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MarkRecord {
    /// Number of the function: the cookie of its probe.
    pub function: u32,
    /// Process that has entered the function.
    pub pid: u32,
}

const _: () = assert!(size_of::<MarkRecord>() == 8);

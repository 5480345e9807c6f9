//! Functions that set marks.

/// Entry of a function that sets a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MarkRecord {
    /// Id of the function: the BPF cookie of its probe.
    pub function: u32,
    /// Process that has entered the function.
    pub pid: u32,
}

const _: () = assert!(size_of::<MarkRecord>() == 8);

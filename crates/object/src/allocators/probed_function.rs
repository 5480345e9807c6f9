//! Functions to probe.

use memtrace_model::{Bytes, FileOffset, Signature, VirtOffset};

use super::functions::Candidate;
use crate::probe_site::Needs;

/// A function to probe.
#[derive(Clone, Copy, Debug)]
pub struct ProbedFunction {
    /// Address of the first instruction in the object, as its symbols state it.
    pub virt: VirtOffset,
    /// Length of the function; 0 if it is not known.
    pub size: Bytes,
    /// File offset of the first instruction.
    pub file_offset: FileOffset,
    /// Registers that the probe at the entry reads.
    pub needs: Needs,
    /// True if the function frees the block in its first argument, and calls no other function that frees blocks.
    pub frees_block: bool,
    /// Calling signature, if the result sites of the function are wanted.
    pub signature: Option<Signature>,
    /// True if the function may throw an exception.
    pub throws: bool,
}

impl From<&Candidate> for ProbedFunction {
    fn from(candidate: &Candidate) -> Self {
        let Candidate { virt, size, file_offset, signature, returns, .. } = candidate;
        Self {
            virt: *virt,
            size: *size,
            file_offset: *file_offset,
            needs: Needs::of_signature(*signature),
            frees_block: *signature == Signature::Free { block: 0 },
            signature: Some(*signature),
            throws: !returns.is_empty(),
        }
    }
}

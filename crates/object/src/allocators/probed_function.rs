//! Functions to probe.

use memtrace_model::{Bytes, FileOffset, Signature, VirtOffset};

use super::functions::Candidate;
use crate::probe_site::Needs;

/// A function to probe.
#[derive(Clone, Copy, Debug)]
pub struct ProbedFunction {
    /// Address of the first instruction in terms of the symbols of the object.
    pub virt: VirtOffset,
    /// Length; 0 if it is not known.
    pub size: Bytes,
    /// File offset of the first instruction.
    pub file_offset: FileOffset,
    /// Registers that its probe reads.
    pub needs: Needs,
    /// It frees the block in its first argument, and calls no other function that frees blocks.
    pub frees_block: bool,
    /// Signature, if its result sites are looked for.
    pub signature: Option<Signature>,
    /// It may throw an exception.
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

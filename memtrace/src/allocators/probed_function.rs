//! Functions to probe.

use super::functions::Candidate;
use crate::model::{Bytes, FileOffset, Signature, VirtOffset};
use crate::probe_site::Needs;

/// A function to probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbedFunction {
    /// Address of the first instruction in terms of the symbols of the object.
    pub(crate) virt: VirtOffset,
    /// Length; 0 if it is not known.
    pub(crate) size: Bytes,
    /// File offset of the first instruction.
    pub(crate) file_offset: FileOffset,
    /// Registers that its probe reads.
    pub(crate) needs: Needs,
    /// It frees the block in its first argument, and calls no other function that frees blocks.
    pub(crate) frees_block: bool,
    /// Signature, if its result sites are looked for.
    pub(crate) signature: Option<Signature>,
    /// It may throw an exception.
    pub(crate) throws: bool,
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

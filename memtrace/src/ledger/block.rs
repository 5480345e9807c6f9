//! A live block.

use super::address_table::Addressed;
use crate::model::{AbsAddr, Bytes, Tick};

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) address: AbsAddr,
    pub(super) size: Bytes,
    /// Index of the stack in the image's totals.
    pub(super) stack: u32,
    pub(super) tick: Tick,
}

const _: () = assert!(size_of::<Block>() == 24);

impl Addressed for Block {
    fn address(&self) -> AbsAddr {
        self.address
    }
}

//! Search for jumps of other code into a function.

use crate::elf::{Elf, ElfError, Source};
use crate::probe_site::{Window, window};

/// Reach of a short branch in bytes: a signed byte from its end, and its own two bytes.
const SHORT_BRANCH_REACH: u64 = 130;
/// Maximum size, in bytes, of the code that is searched for jumps into a function.
pub(crate) const MAX_CODE: u64 = 1 << 28;
/// Maximum length of an instruction in bytes.
pub(super) const MAX_INSTRUCTION: u64 = 15;

/// Returns true if the bytes at `from` are a jump into `window`. Decodes from some bytes before `from` on, to see
/// whether an instruction begins there. Also returns true if the code cannot be read.
pub(crate) fn is_jump_into<S: Source>(elf: &Elf<S>, window: Window, from: u64) -> bool {
    let code = elf.code(from.saturating_sub(window::PRELUDE), from.saturating_add(MAX_INSTRUCTION));
    code.map_or(true, |(address, bytes)| window::jump_into(elf.machine(), &bytes, address, window, |_| true).is_some())
}

/// Returns the address of a short branch into `window`. The branch is just before `entry` or just after `end`. Branches at
/// addresses that `is_other` rejects are ignored.
pub(crate) fn near_jump_into<S: Source>(
    elf: &Elf<S>,
    entry: u64,
    end: u64,
    window: Window,
    is_other: impl Fn(u64) -> bool,
) -> Result<Option<u64>, ElfError> {
    let before = (entry.saturating_sub(SHORT_BRANCH_REACH + window::PRELUDE), entry);
    // Decoding starts inside the function, so that at the end it has found the boundaries of the instructions.
    let after = (end.saturating_sub(window::PRELUDE).max(entry), end.saturating_add(SHORT_BRANCH_REACH));
    for (first, last) in [before, after] {
        let (address, bytes) = elf.code(first, last)?;
        if let Some(from) = window::jump_into(elf.machine(), &bytes, address, window, &is_other) {
            return Ok(Some(from));
        }
    }
    Ok(None)
}

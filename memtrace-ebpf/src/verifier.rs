//! Inline assembly that keeps the compiler from code that the verifier refuses.

use core::arch::asm;

/// Returns the smaller of `value` and `LIMIT`.
///
/// The compiler may compare one copy of a number and use another copy from the stack. The verifier of Linux 6.1 does
/// not know that the copies are equal, and treats the copy from the stack as unbounded.
#[inline(always)]
pub fn clamp<const LIMIT: u64>(value: u64) -> u64 {
    let mut value = value;
    // SAFETY: the instructions change only the register.
    unsafe {
        asm!(
            "if {value} <= {limit} goto +1",
            "{value} = {limit}",
            value = inout(reg) value,
            limit = const LIMIT,
            options(pure, nomem, nostack)
        );
    }
    value
}

/// Returns `argument` unchanged. The compiler cannot look through this function.
///
/// The compiler would merge the reads of two arguments on either side of a branch into one read at a computed offset,
/// which the verifier refuses for a context.
#[inline(always)]
pub fn keep_separate(mut argument: u64) -> u64 {
    // SAFETY: the instruction leaves the register unchanged.
    unsafe { asm!("{argument} |= 0", argument = inout(reg) argument) };
    argument
}

//! Code that the compiler must leave in a form that the verifier accepts.

use core::arch::asm;

/// Returns the smaller of `value` and `LIMIT`.
///
/// The compiler may compare one copy of a number and use another one from the stack. The verifier of Linux 6.1 does not
/// see that they are equal, and takes the number for unlimited.
#[inline(always)]
pub fn clamp<const LIMIT: u64>(value: u64) -> u64 {
    let mut value = value;
    // SAFETY: the instructions touch nothing but the register.
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

/// Returns `argument` unchanged, opaque to the compiler.
///
/// The compiler would merge the reads of two arguments on either side of a branch into one read at a computed offset,
/// which the verifier refuses for a context.
#[inline(always)]
pub fn keep_separate(mut argument: u64) -> u64 {
    // SAFETY: the instruction changes nothing.
    unsafe { asm!("{argument} |= 0", argument = inout(reg) argument) };
    argument
}

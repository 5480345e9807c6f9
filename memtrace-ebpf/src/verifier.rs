//! Limits that the verifier sees.
//!
//! The compiler may compare one copy of a number and go on with another, which it had put aside on the stack. The verifier
//! of Linux 6.1 does not see that they are the same, and finds the number unlimited.

use core::arch::asm;

/// The smaller of `value` and `LIMIT`; the number that is compared is the one that is given back.
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

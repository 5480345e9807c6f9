//! Conditions of the conditional jumps of x86-64.

/// Bits of the flags register (Intel SDM, volume 1, 3.4.3).
mod flag {
    pub(super) const CARRY: u64 = 1;
    pub(super) const PARITY: u64 = 1 << 2;
    pub(super) const ZERO: u64 = 1 << 6;
    pub(super) const SIGN: u64 = 1 << 7;
    pub(super) const OVERFLOW: u64 = 1 << 11;
}

/// Returns true if a conditional jump is taken. `condition`: the lowest four bits of its opcode (Intel SDM, volume 1,
/// appendix B). `flags`: content of the flags register before the jump.
#[inline(always)]
#[must_use]
pub const fn is_taken(condition: u32, flags: u64) -> bool {
    let is_less = (flags & flag::SIGN != 0) != (flags & flag::OVERFLOW != 0);
    let holds = match condition >> 1 & 7 {
        0 => flags & flag::OVERFLOW != 0,
        1 => flags & flag::CARRY != 0,
        2 => flags & flag::ZERO != 0,
        3 => flags & (flag::CARRY | flag::ZERO) != 0,
        4 => flags & flag::SIGN != 0,
        5 => flags & flag::PARITY != 0,
        6 => is_less,
        _ => is_less || flags & flag::ZERO != 0,
    };
    // The lowest bit negates the condition.
    holds != (condition & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::flag::{CARRY, OVERFLOW, PARITY, SIGN, ZERO};
    use super::is_taken;

    #[test]
    fn each_condition_is_the_one_of_its_opcode() {
        // Flags that take the jump, and flags that do not: jo, jb, je, jbe, js, jp, jl and jle.
        let cases: [(&[u64], &[u64]); 8] = [
            (&[OVERFLOW], &[0, CARRY, ZERO, SIGN, PARITY]),
            (&[CARRY], &[0, ZERO, SIGN, OVERFLOW]),
            (&[ZERO], &[0, CARRY, SIGN, OVERFLOW]),
            (&[CARRY, ZERO, CARRY | ZERO], &[0, SIGN, OVERFLOW]),
            (&[SIGN], &[0, CARRY, ZERO, OVERFLOW]),
            (&[PARITY], &[0, CARRY, ZERO, SIGN, OVERFLOW]),
            (&[SIGN, OVERFLOW], &[0, SIGN | OVERFLOW, ZERO, CARRY]),
            (&[SIGN, OVERFLOW, ZERO, SIGN | OVERFLOW | ZERO], &[0, SIGN | OVERFLOW, CARRY]),
        ];
        for (number, (taken, other)) in (0..).map(|number| 2 * number).zip(cases) {
            assert!(taken.iter().all(|&flags| is_taken(number, flags) && !is_taken(number + 1, flags)), "{number}");
            assert!(other.iter().all(|&flags| !is_taken(number, flags) && is_taken(number + 1, flags)), "{number}");
        }
    }
}

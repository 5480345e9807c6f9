//! BPF cookie of probes inside allocating functions, at instructions with the block or the size in a register.

use super::Cookie;

/// Locations of the block, the size and the caller's registers at an instruction. The upper half is as in [`Cookie`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultCookie(pub u64);

/// Register number that means: no register has the size.
const NO_SIZE: u64 = 0x1f;

const SIZE_SHIFT: u32 = 4;
const LOWERED_SHIFT: u32 = 9;
const SAVED_SHIFT: u32 = 14;
const SAVED_BITS: u32 = 3;

impl ResultCookie {
    /// Number of registers that a called function preserves, except for the stack pointer.
    pub const PRESERVED: usize = 6;

    /// DWARF numbers of the preserved registers: rbx, rbp, r12 to r15 (System V ABI, AMD64 supplement, figure 3.36).
    pub const PRESERVED_NUMBERS: [usize; Self::PRESERVED] = [3, 6, 12, 13, 14, 15];

    /// Maximum distance in words from the stack pointer up to its value at the entry of the function.
    pub const MAX_LOWERED: u64 = 31;

    /// Maximum distance in words from the return address down to a saved register.
    pub const MAX_SAVED: u8 = 7;

    /// Returns the cookie of an instruction. `block` and `size` are the DWARF numbers of the registers that hold the
    /// block and the size. `lowered` is the number of words from the stack pointer up to its value at the entry of the
    /// function. `saved` has an entry for each preserved register: the number of words from the return address down to the
    /// saved value of the caller, or 0 if the register is unchanged.
    #[must_use]
    pub const fn new(block: u8, size: Option<u8>, lowered: u64, saved: [u8; Self::PRESERVED]) -> Self {
        let size = match size {
            Some(size) => size as u64,
            None => NO_SIZE,
        };
        let mut bits = block as u64 & 0xf | size << SIZE_SHIFT | (lowered & Self::MAX_LOWERED) << LOWERED_SHIFT;
        let mut index = 0;
        while index < Self::PRESERVED {
            bits |= (saved[index] as u64 & 7) << (SAVED_SHIFT + SAVED_BITS * index as u32);
            index += 1;
        }
        Self(bits)
    }

    /// Returns the cookie with the upper half of another one.
    #[must_use]
    pub const fn with_upper_half(self, cookie: Cookie) -> Self {
        Self(self.0 | cookie.0 >> Cookie::ALLOCATOR_SHIFT << Cookie::ALLOCATOR_SHIFT)
    }

    /// Returns the DWARF number of the register with the block.
    #[inline(always)]
    #[must_use]
    pub const fn block(self) -> usize {
        (self.0 & 0xf) as usize
    }

    /// Returns the DWARF number of the register with the size, if a register has it.
    #[inline(always)]
    #[must_use]
    pub const fn size(self) -> Option<usize> {
        match self.0 >> SIZE_SHIFT & NO_SIZE {
            NO_SIZE => None,
            number => Some(number as usize),
        }
    }

    /// Returns the number of bytes from the stack pointer up to its value at the entry of the function.
    #[inline(always)]
    #[must_use]
    pub const fn lowered(self) -> u64 {
        (self.0 >> LOWERED_SHIFT & Self::MAX_LOWERED) * 8
    }

    /// Returns the number of words from the return address down to the saved value of a preserved register; 0 if the
    /// register is unchanged. `place` is the index of the register in [`Self::PRESERVED_NUMBERS`].
    #[inline(always)]
    #[must_use]
    pub const fn saved(self, place: usize) -> usize {
        (self.0 >> (SAVED_SHIFT + SAVED_BITS * place as u32) & 7) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_apart() {
        let cookie = ResultCookie::new(15, Some(14), 31, [1, 2, 3, 4, 5, 7]);
        assert_eq!((cookie.block(), cookie.size(), cookie.lowered()), (15, Some(14), 248));
        assert_eq!([0, 1, 2, 3, 4, 5].map(|place| cookie.saved(place)), [1, 2, 3, 4, 5, 7]);
        let without = ResultCookie::new(0, None, 0, [0; 6]).with_upper_half(Cookie(7).with_allocator(9).with_sizes());
        assert_eq!((without.block(), without.size(), without.lowered(), without.saved(5)), (0, None, 0, 0));
        assert_eq!(without.0 >> Cookie::ALLOCATOR_SHIFT, 9 | 1 << 31);
    }
}

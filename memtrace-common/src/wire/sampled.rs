//! Samples that targets take of their own allocations, and the functions and USDT probes that report them.

use core::mem::{offset_of, size_of};

use super::Header;

/// Maximum number of functions and USDT probes of a run that report samples.
pub const MAX_SAMPLED_FUNCTIONS: usize = 512;

/// Maximum number of threads that have drawn a size and not reported it yet.
pub const MAX_DRAWN_SIZES: usize = 4096;

/// A target has reported a block that it has sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SampledAllocRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
    /// Address of the block, or of a structure of the allocator that belongs to the block until it is freed.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// Id of the stack, as in an [`super::AllocRecord`].
    pub stack: u64,
    /// Size in bytes that the sampler used to draw the block. If `interval` is 0, number of bytes that the block stands
    /// for.
    pub drawn: u64,
    /// Sampling interval and level of thinning: an [`IntervalWord`].
    pub interval: u64,
    /// Id that user space gave the allocator; 0 if it is not known.
    pub allocator: u32,
    /// Padding: zero.
    pub reserved: u32,
}

/// Sampling interval of a block, with the level of thinning at its sample in the upper bits ([`crate::thinning`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalWord(pub u64);

impl IntervalWord {
    const SHIFT: u32 = 56;

    /// Returns the mean number of bytes between two samples; 0 if the target has weighted the block.
    #[inline(always)]
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 & ((1 << Self::SHIFT) - 1)
    }

    /// Returns the level of thinning; 0 if the process is not patched.
    #[must_use]
    pub const fn level(self) -> u8 {
        (self.0 >> Self::SHIFT) as u8
    }
}

/// Place of a value when a function or a USDT probe is hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ValuePlace {
    /// Kind of the place: a constant of [`value_place`].
    pub kind: u8,
    /// DWARF number of the register.
    pub register: u8,
    /// Number of upper bits that do not belong to the value: 64 minus the bits of the value. It is below 64.
    pub unused_bits: u8,
    /// 1 if the value is signed, else 0.
    pub signed: u8,
    /// Padding: zero.
    pub reserved: u32,
    /// Number that is added to the register, or the constant.
    pub offset: i64,
}

impl ValuePlace {
    /// Returns the value in the lower bits of `word`, with its sign. The bits above the value are ignored.
    #[inline(always)]
    #[must_use]
    pub const fn value_in(self, word: u64) -> u64 {
        let shift = (self.unused_bits & 63) as u32;
        let shifted = word << shift;
        if self.signed != 0 { (shifted.cast_signed() >> shift).cast_unsigned() } else { shifted >> shift }
    }
}

/// Kinds of places of values.
pub mod value_place {
    /// There is no value.
    pub const NONE: u8 = 0;
    /// The value is in a register.
    pub const REGISTER: u8 = 1;
    /// The value is in memory, at the address in a register plus an offset.
    pub const MEMORY: u8 = 2;
    /// The value is a constant.
    pub const CONSTANT: u8 = 3;
    /// The value is the size that the thread has drawn last.
    pub const DRAWN: u8 = 4;
}

/// Kinds of sampling intervals.
pub mod interval_kind {
    /// The target has weighted the block.
    pub const WEIGHTED: u32 = 0;
    /// A variable has the interval in bytes.
    pub const BYTES: u32 = 1;
    /// A variable has the binary logarithm of the interval.
    pub const BINARY_LOGARITHM: u32 = 2;
    /// A word on the stack has the interval and the level of thinning, as an [`IntervalWord`](super::IntervalWord).
    pub const STACK: u32 = 3;
}

/// Function or USDT probe that reports samples. User space writes it before it attaches the probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SampledFunction {
    /// Address of the block, or of a structure that belongs to it.
    pub address: ValuePlace,
    /// Size of the block.
    pub size: ValuePlace,
    /// Size that the sampler uses to draw the block; for [`interval_kind::WEIGHTED`], number of bytes that the block stands for.
    pub drawn: ValuePlace,
    /// Number of bytes that the sampler adds to the drawn size of each block.
    pub extra: u32,
    /// Kind of the sampling interval: a constant of [`interval_kind`].
    pub interval_kind: u32,
    /// Bytes from the probed instruction to the variable with the sampling interval; for [`interval_kind::STACK`], bytes from the
    /// stack pointer to the word with the interval.
    pub interval: i64,
    /// Bytes from the probed instruction to the list of sampled blocks. A call whose first argument is another list reports no
    /// sample. The value is 0 if all calls report a sample.
    pub list: i64,
    /// Id that user space gave the allocator; 0 if records do not name allocators.
    pub allocator: u32,
    /// Padding: zero.
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<SampledAllocRecord>() == 64);
    assert!(offset_of!(SampledAllocRecord, address) == 16);
    assert!(offset_of!(SampledAllocRecord, size) == 24);
    assert!(offset_of!(SampledAllocRecord, stack) == 32);
    assert!(offset_of!(SampledAllocRecord, drawn) == 40);
    assert!(offset_of!(SampledAllocRecord, interval) == 48);
    assert!(offset_of!(SampledAllocRecord, allocator) == 56);
    assert!(size_of::<ValuePlace>() == 16);
    assert!(offset_of!(ValuePlace, offset) == 8);
    assert!(size_of::<SampledFunction>() == 80);
    assert!(offset_of!(SampledFunction, extra) == 48);
    assert!(offset_of!(SampledFunction, interval) == 56);
    assert!(offset_of!(SampledFunction, list) == 64);
    assert!(offset_of!(SampledFunction, allocator) == 72);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_width_and_sign() {
        let place = |bits: u8, signed| ValuePlace { unused_bits: 64 - bits, signed, ..ValuePlace::default() };
        let value = |bits, signed, word| place(bits, signed).value_in(word);
        assert_eq!(value(64, 0, 0xffff_ffff_ffff_fffe), 0xffff_ffff_ffff_fffe);
        assert_eq!(value(32, 0, 0x1234_5678_ffff_fffe), 0xffff_fffe);
        assert_eq!(value(32, 1, 0x1234_5678_ffff_fffe), 0xffff_ffff_ffff_fffe);
        assert_eq!(value(32, 1, 0x1234_5678_7fff_fffe), 0x7fff_fffe);
        assert_eq!(value(16, 0, 0xabcd), 0xabcd);
        assert_eq!(value(8, 1, 0x1280), 0xffff_ffff_ffff_ff80);
    }

    #[test]
    fn interval_words_have_a_level_in_the_upper_byte() {
        let word = IntervalWord(0x0f00_0000_0008_0000);
        assert_eq!((word.bytes(), word.level()), (512 << 10, 15));
        let most = IntervalWord(u64::MAX);
        assert_eq!((most.bytes(), most.level()), ((1 << 56) - 1, 255));
    }

    #[test]
    fn any_width_is_accepted() {
        // No shift overflows, even if the number of bits is impossible.
        for unused_bits in 0..=u8::MAX {
            let place = ValuePlace { unused_bits, signed: 1, ..ValuePlace::default() };
            assert_eq!(place.value_in(0), 0);
        }
    }
}

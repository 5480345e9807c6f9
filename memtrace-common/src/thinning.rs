//! Thinning of samples: the table of sampled blocks in a patched process has a limit.
//!
//! Each time that the table is full, the process raises its level. A block that was sampled at a lower level stays in the sample
//! with the probability 1/2 at each further level. If it stays, it stands for twice as many bytes and blocks as before. A hash of
//! its address decides. So the process and the ledger remove the same blocks, without a message for each block.

/// Highest level of a process. At this level, a full table takes no further blocks.
pub const MAX_THINNING: u8 = 15;

/// Number of the highest bits of a hash that select the blocks: one bit for each level.
const DECISIVE_BITS: u32 = 16;

/// Returns the hash of the address of a block. `salt`: random number of the process.
#[must_use]
pub const fn thinning_hash(address: u64, salt: u64) -> u64 {
    let hash = (address ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash ^ (hash >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// Returns true if a block that was sampled at the level `from` is no longer in the sample at the level `to`: its hash has a
/// set bit for one of the levels in between.
#[must_use]
pub const fn is_thinned(address: u64, salt: u64, from: u8, to: u8) -> bool {
    let bits = thinning_hash(address, salt) >> (u64::BITS - DECISIVE_BITS);
    bits & bits_below(to) & !bits_below(from) != 0
}

/// Returns the bits of the levels below `level`. A process can report any level, also one above the maximum.
const fn bits_below(level: u8) -> u64 {
    let all = (1 << DECISIVE_BITS) - 1;
    if level as u32 >= DECISIVE_BITS { all } else { (1 << level) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: u64 = 0x0123_4567_89ab_cdef;

    /// Addresses as malloc returns them.
    fn addresses(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(|block| 0x7f12_3400_0010 + block * 48)
    }

    #[test]
    fn hashes_are_the_products_modulo_two_to_the_64() {
        // Computed with integers of any size.
        assert_eq!(thinning_hash(0, 0), 0);
        assert_eq!(thinning_hash(1, 0), 0x17fb_89ee_8a31_3dc4);
        assert_eq!(thinning_hash(0x7f12_3400_0010, SALT), 0x9e9c_a1e7_3ae4_5ce6);
        assert_eq!(thinning_hash(0x00ff_ffff_ffff_fff0, u64::MAX), 0x20df_94f3_0e34_407f);
    }

    #[test]
    fn half_of_the_blocks_stay_at_each_level() {
        let mut expected = 20_000;
        for level in 1..=5 {
            expected /= 2;
            let stay = addresses(20_000).filter(|&block| !is_thinned(block, SALT, 0, level)).count();
            // The standard deviation is at most 71.
            assert!(stay.abs_diff(expected) < 250, "{stay} at level {level}");
        }
    }

    #[test]
    fn levels_in_steps_leave_out_the_same_blocks() {
        for block in addresses(1000) {
            for [from, between, to] in [[0, 1, 2], [0, 7, 15], [3, 4, 9], [14, 15, 15]] {
                let in_steps = is_thinned(block, SALT, from, between) || is_thinned(block, SALT, between, to);
                assert_eq!(in_steps, is_thinned(block, SALT, from, to));
            }
        }
    }

    #[test]
    fn no_block_is_left_out_at_its_own_level_or_below() {
        for block in addresses(1000) {
            for level in 0..=MAX_THINNING {
                assert!(!is_thinned(block, SALT, level, level) && !is_thinned(block, SALT, level, 0));
            }
        }
    }

    #[test]
    fn any_level_is_accepted() {
        // The hash of this address has a bit for the highest level.
        let block = 0x7f12_3400_0010;
        assert!(is_thinned(block, SALT, MAX_THINNING, u8::MAX) && is_thinned(block, SALT, 0, u8::MAX));
        assert!(!is_thinned(block, SALT, u8::MAX, u8::MAX) && !is_thinned(block, SALT, u8::MAX, 0));
    }
}

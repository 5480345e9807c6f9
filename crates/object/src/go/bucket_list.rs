//! List of the buckets in the memory of a Go program (`bucket`, runtime/mprof.go).
//!
//! New buckets are added at the front. A bucket is never removed or changed, except for its numbers.

use std::ops::Range;

use memtrace_model::AbsAddr;

use super::profile_error::{BucketFault, ProfileError};
use super::target_memory::{Blocks, TargetMemory};
use super::version::ProfileLayout;

/// Maximum number of buckets. Large servers have some ten thousand.
const MAX_BUCKETS: usize = 1_000_000;
/// Maximum number of frames of the new buckets of a reading (128 MiB).
const MAX_FRAMES: usize = 1 << 24;
/// Number of frames that are permitted for each further bucket that the list may have. Most stacks have less than 32 frames.
const FRAMES: usize = 64;
/// Number of frames that are permitted in any case.
const LEAST_FRAMES: usize = 1 << 16;
/// Maximum size of a block in bytes: more than an address space.
const MAX_SIZE: u64 = (1 << 48) - 1;
/// Addresses in user space. The first page is not mapped.
const USER_SPACE: Range<u64> = 4096..1 << 56;
/// Number of words before the stack: next of the hash chain, next of the list, type, hash, size, number of frames.
const HEADER: usize = 6;
/// Type of a bucket of the heap profile (`memProfile`).
const HEAP: u64 = 1;

/// Number of bits of the depth of a stack.
const DEPTH_BITS: u32 = u16::BITS;

/// A bucket of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListedBucket {
    pub(super) address: u64,
    /// Size of each block in bytes, less than 2^48, and in the low bits the number of frames of the stack. So a bucket takes only
    /// two words.
    size_and_depth: u64,
}

/// Buckets that were read, the oldest first.
#[derive(Debug, Default)]
pub(super) struct BucketList(Vec<ListedBucket>);

impl ListedBucket {
    const fn new(address: u64, size: u64, depth: u16) -> Self {
        Self { address, size_and_depth: (size << DEPTH_BITS) | depth as u64 }
    }

    /// Returns the size of each block in bytes.
    pub(super) const fn size(&self) -> u64 {
        self.size_and_depth >> DEPTH_BITS
    }

    const fn depth(&self) -> u64 {
        self.size_and_depth & u16::MAX as u64
    }

    /// Returns the address of the bucket's numbers. The address and the depth were checked, so that the sum does not overflow.
    pub(super) const fn record(&self) -> u64 {
        self.address + 8 * (HEADER as u64 + self.depth())
    }
}

impl BucketList {
    pub(super) fn buckets(&self) -> &[ListedBucket] {
        &self.0
    }

    /// Forgets all buckets but the oldest `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        self.0.truncate(count);
    }

    /// Returns the address of the newest bucket that was read; 0 if there is none.
    pub(super) fn newest(&self) -> u64 {
        self.0.last().map_or(0, |bucket| bucket.address)
    }

    /// Reads the buckets from `head`, the newest one, to the newest one of the last reading. `most`: maximum number of all
    /// buckets, old and new. Returns what `convert` returns for the stack of each new bucket, the oldest first. After an error,
    /// the list is as before.
    pub(super) fn extend<M: TargetMemory, T>(
        &mut self,
        blocks: &mut Blocks<'_, M>,
        head: u64,
        layout: ProfileLayout,
        most: usize,
        mut convert: impl FnMut(&[u64]) -> T,
    ) -> Result<Vec<T>, ProfileError> {
        let (mut new, mut stacks, mut words) = (Vec::new(), Vec::new(), Vec::new());
        let (mut cycle, mut frames) = (CycleDetector::default(), 0);
        let most = most.min(MAX_BUCKETS);
        let most_frames = most.saturating_sub(self.0.len()).saturating_mul(FRAMES).clamp(LEAST_FRAMES, MAX_FRAMES);
        let (mut address, newest) = (head, self.newest());
        while address != newest {
            if address == 0 {
                return Err(ProfileError::LostBuckets);
            }
            if self.0.len() + new.len() >= most {
                return Err(ProfileError::TooManyBuckets(most));
            }
            if cycle.closes(address) {
                return Err(ProfileError::Cycle);
            }
            let fault = |fault| ProfileError::Bucket { address: AbsAddr(address), fault };
            if !address.is_multiple_of(8) || !USER_SPACE.contains(&address) {
                return Err(fault(BucketFault::Address));
            }
            words.clear();
            blocks.words(address, HEADER, &mut words)?;
            let [_, next, kind, hash, size, depth] = words[..] else { return Err(fault(BucketFault::Type)) };
            let depth = check_header(kind, size, depth, layout).map_err(fault)?;
            frames += usize::from(depth);
            if frames > most_frames {
                return Err(ProfileError::TooManyFrames(most_frames));
            }
            words.clear();
            blocks.words(address + 8 * HEADER as u64, depth.into(), &mut words)?;
            check_stack(&words, size, hash).map_err(fault)?;
            new.push(ListedBucket::new(address, size, depth));
            stacks.push(convert(&words));
            address = next;
        }
        self.0.reserve_exact(new.len());
        self.0.extend(new.into_iter().rev());
        stacks.reverse();
        Ok(stacks)
    }
}

/// Returns the number of frames.
fn check_header(kind: u64, size: u64, depth: u64, layout: ProfileLayout) -> Result<u16, BucketFault> {
    if kind != HEAP {
        return Err(BucketFault::Type);
    }
    if !(1..=MAX_SIZE).contains(&size) {
        return Err(BucketFault::Size);
    }
    u16::try_from(depth).ok().filter(|depth| *depth <= layout.max_depth).ok_or(BucketFault::Depth)
}

fn check_stack(stack: &[u64], size: u64, hash: u64) -> Result<(), BucketFault> {
    if !stack.iter().all(|address| USER_SPACE.contains(address)) {
        return Err(BucketFault::Frame);
    }
    if hash == hash_of(stack, size) { Ok(()) } else { Err(BucketFault::Hash) }
}

/// Returns the hash of a bucket (`stkbucket`, runtime/mprof.go).
pub(super) fn hash_of(stack: &[u64], size: u64) -> u64 {
    let add = |hash: u64, number: u64| {
        let hash = hash.wrapping_add(number);
        let hash = hash.wrapping_add(hash << 10);
        hash ^ (hash >> 6)
    };
    let hash = stack.iter().chain([&size]).fold(0, |hash, &number| add(hash, number));
    let hash = hash.wrapping_add(hash << 3);
    hash ^ (hash >> 11)
}

/// Detector of a cycle in a list (Brent, "An Improved Monte Carlo Factorization Algorithm", 1980).
#[derive(Debug, Default)]
struct CycleDetector {
    /// An address that has passed. A later address replaces it after twice as many addresses as the last time.
    mark: u64,
    passed: u64,
    limit: u64,
}

impl CycleDetector {
    /// Returns true if `address` is the mark, which shows that the list has a cycle. A cycle is found only after some rounds.
    const fn closes(&mut self, address: u64) -> bool {
        if address == self.mark {
            return true;
        }
        self.passed += 1;
        if self.passed > self.limit {
            self.limit = 2 * self.passed;
            self.passed = 0;
            self.mark = address;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_of_any_length_are_noticed() {
        for length in [1, 2, 3, 10, 1000] {
            for start in [0, 1, 7, 500] {
                let mut cycle = CycleDetector::default();
                let list =
                    (0..).map(|step| if step < start { 8 + 8 * step } else { 80_000 + 8 * ((step - start) % length) });
                let steps = list.take(10 * (start + length) as usize).position(|address| cycle.closes(address));
                assert!(steps.is_some_and(|steps| steps >= length as usize), "{length} {start}: {steps:?}");
            }
        }
        let mut cycle = CycleDetector::default();
        assert!((1..100_000).all(|address| !cycle.closes(8 * address)));
    }
}

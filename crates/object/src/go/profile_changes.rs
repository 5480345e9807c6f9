//! Changes between two readings of a heap profile.

use memtrace_model::{Bytes, SampleSum};

use super::heap_profile::{Bucket, HeapProfile};

/// Changes of a heap profile. It keeps 16 bytes for each bucket, and 8 more for each inherited one.
#[derive(Debug, Default)]
pub struct ProfileChanges {
    buckets: Vec<Applied>,
    /// Sampling rates when buckets were first read, each with the first bucket. A program that changes its rate does so at its
    /// start.
    rates: Vec<(usize, Bytes)>,
    /// Number of allocated blocks of each bucket that the program has inherited.
    inherited: Vec<u64>,
    /// Number of collections after which the runtime has published all samples that were read before their publication.
    ahead_until: Option<u32>,
}

/// Numbers of a bucket that the changes returned so far add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Applied {
    allocs: u64,
    frees: u64,
}

/// Changes since the last reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileDifference {
    /// Buckets that have changed, in their order.
    pub changes: Vec<BucketChange>,
    /// Number of buckets whose numbers have decreased. They are not in `changes`: the numbers of a valid profile only grow.
    pub decreased: u64,
}

/// Change of a bucket. With all changes before, it adds up to the estimate from all samples of the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketChange {
    /// Index of the bucket in [`HeapProfile::buckets`].
    pub bucket: usize,
    /// Allocated blocks that the new samples stand for.
    pub alloc: SampleSum,
    /// Freed blocks that the new samples stand for.
    pub free: SampleSum,
}

impl ProfileChanges {
    /// Number of collections after which a sample is published.
    const DELAY: u32 = 2;

    /// Returns the changes from the last reading to `profile`, or all samples for the first one.
    pub fn apply(&mut self, profile: &HeapProfile) -> ProfileDifference {
        let mut difference = ProfileDifference::default();
        self.add_new(profile);
        let is_ahead = profile.is_published && self.is_ahead(profile.collections);
        let mut rates = Rates { left: &self.rates, rate: profile.rate };
        for (index, (applied, bucket)) in self.buckets.iter_mut().zip(&profile.buckets).enumerate() {
            let rate = rates.of(index);
            let bucket = own(bucket, self.inherited.get(index).copied().unwrap_or(0));
            let decreases = bucket.allocs < applied.allocs || bucket.frees < applied.frees;
            if decreases && !is_ahead {
                difference.decreased += 1;
                continue;
            }
            // Samples that were read before their publication still count, so their publication is no new change.
            let allocs = bucket.allocs.max(applied.allocs);
            let frees = bucket.frees.max(applied.frees);
            if (allocs, frees) != (applied.allocs, applied.frees) {
                let sum = |samples| sum(samples, &bucket, rate, index);
                let (alloc, free) = (sum(allocs) - sum(applied.allocs), sum(frees) - sum(applied.frees));
                difference.changes.push(BucketChange { bucket: index, alloc, free });
                (applied.allocs, applied.frees) = (allocs, frees);
            }
        }
        if !profile.is_published {
            self.ahead_until = Some(profile.collections.saturating_add(Self::DELAY));
        }
        difference
    }

    /// Records that the blocks in `profile` belong to another process: the program is the child of a fork, and has copies of them.
    /// `profile` must be the first one, with all samples. The first frees of a bucket count as frees of inherited
    /// blocks.
    pub fn inherit(&mut self, profile: &HeapProfile) {
        self.inherited = profile.buckets.iter().map(|bucket| bucket.allocs).collect();
    }

    /// Makes the next changes contain all samples, without the blocks that the program has inherited.
    pub fn restart(&mut self) {
        *self = Self { inherited: std::mem::take(&mut self.inherited), ..Self::default() };
    }

    /// Adds the buckets of `profile` that are new.
    fn add_new(&mut self, profile: &HeapProfile) {
        let (known, count) = (self.buckets.len(), profile.buckets.len());
        if count > known {
            self.buckets.reserve_exact(count - known);
            self.buckets.resize(count, Applied::default());
            if self.rates.last().is_none_or(|(_, rate)| *rate != profile.rate) {
                self.rates.push((known, profile.rate));
            }
        }
    }

    /// Returns true if some samples that were read are perhaps not published yet.
    fn is_ahead(&mut self, collections: u32) -> bool {
        self.ahead_until = self.ahead_until.filter(|until| collections < *until);
        self.ahead_until.is_some()
    }
}

/// Sampling rates of buckets. The caller asks for the buckets in order.
struct Rates<'a> {
    /// Rates of later buckets.
    left: &'a [(usize, Bytes)],
    rate: Bytes,
}

impl Rates<'_> {
    /// Returns the rate of the next bucket.
    fn of(&mut self, index: usize) -> Bytes {
        while let Some((&(first, rate), left)) = self.left.split_first()
            && first <= index
        {
            (self.rate, self.left) = (rate, left);
        }
        self.rate
    }
}

/// Returns a bucket without the blocks that the program has inherited. `inherited`: number of the inherited blocks.
const fn own(bucket: &Bucket, inherited: u64) -> Bucket {
    Bucket {
        size: bucket.size,
        allocs: bucket.allocs.saturating_sub(inherited),
        frees: bucket.frees.saturating_sub(inherited),
    }
}

/// Returns the estimate from a number of samples of a bucket. The bucket always rounds in the same direction, so that more samples
/// never have a smaller sum.
fn sum(samples: u64, bucket: &Bucket, rate: Bytes, index: usize) -> SampleSum {
    SampleSum::of_poisson(samples, bucket.size, rate, index as u64)
}

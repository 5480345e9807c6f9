//! Image of the reference model.

use memtrace_common::thinning::thinning_hash;
use memtrace_model::{Log2, Variance};

use super::*;

#[derive(Clone, Copy)]
pub(super) struct ReferenceBlock {
    pub(super) size: u64,
    pub(super) sample: Option<Sample>,
    /// Level of thinning of the sample.
    pub(super) level: u8,
    pub(super) key: StackKey,
    pub(super) tick: u32,
    pub(super) tid: Tid,
}

impl ReferenceBlock {
    /// Returns the bytes and blocks that the block stands for.
    pub(super) fn amount(&self) -> Amount {
        self.sample.map_or(Amount::one(Bytes(self.size)), |sample| sample.amount)
    }

    /// Returns the number of blocks that the block counts as in the limit of blocks.
    pub(super) fn blocks(&self) -> u64 {
        if self.sample.is_some() { 4 } else { 1 }
    }
}

/// Profile that the target keeps.
#[derive(Default)]
pub(super) struct ReferenceProfile {
    pub(super) readings: u32,
    pub(super) live: BTreeMap<StackKey, SampleSum>,
    pub(super) alloc: BTreeMap<StackKey, Vec<SampleSum>>,
}

#[derive(Default)]
pub(super) struct ReferenceImage {
    pub(super) live: BTreeMap<AbsAddr, ReferenceBlock>,
    /// Latest tentative frees: address and block, time of the free, and two flags. The first flag is true if the block was
    /// temporary, the second one if its free was unmatched.
    pub(super) tentative: BTreeMap<Tid, (AbsAddr, Option<ReferenceBlock>, Tick, bool, bool)>,
    pub(super) alloc: BTreeMap<StackKey, Amount>,
    pub(super) free: BTreeMap<StackKey, Amount>,
    pub(super) temporary: BTreeMap<StackKey, Amount>,
    /// Samples of all allocated blocks that are sampled.
    pub(super) samples: BTreeMap<StackKey, Vec<Sample>>,
    /// Stacks that have had samples.
    pub(super) sampled: BTreeSet<StackKey>,
    /// Level of thinning.
    pub(super) level: u8,
    salt: u64,
    /// Salt of the process when it was patched.
    pub(super) patched: Option<u64>,
    pub(super) profile: ReferenceProfile,
    /// Sizes of all allocated blocks in bytes, each with the number of blocks that it stands for.
    pub(super) sizes: BTreeMap<StackKey, Vec<(u64, u64)>>,
    /// Lifetimes of the freed blocks in ticks, each with the number of blocks that it stands for.
    pub(super) lifetimes: BTreeMap<StackKey, Vec<(u32, u64)>>,
    /// Stacks that arrived while the image ran.
    pub(super) stacks: BTreeMap<StackId, Stack>,
    pub(super) unmatched: u64,
    pub(super) repeated: u64,
    pub(super) unmatched_samples: u64,
    pub(super) merged: u64,
    pub(super) has_forgotten: bool,
    pub(super) peak: u64,
    pub(super) at_peak: BTreeMap<StackKey, u64>,
    /// True if the memory of the image has had an event.
    pub(super) is_open: bool,
    /// Process that has the memory, if this process shares the memory of another one and is listed. The flag is true if
    /// this process has events.
    pub(super) sharer: Option<(Pid, bool)>,
}

impl ReferenceImage {
    pub(super) fn live_by_stack(&self, counts: impl Fn(&ReferenceBlock) -> bool) -> BTreeMap<StackKey, Amount> {
        let mut sums = BTreeMap::new();
        for block in self.live.values().filter(|block| counts(block)) {
            *sums.entry(block.key).or_default() += block.amount();
        }
        sums
    }

    /// Returns the live amounts of blocks and of the profile.
    pub(super) fn all_live(&self) -> BTreeMap<StackKey, Amount> {
        let mut sums = self.live_by_stack(|_| true);
        for (key, live) in &self.profile.live {
            *sums.entry(*key).or_default() += live.amount;
        }
        sums
    }

    pub(super) fn recount_peak(&mut self) {
        let by_stack = self.all_live();
        let live: u64 = by_stack.values().map(|live| live.bytes.0).sum();
        if live > self.peak {
            self.peak = live;
            self.at_peak = by_stack.into_iter().map(|(id, live)| (id, live.bytes.0)).collect();
        }
    }

    /// Subtracts `free` from the profile's live amount of a stack. Returns the part of `free` beyond this amount.
    pub(super) fn free_profiled(&mut self, key: StackKey, free: SampleSum) -> SampleSum {
        let Some(live) = self.profile.live.get_mut(&key) else { return free };
        let [Amount { bytes, count }, has] = [free.amount, live.amount];
        if bytes <= has.bytes && count <= has.count && free.amount != has {
            *live -= free;
            *self.free.entry(key).or_default() += free.amount;
            return SampleSum::default();
        }
        // Nothing remains live, so no spread remains either.
        *self.free.entry(key).or_default() += has;
        let mut rest = free - std::mem::take(live);
        rest.amount =
            Amount { bytes: Bytes(bytes.0.saturating_sub(has.bytes.0)), count: count.saturating_sub(has.count) };
        rest
    }

    pub(super) fn free(&mut self, address: AbsAddr, tick: Tick) -> Option<ReferenceBlock> {
        let block = self.live.remove(&address)?;
        *self.free.entry(block.key).or_default() += block.amount();
        let lifetime = tick.0.saturating_sub(block.tick);
        self.lifetimes.entry(block.key).or_default().push((lifetime, block.amount().count));
        Some(block)
    }

    /// Raises the level of thinning.
    pub(super) fn thin(&mut self, level: u8, salt: u64) {
        if level == 0 {
            self.patched = Some(salt);
        }
        if level > self.level {
            (self.level, self.salt) = (level, salt);
            let addresses: Vec<_> = self.live.keys().copied().collect();
            addresses.into_iter().for_each(|address| self.thin_block(address));
        }
    }

    /// Thins the sample of a live block, if there is one, to the level of the image.
    pub(super) fn thin_block(&mut self, address: AbsAddr) {
        let Some(&block) = self.live.get(&address).filter(|block| block.level < self.level) else { return };
        let Some(mut sample) = block.sample else { return };
        self.leave_out(address);
        let hash = thinning_hash(address.0, self.salt);
        if (block.level..self.level).any(|level| hash >> (48 + level) & 1 == 1) {
            return;
        }
        for _ in block.level..self.level {
            let Sample { amount: Amount { bytes, count }, bytes_variance, count_variance } = sample;
            let variance = |variance: u128, product: u64| (4 * variance + 2 * u128::from(product)).min(1 << 63);
            sample = Sample {
                amount: Amount { bytes: Bytes(2 * bytes.0), count: 2 * count },
                bytes_variance: variance(bytes_variance, bytes.0 * block.size),
                count_variance: variance(count_variance, count),
            };
        }
        let block = ReferenceBlock { sample: Some(sample), level: self.level, ..block };
        *self.alloc.entry(block.key).or_default() += sample.amount;
        self.samples.entry(block.key).or_default().push(sample);
        self.sizes.entry(block.key).or_default().push((block.size, sample.amount.count));
        self.live.insert(address, block);
    }

    /// Removes a live sampled block, as if it had not been allocated.
    pub(super) fn leave_out(&mut self, address: AbsAddr) {
        let block = self.live.remove(&address).unwrap();
        let (sample, size) = (block.sample.unwrap(), (block.size, block.amount().count));
        *self.alloc.get_mut(&block.key).unwrap() -= sample.amount;
        let samples = self.samples.get_mut(&block.key).unwrap();
        samples.remove(samples.iter().position(|other| *other == sample).unwrap());
        let sizes = self.sizes.get_mut(&block.key).unwrap();
        sizes.remove(sizes.iter().position(|other| *other == size).unwrap());
    }

    /// Counts a block that is about to be freed, and returns true if it is temporary.
    pub(super) fn add_temporary(&mut self, address: AbsAddr, tid: Tid, is_last: bool) -> bool {
        let Some(block) = self.live.get(&address).filter(|block| is_last && block.tid == tid) else { return false };
        *self.temporary.entry(block.key).or_default() += block.amount();
        true
    }

    /// Returns the usage in reports, if reports list the image.
    pub(super) fn reported(&self, ended: Option<ImageEnd>, now: Tick, settings: &Settings) -> Option<ImageUsage> {
        let main = self.sharer.filter(|(_, has_events)| *has_events).map(|(main, _)| main);
        let has_own = if ended.is_none() { self.is_open } else { self.has_usage() };
        let own = if has_own {
            self.usage(ended, now, settings)
        } else {
            ImageUsage { ended, has_forgotten: self.has_forgotten, ..ImageUsage::default() }
        };
        (self.has_usage() || main.is_some()).then_some(ImageUsage { shares_memory_of: main, ..own })
    }

    fn usage(&self, ended: Option<ImageEnd>, now: Tick, settings: &Settings) -> ImageUsage {
        let age_of = |block: &ReferenceBlock| now.0.checked_sub(block.tick).map(|ticks| Tick(ticks).since_start());
        let counts = |block: &ReferenceBlock| settings.older.is_none_or(|older| age_of(block) >= Some(older));
        let everything = self.all_live();
        let held = match (ended, settings.older) {
            (Some(ImageEnd::Exec), _) => BTreeMap::new(),
            (_, None) => self.all_live(),
            // The blocks of a profile have no ages.
            (_, Some(_)) => self.live_by_stack(counts),
        };
        let (live, exit) = if ended.is_none() { (held, BTreeMap::new()) } else { (BTreeMap::new(), held) };
        let (unmatched_frees, repeated_frees, merged_stacks) = (self.unmatched, self.repeated, self.merged);
        let mut usage = ImageUsage {
            ended,
            unmatched_frees,
            repeated_frees,
            unmatched_samples: self.unmatched_samples,
            merged_stacks,
            has_forgotten: self.has_forgotten,
            ..ImageUsage::default()
        };
        let discarded = if ended == Some(ImageEnd::Exec) { everything } else { BTreeMap::new() };
        for (&id, &alloc) in &self.alloc {
            let of_stack = |amounts: &BTreeMap<StackKey, Amount>| amounts.get(&id).copied().unwrap_or_default();
            let at_peak = if settings.track_peak { self.at_peak.get(&id).copied().unwrap_or(0) } else { 0 };
            let mut numbers = Quantities::ZERO
                .with_amount(Quantity::LiveBytes, of_stack(&live))
                .with_amount(Quantity::ExitBytes, of_stack(&exit))
                .with_amount(Quantity::AllocBytes, alloc)
                .with_amount(Quantity::TemporaryBytes, of_stack(&self.temporary))
                .with_amount(Quantity::DiscardedBytes, of_stack(&discarded))
                .with_free(of_stack(&self.free));
            let allocated = self.samples.get(&id).into_iter().flatten().copied();
            allocated.for_each(|sample| add_sample(&mut numbers, OF_ALLOC, sample));
            let is_held = |block: &&ReferenceBlock| block.key == id && counts(block);
            if ended != Some(ImageEnd::Exec) {
                let held = self.live.values().filter(is_held).filter_map(|block| block.sample);
                held.for_each(|sample| add_sample(&mut numbers, OF_HELD, sample));
            }
            let profiled = self.profile.alloc.get(&id).into_iter().flatten();
            let alloc = profiled.fold(SampleSum::default(), |mut sum, one| {
                sum += *one;
                sum
            });
            let in_profile = ended != Some(ImageEnd::Exec) && settings.older.is_none();
            let held = self.profile.live.get(&id).copied().filter(|_| in_profile).unwrap_or_default();
            numbers += Quantities::ZERO.with_spreads(held.spread, alloc.spread);
            usage.total += numbers;
            let numbers = numbers.with(Quantity::AtPeakBytes, at_peak);
            if !numbers.is_zero() {
                usage.by_stack.insert(id, numbers);
            }
        }
        if settings.lifetimes {
            let ages = self.live.values().filter(|_| ended != Some(ImageEnd::Exec));
            let ages = ages.map(|block| (block.key, now.0.saturating_sub(block.tick), block.amount().count));
            usage.histograms = self.histograms(ages.collect());
        }
        usage.peak = settings.track_peak.then_some(Bytes(self.peak));
        usage
    }

    fn histograms(&self, ages: Vec<(StackKey, u32, u64)>) -> BTreeMap<StackKey, BlockHistograms> {
        let mut counts: BTreeMap<StackKey, Vec<(BlockQuantity, u32, u64)>> = BTreeMap::new();
        // The logarithm is the number of times that the value can be halved.
        let log2 = |value: u64| (0..64).rev().find(|log2| value >> log2 != 0).unwrap_or(0);
        let log2_ns = |ticks: u32| if ticks == 0 { 19 } else { log2(u64::from(ticks) << 20) };
        for (key, sizes) in &self.sizes {
            let sizes = sizes.iter().map(|&(size, count)| (BlockQuantity::Size, log2(size), count));
            counts.entry(*key).or_default().extend(sizes);
        }
        for (key, times) in &self.lifetimes {
            let times = times.iter().map(|&(time, count)| (BlockQuantity::Lifetime, log2_ns(time), count));
            counts.entry(*key).or_default().extend(times);
        }
        for (key, age, count) in ages {
            counts.entry(key).or_default().push((BlockQuantity::Age, log2_ns(age), count));
        }
        let histograms = |counts: Vec<_>| {
            let count = |(quantity, log2, count)| (quantity, Log2::from_number(log2).unwrap(), count);
            counts.into_iter().map(count).collect::<BlockHistograms>()
        };
        let all = counts.into_iter().map(|(key, counts)| (key, histograms(counts)));
        all.filter(|(_, histograms)| !histograms.is_empty()).collect()
    }

    pub(super) fn limited(&self) -> impl Iterator<Item = StackKey> {
        self.alloc.keys().copied().filter(|&key| is_limited(key))
    }

    /// Returns the number of stacks that count in the limit of stacks. A stack with samples counts as two.
    pub(super) fn used_totals(&self) -> usize {
        let has_samples = |key| self.sampled.contains(&key);
        let has_profile = |key| self.profile.alloc.get(&key).is_some_and(|alloc| !alloc.is_empty());
        self.limited().map(|key| if has_samples(key) || has_profile(key) { 2 } else { 1 }).sum()
    }

    pub(super) fn is_live(&self, has: impl Fn(StackKey) -> bool) -> bool {
        self.all_live().into_iter().any(|(key, live)| live != Amount::default() && has(key))
    }

    pub(super) fn with_frames(&self) -> impl Iterator<Item = StackId> {
        self.stacks.iter().filter(|(_, stack)| stack.end != StackEnd::Merged).map(|(&id, _)| id)
    }

    /// Removes the IDs of merged stacks without totals.
    pub(super) fn forget_merged(&mut self) {
        let before = self.stacks.len();
        let has_totals = |id| self.alloc.keys().any(|key| key.stack == id);
        self.stacks.retain(|&id, stack| stack.end != StackEnd::Merged || has_totals(id));
        self.has_forgotten |= self.stacks.len() < before;
    }

    /// Iterates over the stacks without live blocks and tentative frees, with their allocated amounts.
    pub(super) fn idle_totals(&self) -> impl Iterator<Item = (Vec<Amount>, StackKey)> {
        let is_pinned = |key| self.tentative.values().any(|(_, block, ..)| block.is_some_and(|block| block.key == key));
        let idle = self.limited().filter(move |&key| !is_pinned(key) && !self.is_live(|live| live == key));
        idle.map(|key| (vec![self.alloc[&key]], key))
    }

    /// Iterates over the stacks with frames and without live blocks, with the allocated amounts of their parts.
    pub(super) fn idle_frames(&self) -> impl Iterator<Item = (Vec<Amount>, StackId)> {
        let idle = self.with_frames().filter(|&id| !self.is_live(|live| live.stack == id));
        let of_parts = |id| self.alloc.iter().filter(|(key, _)| key.stack == id).map(|(_, alloc)| *alloc).collect();
        idle.map(move |id| (of_parts(id), id))
    }

    pub(super) fn merge(&mut self, key: StackKey) {
        let is_of_few = key.part.thread().is_none() && key.part.allocator().is_some() != key.part.tag().is_some();
        let part = if is_of_few { key.part } else { Part::WHOLE };
        let other = StackKey { stack: StackId::OTHER, part };
        for amounts in [&mut self.alloc, &mut self.free, &mut self.temporary] {
            let amount = amounts.remove(&key).unwrap_or_default();
            *amounts.entry(other).or_default() += amount;
        }
        self.sampled.remove(&key);
        let samples = self.samples.remove(&key).unwrap_or_default();
        self.samples.entry(other).or_default().extend(samples);
        let profiled = self.profile.alloc.remove(&key).unwrap_or_default();
        self.profile.alloc.entry(other).or_default().extend(profiled);
        let sizes = self.sizes.remove(&key).unwrap_or_default();
        self.sizes.entry(other).or_default().extend(sizes);
        let lifetimes = self.lifetimes.remove(&key).unwrap_or_default();
        self.lifetimes.entry(other).or_default().extend(lifetimes);
        *self.at_peak.entry(other).or_default() += self.at_peak.remove(&key).unwrap_or(0);
        self.merged += 1;
    }

    fn has_usage(&self) -> bool {
        let has_allocated = self.alloc.values().any(|alloc| *alloc != Amount::default());
        has_allocated || self.unmatched > 0 || self.repeated > 0 || self.unmatched_samples > 0
    }
}

/// Quantities of the number of samples, and of the variances of bytes and blocks.
type SampleQuantities = (Quantity, [Variance; 2]);

const OF_ALLOC: SampleQuantities = (Quantity::AllocSamples, [Variance::AllocBytes, Variance::AllocCount]);
const OF_HELD: SampleQuantities = (Quantity::HeldSamples, [Variance::HeldBytes, Variance::HeldCount]);

fn add_sample(numbers: &mut Quantities, (samples, [bytes, count]): SampleQuantities, sample: Sample) {
    numbers[samples] += 1;
    numbers.add_variance(bytes, sample.bytes_variance);
    numbers.add_variance(count, sample.count_variance);
}

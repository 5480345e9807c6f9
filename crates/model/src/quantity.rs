//! Quantities: the numbers of a stack. Each has a row in a table, and everything else derives from the table.

mod variance;

use std::fmt;
use std::ops::{AddAssign, Index, IndexMut, SubAssign};

use crate::{Amount, Bytes, EventClass, ImageEnd, Nanoseconds, Spread, StallTotals};

pub use self::variance::Variance;

/// Kind of number of a stack. Processes and traces have the sums over their stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Bytes allocated and not freed, by processes that run.
    LiveBytes,
    /// Number of blocks or pages in [`Self::LiveBytes`].
    LiveCount,
    /// Bytes allocated and not freed when the process ended.
    ExitBytes,
    /// Number of blocks in [`Self::ExitBytes`].
    ExitCount,
    /// Bytes allocated since tracing began.
    AllocBytes,
    /// Number of blocks or pages in [`Self::AllocBytes`].
    AllocCount,
    /// Bytes freed by the allocating thread before its next allocation. The freed bytes include them.
    TemporaryBytes,
    /// Number of blocks in [`Self::TemporaryBytes`].
    TemporaryCount,
    /// Bytes that were live when the process called exec.
    DiscardedBytes,
    /// Number of blocks in [`Self::DiscardedBytes`].
    DiscardedCount,
    /// Bytes live or held at exit in blocks that are younger than `--older`. No other quantity of held memory includes
    /// these bytes.
    LeftOutBytes,
    /// Number of blocks in [`Self::LeftOutBytes`].
    LeftOutCount,
    /// Number of stalls.
    StallCount,
    /// Total time of stalls in nanoseconds.
    StallTime,
    /// Live bytes of the stack at the peak of the process's live bytes; 0 if no peak was recorded.
    AtPeakBytes,
    /// Number of major faults.
    MajorFaults,
    /// Variance of the live pages, in pages squared; 0 if pages are not sampled.
    LiveVariance,
    /// Variance of the touched pages, in pages squared. A page counts once per touch. 0 if pages are not sampled.
    AllocVariance,
    /// Resident bytes of live mappings.
    ResidentBytes,
    /// Live bytes on pages that may have been touched within the time of `--cold-after`; 0 if touches were not
    /// measured.
    HotBytes,
    /// Live bytes on resident pages that were not touched within the time of `--cold-after`.
    ColdBytes,
    /// Number of stacks in a sum of merged stacks; 0 for a single stack.
    MergedStacks,
    /// Part of [`Self::LiveBytes`] in huge pages, which were counted at their faults. It is not scaled with a sample.
    HugeLiveBytes,
    /// Part of [`Self::AllocBytes`] in huge pages, which were counted at their faults. It is not scaled with a sample.
    HugeAllocBytes,
    /// Number of sampled blocks that are live or held at exit; 0 if blocks are not sampled.
    HeldSamples,
    /// Number of sampled blocks that were allocated.
    AllocSamples,
    /// Variance of the bytes that are live or held at exit: sum of the low bits of its terms. [`Quantities::variance`]
    /// joins it with the next quantity.
    HeldBytesVariance,
    /// High bits of [`Self::HeldBytesVariance`].
    HeldBytesVarianceHigh,
    /// Variance of the allocated bytes: sum of the low bits of its terms.
    AllocBytesVariance,
    /// High bits of [`Self::AllocBytesVariance`].
    AllocBytesVarianceHigh,
    /// Variance of the number of blocks that are live or held at exit: sum of the low bits of its terms.
    HeldCountVariance,
    /// High bits of [`Self::HeldCountVariance`].
    HeldCountVarianceHigh,
    /// Variance of the number of allocated blocks: sum of the low bits of its terms.
    AllocCountVariance,
    /// High bits of [`Self::AllocCountVariance`].
    AllocCountVarianceHigh,
}

/// Dimension of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes.
    Bytes,
    /// Number of blocks, pages, stalls or stacks.
    Count,
    /// Nanoseconds.
    Time,
}

/// Place of a quantity in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Column of the table `change`.
    Column,
    /// Rows of the table `detail` with this id, because the quantity is 0 in most changes.
    Detail(u8),
    /// Not recorded.
    None,
}

/// Facts about a quantity.
#[derive(Debug)]
pub struct QuantityFacts {
    /// The quantity.
    pub quantity: Quantity,
    /// Key in JSON.
    pub name: &'static str,
    /// Name in a recording.
    pub column: &'static str,
    /// Dimension of the quantity.
    pub measure: Measure,
    /// Counterpart for the same blocks or stalls: the count if this quantity has the bytes or the time, else the bytes
    /// or the time.
    pub pair: Option<Quantity>,
    /// True if the quantity adds up: a process has the sum over its stacks, and an interval has the difference of two totals.
    /// Otherwise, only single stacks have the quantity.
    pub adds_up: bool,
    /// Event classes that have the quantity.
    pub classes: &'static [EventClass],
    /// Place in a recording.
    pub storage: Storage,
}

const HEAP: &[EventClass] = &[EventClass::Heap];
const BLOCKS: &[EventClass] = &[EventClass::Heap, EventClass::Map];
const MEMORY: &[EventClass] = &[EventClass::Heap, EventClass::Map, EventClass::Fault];
const MAPPINGS: &[EventClass] = &[EventClass::Map];
const PAGES: &[EventClass] = &[EventClass::Fault];
const STALLS: &[EventClass] = &[EventClass::Reclaim];

const fn row(
    quantity: Quantity,
    name: &'static str,
    measure: Measure,
    classes: &'static [EventClass],
    storage: Storage,
) -> QuantityFacts {
    QuantityFacts { quantity, name, column: name, measure, pair: None, adds_up: true, classes, storage }
}

impl QuantityFacts {
    const fn paired(self, other: Quantity) -> Self {
        Self { pair: Some(other), ..self }
    }
}

/// The facts of every quantity, ordered like [`Quantity::ALL`].
pub const QUANTITIES: &[QuantityFacts] = {
    use Measure::{Bytes, Count, Time};
    use Quantity as Q;
    use Storage::{Column, Detail};
    &[
        row(Q::LiveBytes, "live_bytes", Bytes, MEMORY, Column).paired(Q::LiveCount),
        row(Q::LiveCount, "live_count", Count, MEMORY, Column).paired(Q::LiveBytes),
        row(Q::ExitBytes, "exit_bytes", Bytes, HEAP, Column).paired(Q::ExitCount),
        row(Q::ExitCount, "exit_count", Count, HEAP, Column).paired(Q::ExitBytes),
        row(Q::AllocBytes, "alloc_bytes", Bytes, MEMORY, Column).paired(Q::AllocCount),
        row(Q::AllocCount, "alloc_count", Count, MEMORY, Column).paired(Q::AllocBytes),
        row(Q::TemporaryBytes, "temporary_bytes", Bytes, HEAP, Column).paired(Q::TemporaryCount),
        row(Q::TemporaryCount, "temporary_count", Count, HEAP, Column).paired(Q::TemporaryBytes),
        row(Q::DiscardedBytes, "discarded_bytes", Bytes, HEAP, Detail(0)).paired(Q::DiscardedCount),
        row(Q::DiscardedCount, "discarded_count", Count, HEAP, Detail(1)).paired(Q::DiscardedBytes),
        row(Q::LeftOutBytes, "left_out_bytes", Bytes, HEAP, Storage::None).paired(Q::LeftOutCount),
        row(Q::LeftOutCount, "left_out_count", Count, HEAP, Storage::None).paired(Q::LeftOutBytes),
        row(Q::StallCount, "stall_count", Count, STALLS, Detail(2)).paired(Q::StallTime),
        row(Q::StallTime, "stall_ns", Time, STALLS, Detail(3)).paired(Q::StallCount),
        QuantityFacts {
            column: "at_peak_bytes",
            adds_up: false,
            ..row(Q::AtPeakBytes, "peak_bytes", Bytes, HEAP, Detail(4))
        },
        row(Q::MajorFaults, "major_faults", Count, PAGES, Detail(5)),
        row(Q::LiveVariance, "live_variance", Count, PAGES, Detail(6)),
        row(Q::AllocVariance, "alloc_variance", Count, PAGES, Detail(7)),
        row(Q::ResidentBytes, "resident_bytes", Bytes, MAPPINGS, Detail(8)),
        row(Q::HotBytes, "hot_bytes", Bytes, BLOCKS, Detail(10)),
        row(Q::ColdBytes, "cold_bytes", Bytes, BLOCKS, Detail(11)),
        QuantityFacts { adds_up: false, ..row(Q::MergedStacks, "merged_stacks", Count, EventClass::ALL, Detail(9)) },
        row(Q::HugeLiveBytes, "huge_live_bytes", Bytes, PAGES, Detail(12)),
        row(Q::HugeAllocBytes, "huge_alloc_bytes", Bytes, PAGES, Detail(13)),
        row(Q::HeldSamples, "held_samples", Count, HEAP, Detail(14)),
        row(Q::AllocSamples, "alloc_samples", Count, HEAP, Detail(15)),
        row(Q::HeldBytesVariance, "held_bytes_variance", Count, HEAP, Detail(16)),
        row(Q::HeldBytesVarianceHigh, "held_bytes_variance_high", Count, HEAP, Detail(17)),
        row(Q::AllocBytesVariance, "alloc_bytes_variance", Count, HEAP, Detail(18)),
        row(Q::AllocBytesVarianceHigh, "alloc_bytes_variance_high", Count, HEAP, Detail(19)),
        row(Q::HeldCountVariance, "held_count_variance", Count, HEAP, Detail(20)),
        row(Q::HeldCountVarianceHigh, "held_count_variance_high", Count, HEAP, Detail(21)),
        row(Q::AllocCountVariance, "alloc_count_variance", Count, HEAP, Detail(22)),
        row(Q::AllocCountVarianceHigh, "alloc_count_variance_high", Count, HEAP, Detail(23)),
    ]
};

const _: () = {
    let mut index = 0;
    while index < QUANTITIES.len() {
        assert!(QUANTITIES[index].quantity as usize == index);
        index += 1;
    }
};

impl Quantity {
    /// Every quantity, ordered as in the table.
    pub const ALL: [Self; QUANTITIES.len()] = {
        let mut all = [Self::LiveBytes; QUANTITIES.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = QUANTITIES[index].quantity;
            index += 1;
        }
        all
    };

    /// Returns the row of this quantity.
    #[must_use]
    pub const fn facts(self) -> &'static QuantityFacts {
        &QUANTITIES[self as usize]
    }

    /// Returns true if stacks of `class` have the quantity.
    #[must_use]
    pub fn is_of(self, class: EventClass) -> bool {
        self.facts().classes.contains(&class)
    }

    /// Returns true for quantities of memory that is not freed: live or held at exit. `--older` filters them by age.
    #[must_use]
    pub const fn is_held(self) -> bool {
        matches!(self, Self::LiveBytes | Self::LiveCount | Self::ExitBytes | Self::ExitCount)
    }

    /// Returns the quantities with columns in the table `change`.
    pub fn columns() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|quantity| quantity.facts().storage == Storage::Column)
    }

    /// Returns the quantities with rows in the table `detail`, each with its id in the table.
    pub fn details() -> impl Iterator<Item = (Self, i64)> {
        QUANTITIES.iter().filter_map(|facts| match facts.storage {
            Storage::Detail(number) => Some((facts.quantity, i64::from(number))),
            Storage::Column | Storage::None => None,
        })
    }
}

/// Quantities of a stack, or of a sum of stacks. Negative differences are stored as wrapped numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quantities([u64; Quantity::ALL.len()]);

impl Default for Quantities {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Index<Quantity> for Quantities {
    type Output = u64;

    fn index(&self, quantity: Quantity) -> &u64 {
        &self.0[quantity as usize]
    }
}

impl IndexMut<Quantity> for Quantities {
    fn index_mut(&mut self, quantity: Quantity) -> &mut u64 {
        &mut self.0[quantity as usize]
    }
}

impl AddAssign for Quantities {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours = ours.wrapping_add(theirs));
    }
}

impl SubAssign for Quantities {
    fn sub_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours = ours.wrapping_sub(theirs));
    }
}

impl fmt::Debug for Quantities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter().map(|(quantity, value)| (quantity.facts().name, value))).finish()
    }
}

impl std::iter::Sum for Quantities {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

impl Quantities {
    /// Quantities of a stack without events.
    pub const ZERO: Self = Self([0; Quantity::ALL.len()]);

    /// Returns the quantities of a running image with these live, allocated and temporary amounts.
    #[must_use]
    pub const fn of_blocks([live, alloc, temporary]: [Amount; 3]) -> Self {
        Self::ZERO
            .with_amount(Quantity::LiveBytes, live)
            .with_amount(Quantity::AllocBytes, alloc)
            .with_amount(Quantity::TemporaryBytes, temporary)
    }

    /// Returns the value of a quantity.
    #[must_use]
    pub const fn get(&self, quantity: Quantity) -> u64 {
        self.0[quantity as usize]
    }

    /// Iterates over the quantities that are not 0, ordered as in the table.
    pub fn iter(&self) -> impl Iterator<Item = (Quantity, u64)> + '_ {
        Quantity::ALL.into_iter().zip(self.0).filter(|(_, value)| *value != 0)
    }

    /// Returns true if all quantities are 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Returns the quantities with another value of `quantity`.
    #[must_use]
    pub const fn with(mut self, quantity: Quantity, value: u64) -> Self {
        self.0[quantity as usize] = value;
        self
    }

    /// Returns the quantities with another amount. `bytes`: the quantity of the bytes of the amount, such as
    /// [`Quantity::LiveBytes`].
    #[must_use]
    pub const fn with_amount(self, bytes: Quantity, amount: Amount) -> Self {
        let with_bytes = self.with(bytes, amount.bytes.0);
        match bytes.facts().pair {
            Some(count) => with_bytes.with(count, amount.count),
            None => with_bytes,
        }
    }

    /// Returns the quantities with another number and time of stalls.
    #[must_use]
    pub const fn with_stalls(self, stalls: StallTotals) -> Self {
        self.with(Quantity::StallCount, stalls.count).with(Quantity::StallTime, stalls.time.0)
    }

    /// Returns the quantities with another freed amount. The left-out amount changes, so that all amounts still add up
    /// to the allocated one.
    #[must_use]
    pub fn with_free(self, free: Amount) -> Self {
        let left_out = self.left_out() + (self.free() - free);
        self.with_amount(Quantity::LeftOutBytes, left_out)
    }

    /// Adds to an amount. `bytes`: the quantity of the bytes of the amount.
    pub fn add_amount(&mut self, bytes: Quantity, amount: Amount) {
        *self = self.with_amount(bytes, self.amount(bytes) + amount);
    }

    /// Subtracts from an amount. `bytes`: the quantity of the bytes of the amount.
    pub fn subtract_amount(&mut self, bytes: Quantity, amount: Amount) {
        *self = self.with_amount(bytes, self.amount(bytes) - amount);
    }

    /// Returns an amount. `bytes`: the quantity of the bytes of the amount.
    #[must_use]
    pub const fn amount(&self, bytes: Quantity) -> Amount {
        let count = match bytes.facts().pair {
            Some(count) => self.get(count),
            None => 0,
        };
        Amount { bytes: Bytes(self.get(bytes)), count }
    }

    /// Returns the amount that was allocated and not freed, by processes that run.
    #[must_use]
    pub const fn live(&self) -> Amount {
        self.amount(Quantity::LiveBytes)
    }

    /// Returns the amount that was not freed when the process ended.
    #[must_use]
    pub const fn exit(&self) -> Amount {
        self.amount(Quantity::ExitBytes)
    }

    /// Returns the amount that was allocated since tracing began.
    #[must_use]
    pub const fn alloc(&self) -> Amount {
        self.amount(Quantity::AllocBytes)
    }

    /// Returns the amount that the allocating thread freed before its next allocation.
    #[must_use]
    pub const fn temporary(&self) -> Amount {
        self.amount(Quantity::TemporaryBytes)
    }

    /// Returns the amount that was live when the process called exec.
    #[must_use]
    pub const fn discarded(&self) -> Amount {
        self.amount(Quantity::DiscardedBytes)
    }

    /// Returns the amount that is live or held at exit in blocks younger than `--older`.
    #[must_use]
    pub const fn left_out(&self) -> Amount {
        self.amount(Quantity::LeftOutBytes)
    }

    /// Returns the freed amount: the allocated amount minus the live, held, discarded and left-out amounts.
    #[must_use]
    pub fn free(&self) -> Amount {
        self.alloc() - self.live() - self.exit() - self.discarded() - self.left_out()
    }

    /// Returns the number and time of stalls.
    #[must_use]
    pub const fn stalls(&self) -> StallTotals {
        StallTotals { count: self.get(Quantity::StallCount), time: Nanoseconds(self.get(Quantity::StallTime)) }
    }

    /// Returns the number of events with a stack: allocations, samples of allocations, touches or stalls.
    #[must_use]
    pub const fn events(&self) -> u64 {
        let allocs = match self.get(Quantity::AllocSamples) {
            0 => self.get(Quantity::AllocCount),
            samples => samples,
        };
        allocs.wrapping_add(self.get(Quantity::StallCount))
    }

    /// Ends the image of the stack: its live amount is held at exit, discarded or freed.
    pub fn end(&mut self, end: ImageEnd, class: EventClass) {
        let live = self.live();
        *self = self.with_amount(Quantity::LiveBytes, Amount::default()).with(Quantity::HugeLiveBytes, 0);
        match (class, end) {
            (EventClass::Heap, ImageEnd::Exec) => {
                self.add_amount(Quantity::DiscardedBytes, live);
                // Discarded blocks are not held.
                *self = self.with_spreads(Spread::default(), self.alloc_spread());
            }
            (EventClass::Heap, ImageEnd::Exit | ImageEnd::OomKill) => self.add_amount(Quantity::ExitBytes, live),
            // Mappings and pages do not outlive their image: the amount is freed.
            (EventClass::Map | EventClass::Fault | EventClass::Reclaim, _) => {}
        }
    }

    /// Returns the quantities that add up ([`QuantityFacts::adds_up`]). All others are 0.
    #[must_use]
    pub fn additive(mut self) -> Self {
        QUANTITIES.iter().filter(|facts| !facts.adds_up).for_each(|facts| self[facts.quantity] = 0);
        self
    }

    /// Returns the quantities that add up, as changes since `earlier`.
    #[must_use]
    pub fn since(mut self, earlier: Self) -> Self {
        self -= earlier;
        self.additive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn quantities() -> impl Strategy<Value = Quantities> {
        prop::collection::vec(any::<u64>(), Quantity::ALL.len())
            .prop_map(|values| Quantities(std::array::from_fn(|index| values[index])))
    }

    #[test]
    fn names_are_unique() {
        let distinct =
            |name: fn(&QuantityFacts) -> &'static str| QUANTITIES.iter().map(name).collect::<BTreeSet<_>>().len();
        assert_eq!([distinct(|facts| facts.name), distinct(|facts| facts.column)], [QUANTITIES.len(); 2]);
        let details: BTreeSet<_> = Quantity::details().map(|(_, number)| number).collect();
        assert_eq!(details.len(), Quantity::details().count());
    }

    #[test]
    fn pairs_refer_to_each_other() {
        for facts in QUANTITIES {
            let Some(pair) = facts.pair else { continue };
            assert_eq!(pair.facts().pair, Some(facts.quantity), "{}", facts.name);
            assert!(pair.facts().measure != facts.measure && pair.facts().classes == facts.classes);
        }
    }

    #[test]
    fn an_amount_is_in_one_state_at_a_time() {
        let amount = |bytes, count| Amount { bytes: Bytes(bytes), count };
        let usage = Quantities::default()
            .with_amount(Quantity::AllocBytes, amount(100, 10))
            .with_amount(Quantity::LiveBytes, amount(40, 4))
            .with_amount(Quantity::DiscardedBytes, amount(10, 1));
        assert_eq!(usage.free(), amount(50, 5));
        let fewer = usage.with_free(amount(20, 2));
        assert_eq!((fewer.free(), fewer.left_out(), fewer.live()), (amount(20, 2), amount(30, 3), amount(40, 4)));
    }

    #[test]
    fn a_sample_is_one_event() {
        let alloc = Amount { bytes: Bytes(1 << 19), count: 512 };
        let exact = Quantities::ZERO.with_amount(Quantity::AllocBytes, alloc);
        assert_eq!((exact.events(), exact.with(Quantity::AllocSamples, 3).events()), (512, 3));
    }

    proptest! {
        #[test]
        fn subtraction_reverts_addition(one in quantities(), other in quantities()) {
            let mut sum = one;
            sum += other;
            sum -= other;
            prop_assert_eq!(sum, one);
            let since = one.since(other);
            for (quantity, value) in Quantity::ALL.into_iter().zip(since.0) {
                let difference = one[quantity].wrapping_sub(other[quantity]);
                prop_assert_eq!(value, if quantity.facts().adds_up { difference } else { 0 });
            }
        }

        #[test]
        fn all_amounts_sum_to_the_allocated_one(usage in quantities()) {
            let sum = usage.live() + usage.exit() + usage.discarded() + usage.left_out() + usage.free();
            prop_assert_eq!(sum, usage.alloc());
        }
    }
}

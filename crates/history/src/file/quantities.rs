//! The table `quantity`: ID and name of each kind of value. Rows of `detail`, `image_change` and `stall_change`
//! contain the ID.

use memtrace_model::{EventClass, Latencies, Nanoseconds, Order, Quantity, StackEnd, StallStats, StallTotals, Storage};

use super::wrapping::{wrapping_add, wrapping_sum};
use crate::interval::{DetailKind, ImageValue};

/// ID of the first [`DetailKind`]. The IDs of [`Quantity`] are lower.
const FIRST_DETAIL: i64 = 100;
/// ID of the first [`ImageValue`].
const FIRST_IMAGE_VALUE: i64 = 200;
/// ID of the first kind in [`STALLS`].
const FIRST_STALL: i64 = 300;
/// ID of the longest stall.
const LONGEST_STALL: i64 = FIRST_STALL + 2;

const DETAILS: [(DetailKind, &str); 14] = [
    (DetailKind::EpochLiveBytes, "epoch_live_bytes"),
    (DetailKind::EpochLiveCount, "epoch_live_count"),
    (DetailKind::Lifetime, "lifetime_log2"),
    (DetailKind::Age, "age_log2"),
    (DetailKind::Size, "size_log2"),
    (DetailKind::OldLiveBytes, "old_live_bytes"),
    (DetailKind::OldLiveCount, "old_live_count"),
    (DetailKind::OldExitBytes, "old_exit_bytes"),
    (DetailKind::OldExitCount, "old_exit_count"),
    (DetailKind::OldSamples, "old_samples"),
    (DetailKind::OldBytesVariance, "old_bytes_variance"),
    (DetailKind::OldBytesVarianceHigh, "old_bytes_variance_high"),
    (DetailKind::OldCountVariance, "old_count_variance"),
    (DetailKind::OldCountVarianceHigh, "old_count_variance_high"),
];

const IMAGE_VALUES: [(ImageValue, &str); 27] = [
    (ImageValue::DiscardedBytes, "image_discarded_bytes"),
    (ImageValue::DiscardedCount, "image_discarded_count"),
    (ImageValue::UnmatchedFrees, "unmatched_frees"),
    (ImageValue::RepeatedFrees, "repeated_frees"),
    (ImageValue::MergedStacks, "image_merged_stacks"),
    (ImageValue::Peak, "peak_bytes"),
    (ImageValue::MinorFaults, "minor_faults"),
    (ImageValue::MajorFaults, "image_major_faults"),
    (ImageValue::PeakRss, "peak_rss_bytes"),
    (ImageValue::Resident, "kind_resident_bytes"),
    (ImageValue::ResidentWithStack, "kind_with_stack_bytes"),
    (ImageValue::ResidentVariance, "kind_variance"),
    (ImageValue::ResidentBefore, "kind_before_bytes"),
    (ImageValue::Size, "image_size_log2"),
    (ImageValue::DemotedAt, "demoted_at_ticks"),
    (ImageValue::DemotedSize, "demoted_min_bytes"),
    (ImageValue::DroppedBytes, "dropped_bytes"),
    (ImageValue::DroppedCount, "dropped_count"),
    (ImageValue::DemotedFrees, "demoted_frees"),
    (ImageValue::RssStart, "rss_start_bytes"),
    (ImageValue::RssEnd, "rss_end_bytes"),
    (ImageValue::RssShared, "rss_shared_bytes"),
    (ImageValue::Runtime, "runtime"),
    (ImageValue::SharesMemoryOf, "shares_memory_of"),
    (ImageValue::ResidentCounted, "kind_counted_bytes"),
    (ImageValue::ResidentUnknown, "resident_unknown"),
    (ImageValue::UnmatchedSamples, "unmatched_samples"),
];

/// Names of the kinds of values in [`StallStats`], ordered by ID. [`stall_numbers`] and
/// [`add_stall_number`] rely on this order.
const STALLS: [&str; 9] = [
    "stalls",
    "stalled_ns",
    "longest_ns",
    "throttled_ns",
    "scanned_pages",
    "reclaimed_pages",
    "latency_log2_us",
    "order_stalls",
    "order_stalled_ns",
];

/// Value of the column `idx` for stalls of unknown order.
const NO_ORDER: u32 = 255;

/// Returns the ID and the name of every kind.
pub(super) fn names() -> impl Iterator<Item = (i64, &'static str)> {
    let rare = Quantity::details().map(|(quantity, number)| (number, quantity.facts().column));
    let details = (FIRST_DETAIL..).zip(DETAILS.map(|(_, name)| name));
    let values = (FIRST_IMAGE_VALUE..).zip(IMAGE_VALUES.map(|(_, name)| name));
    rare.chain(details).chain(values).chain((FIRST_STALL..).zip(STALLS))
}

/// Returns the IDs of the kinds of values that `is_listed` accepts, as a list for SQL.
pub(super) fn list_image_values(is_listed: impl Fn(ImageValue) -> bool) -> String {
    let listed = IMAGE_VALUES.into_iter().filter(|(kind, _)| is_listed(*kind));
    listed.map(|(kind, _)| kind.number().to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns the expression for the value of several rows of `detail`, `image_change` or `stall_change`.
pub(super) fn merged_value() -> String {
    format!("iif(quantity IN ({}), max(value), {})", list_maximums(), wrapping_sum("value"))
}

/// Returns the assignment that adds the value in a new row of `detail`, `image_change` or `stall_change` to an existing
/// row.
pub(super) fn add_value() -> String {
    let sum = wrapping_add("value", "excluded.value");
    format!("value = iif(quantity IN ({}), max(value, excluded.value), {sum})", list_maximums())
}

/// Returns a list for SQL: the IDs of the kinds for which the value of several rows is their maximum, not their sum.
fn list_maximums() -> String {
    format!("{}, {LONGEST_STALL}", list_image_values(ImageValue::is_of_maximum))
}

/// Returns the index of the first row that `is_row` accepts; 0 if there is none.
fn index_of<T>(table: impl IntoIterator<Item = T>, is_row: impl Fn(&T) -> bool) -> i64 {
    (0..).zip(table).find(|(_, row)| is_row(row)).map_or(0, |(index, _)| index)
}

/// Returns the ID of an event class in the table `event_class`.
pub(super) fn class_number(class: EventClass) -> i64 {
    index_of(EventClass::ALL, |known| **known == class)
}

/// Returns the ID of a stack end in the table `stack_end`.
pub(super) fn end_number(end: StackEnd) -> i64 {
    index_of(StackEnd::ALL, |known| **known == end)
}

impl DetailKind {
    /// Returns the number in the database.
    pub(super) fn number(self) -> i64 {
        FIRST_DETAIL + index_of(DETAILS, |(kind, _)| *kind == self)
    }

    /// Returns the kind with this number.
    pub(super) fn from_number(number: i64) -> Option<Self> {
        let index = usize::try_from(number.checked_sub(FIRST_DETAIL)?).ok()?;
        DETAILS.get(index).map(|(kind, _)| *kind)
    }
}

impl ImageValue {
    /// Returns the number in the database.
    pub(super) fn number(self) -> i64 {
        FIRST_IMAGE_VALUE + index_of(IMAGE_VALUES, |(kind, _)| *kind == self)
    }

    /// Returns the kind with this number.
    pub(super) fn from_number(number: i64) -> Option<Self> {
        let index = usize::try_from(number.checked_sub(FIRST_IMAGE_VALUE)?).ok()?;
        IMAGE_VALUES.get(index).map(|(kind, _)| *kind)
    }
}

/// Returns the ID of a quantity in the table `detail`; 0 if the quantity is not stored there.
pub(super) const fn detail_number(quantity: Quantity) -> i64 {
    match quantity.facts().storage {
        Storage::Detail(number) => number as i64,
        Storage::Column | Storage::None => 0,
    }
}

/// Returns the quantity with this ID in `detail`.
pub(super) fn quantity_from_number(number: i64) -> Option<Quantity> {
    Quantity::details().find(|(_, known)| *known == number).map(|(quantity, _)| quantity)
}

/// Returns the values of `stats` that are not zero: ID of the kind, index, and value. The index is the latency class
/// or the order of the stalls; 0 for other kinds.
pub(super) fn stall_numbers(stats: &StallStats) -> Vec<(i64, u32, u64)> {
    let StallStats { stalls, longest, throttled, scanned, reclaimed, latencies, orders } = stats;
    let single = [stalls.count, stalls.time.0, longest.0, throttled.0, *scanned, *reclaimed];
    let mut numbers: Vec<_> = (FIRST_STALL..).zip(single).map(|(kind, value)| (kind, 0, value)).collect();
    numbers.extend((0..).zip(latencies.counts()).map(|(index, &count)| (FIRST_STALL + 6, index, count)));
    for (order, stalls) in orders.iter() {
        let index = order.map_or(NO_ORDER, Order::number);
        numbers.extend([(FIRST_STALL + 7, index, stalls.count), (FIRST_STALL + 8, index, stalls.time.0)]);
    }
    numbers.retain(|&(_, _, value)| value != 0);
    numbers
}

/// Adds a value that [`stall_numbers`] returned to `stats`. For the longest stall, the larger value remains.
pub(super) fn add_stall_number(stats: &mut StallStats, kind: i64, index: u32, value: u64) {
    let add = |number: &mut u64| *number = number.wrapping_add(value);
    let order = (index != NO_ORDER).then(|| Order::of(index)).flatten();
    match kind - FIRST_STALL {
        0 => add(&mut stats.stalls.count),
        1 => add(&mut stats.stalls.time.0),
        2 => stats.longest.0 = stats.longest.0.max(value),
        3 => add(&mut stats.throttled.0),
        4 => add(&mut stats.scanned),
        5 => add(&mut stats.reclaimed),
        6 => {
            let mut counts = [0; Latencies::CLASSES];
            if let Some(count) = counts.get_mut(index as usize) {
                *count = value;
            }
            stats.latencies.merge(&Latencies::from(counts));
        }
        7 => stats.orders.add(order, StallTotals { count: value, time: Nanoseconds(0) }),
        8 => stats.orders.add(order, StallTotals { count: 0, time: Nanoseconds(value) }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn kinds_have_distinct_numbers_and_names() {
        let all: Vec<_> = names().collect();
        assert_eq!(all.iter().map(|(number, _)| number).collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(all.iter().map(|(_, name)| name).collect::<BTreeSet<_>>().len(), all.len());
        for (kind, _) in DETAILS {
            assert_eq!(DetailKind::from_number(kind.number()), Some(kind));
        }
        for (kind, _) in IMAGE_VALUES {
            assert_eq!(ImageValue::from_number(kind.number()), Some(kind));
        }
        assert!(all.contains(&(detail_number(Quantity::MergedStacks), "merged_stacks")));
        let in_statements = [
            (202, "unmatched_frees"),
            (205, "peak_bytes"),
            (208, "peak_rss_bytes"),
            (214, "demoted_at_ticks"),
            (215, "demoted_min_bytes"),
            (223, "shares_memory_of"),
            (225, "resident_unknown"),
            (301, "stalled_ns"),
            (302, "longest_ns"),
        ];
        for kind in in_statements {
            assert!(all.contains(&kind), "the statements of the writer contain this number: {kind:?}");
        }
        assert_eq!((DetailKind::from_number(0), ImageValue::from_number(0)), (None, None));
    }

    #[test]
    fn statements_list_the_kinds_by_their_numbers() {
        assert_eq!(list_maximums(), "208, 214, 215, 223, 225, 302");
        assert_eq!(list_image_values(|kind| !kind.is_of_groups()), "205, 223, 225");
        assert_eq!(list_image_values(ImageValue::is_state), "214, 215, 223");
        assert_eq!(names().find(|(number, _)| *number == LONGEST_STALL), Some((302, "longest_ns")));
    }
}

//! Order of stacks and processes by size.

use std::cmp::Reverse;

use memtrace_model::{EventClass, Magnitude, Magnitudes, Metric, Quantities, Quantity, share};

/// Quantities that reports show for each stack although no metric has them.
const SHOWN: [Quantity; 2] = [Quantity::MajorFaults, Quantity::ResidentBytes];

/// Returns the indices of `all`, the largest first. The size of an element is [`Magnitudes::size`], or its share in the
/// sum of another shown quantity, if that is larger. So a stack that is large in one metric is kept, even if another
/// metric is drawn.
pub(super) fn largest_first(class: EventClass, all: &[&Quantities]) -> Vec<usize> {
    // In a window of a recording, the numbers are changes and can be negative.
    let absolute = |number: u64| number.cast_signed().unsigned_abs();
    let magnitudes: Vec<_> = all.iter().map(|usage| Magnitude::of(class, usage).absolute()).collect();
    let mut sums = Magnitudes::default();
    magnitudes.iter().for_each(|magnitude| sums.add(class, *magnitude));
    let shown = Metric::ALL.into_iter().map(Metric::quantity).chain(SHOWN);
    let others: Vec<(Quantity, u64)> = shown
        .filter(|quantity| !Magnitude::quantities(class).contains(quantity))
        .map(|quantity| (quantity, all.iter().fold(0, |sum: u64, usage| sum.saturating_add(absolute(usage[quantity])))))
        .collect();
    let size = |index: usize| {
        let shares = others.iter().map(|&(quantity, sum)| share(all[index][quantity], sum));
        shares.fold(sums.size(class, magnitudes[index]), u64::max)
    };
    let mut indices: Vec<_> = (0..all.len()).collect();
    indices.sort_by_cached_key(|&index| Reverse(size(index)));
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(all: &[Quantities]) -> Vec<usize> {
        largest_first(EventClass::Heap, &all.iter().collect::<Vec<_>>())
    }

    #[test]
    fn changes_of_both_signs_are_compared_by_their_amount() {
        let live = |change: i64| Quantities::ZERO.with(Quantity::LiveBytes, change.cast_unsigned());
        assert_eq!(order(&[live(5), live(-999), live(2), live(1000)]), [3, 1, 0, 2]);
    }

    #[test]
    fn largest_by_another_number_comes_before_small_ones() {
        let alloc = |bytes| Quantities::ZERO.with(Quantity::AllocBytes, bytes);
        let all = [alloc(10), alloc(1).with(Quantity::AtPeakBytes, 4096), alloc(1000), alloc(1), alloc(1)];
        assert_eq!(order(&all), [1, 2, 0, 3, 4]);
    }
}

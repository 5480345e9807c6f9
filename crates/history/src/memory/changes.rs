//! The changes of the stacks in an interval, in the compact encoding of [`PathTotals`].

use std::collections::BTreeMap;

use memtrace_model::{BlockHistograms, EventClass, ImageId, Log2, Node, Quantities, Quantity};

use crate::interval::{Change, Detail, DetailKind, PathNumber, TotalKey};
use crate::path_totals::{PathKey, PathTotals, PathUsage};

/// Approximate overhead of the list of one image and event class, without the entries, in bytes.
const LIST: usize = 96;

/// Changes of stacks, with histograms of sizes, lifetimes and ages of blocks, by image and event class.
#[derive(Debug, Default)]
pub(super) struct EncodedChanges(Vec<((ImageId, EventClass), PathTotals)>);

impl EncodedChanges {
    /// Encodes changes, together with the buckets of histograms, which are removed from `details`. If a stack is
    /// listed twice, its changes are added up.
    pub(super) fn new(changes: Vec<Change>, details: &mut Vec<Detail>) -> Self {
        let mut sums: BTreeMap<TotalKey, PathUsage> = BTreeMap::new();
        for Change { key, usage } in changes {
            sums.entry(key).or_default().usage += usage;
        }
        details.retain(|detail| {
            let bucket = detail.kind.quantity().zip(Log2::from_number(detail.index));
            if let Some((quantity, log2)) = bucket {
                sums.entry(detail.key).or_default().histograms.count(quantity, log2, detail.value);
            }
            bucket.is_none()
        });
        let mut lists: BTreeMap<(ImageId, EventClass), Vec<(PathKey, PathUsage)>> = BTreeMap::new();
        for (TotalKey { image, class, path, end, part }, usage) in sums {
            let key = PathKey { path: Node::from_number(path.0), end, part };
            lists.entry((image, class)).or_default().push((key, folded(&usage)));
        }
        Self(lists.into_iter().map(|(owner, entries)| (owner, PathTotals::new(entries))).collect())
    }

    /// Iterates over the changes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TotalKey, PathUsage)> + '_ {
        self.0.iter().flat_map(|&((image, class), ref changes)| {
            changes.iter().map(move |(PathKey { path, end, part }, usage)| {
                (TotalKey { image, class, path: PathNumber(path.number()), end, part }, unfolded(&usage))
            })
        })
    }

    /// Returns the changes, and the buckets of histograms as details.
    pub(super) fn decode(&self) -> (Vec<Change>, Vec<Detail>) {
        let (mut changes, mut details) = (Vec::new(), Vec::new());
        for (key, PathUsage { usage, histograms }) in self.iter() {
            if !usage.is_zero() {
                changes.push(Change { key, usage });
            }
            details.extend(details_of(key, &histograms));
        }
        (changes, details)
    }

    /// Returns the approximate memory of the changes in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|(_, changes)| changes.bytes() + LIST).sum()
    }
}

/// Returns the buckets of histograms as details.
pub(super) fn details_of(key: TotalKey, histograms: &BlockHistograms) -> impl Iterator<Item = Detail> + '_ {
    let detail = move |(quantity, log2, value): (_, Log2, _)| Detail {
        key,
        kind: DetailKind::of(quantity),
        index: log2.number(),
        value,
    };
    histograms.iter().map(detail)
}

/// Zigzag encoding of a change, which can be negative: small negative numbers become small numbers, which take few
/// bytes.
const fn fold(number: u64) -> u64 {
    (number << 1) ^ ((number.cast_signed() >> 63).cast_unsigned())
}

const fn unfold(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

fn folded(usage: &PathUsage) -> PathUsage {
    convert(usage, fold)
}

fn unfolded(usage: &PathUsage) -> PathUsage {
    convert(usage, unfold)
}

fn convert(PathUsage { usage, histograms }: &PathUsage, number: impl Fn(u64) -> u64) -> PathUsage {
    let mut converted = Quantities::ZERO;
    for quantity in Quantity::ALL {
        converted[quantity] = number(usage[quantity]);
    }
    PathUsage { usage: converted, histograms: histograms.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_negative_numbers_are_short() {
        for (number, folded) in [(0, 0), (-1, 1), (1, 2), (-2, 3), (i64::MIN, u64::MAX), (i64::MAX, u64::MAX - 1)] {
            assert_eq!(fold(number.cast_unsigned()), folded);
            assert_eq!(unfold(folded), number.cast_unsigned());
        }
    }
}

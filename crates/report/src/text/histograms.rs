//! Histograms of the sizes, lifetimes and ages of blocks.

use std::io;

use memtrace_model::format as number;
use memtrace_model::{BlockHistograms, BlockQuantity, Bytes, Log2, Nanoseconds, Profile};

use super::text_writer::TextWriter;
use crate::table::Column;

/// Length of the longest bar, in characters.
const BAR: u64 = 40;

/// Writes the histograms of the blocks of all stacks, if they were counted.
pub(super) fn write(profile: &Profile, out: &mut TextWriter<'_>) -> io::Result<()> {
    let all = profile.histograms();
    for quantity in BlockQuantity::ALL {
        let counts: Vec<_> = all.of(quantity).collect();
        if counts.is_empty() {
            continue;
        }
        let total = all.total(quantity);
        let largest = counts.iter().map(|(_, count)| *count).max().unwrap_or(1);
        let bar = |count: u64| "#".repeat((u128::from(count) * u128::from(BAR)).div_ceil(largest.into()) as usize);
        let columns = vec![
            Column::numbers("BELOW", counts.iter().map(|(log2, _)| end(quantity, *log2))),
            Column::numbers("BLOCKS", counts.iter().map(|(_, count)| number::grouped(*count))),
            Column::numbers("SHARE", counts.iter().map(|(_, count)| number::percent(*count as f64 / total as f64))),
            Column::text("", counts.iter().map(|(_, count)| bar(*count))),
        ];
        writeln!(out, "\n{}", title(quantity))?;
        out.table(columns)?;
    }
    Ok(())
}

/// Returns the quantiles of the lifetimes and ages of a site: `lifetime: 50% below 1.05 ms, 90% below 2.10 ms`; `None`
/// without blocks.
pub(super) fn times(histograms: &BlockHistograms) -> Option<String> {
    let times = |(quantity, name): (BlockQuantity, &str)| {
        let below = |share| quantile(histograms, quantity, share).map(|log2| end(quantity, log2));
        Some(format!("{name}: 50% below {}, 90% below {}", below(0.5)?, below(0.9)?))
    };
    let both = [(BlockQuantity::Lifetime, "lifetime"), (BlockQuantity::Age, "age")];
    let shown: Vec<_> = both.into_iter().filter_map(times).collect();
    (!shown.is_empty()).then(|| shown.join("; "))
}

/// Returns the lowest bucket such that at least `share` (from 0 to 1) of the blocks are in this bucket or below; `None`
/// without blocks.
fn quantile(histograms: &BlockHistograms, quantity: BlockQuantity, share: f64) -> Option<Log2> {
    let wanted = share * histograms.total(quantity) as f64;
    let mut sum = 0_u64;
    histograms.of(quantity).find_map(|(log2, count)| {
        sum = sum.wrapping_add(count);
        (sum as f64 >= wanted).then_some(log2)
    })
}

const fn title(quantity: BlockQuantity) -> &'static str {
    match quantity {
        BlockQuantity::Size => "Allocated blocks by size",
        BlockQuantity::Lifetime => "Freed blocks by lifetime",
        BlockQuantity::Age => "Blocks that are live, or were held at exit, by age",
    }
}

/// Returns the upper bound of the bucket, with its unit.
fn end(quantity: BlockQuantity, log2: Log2) -> String {
    match quantity {
        BlockQuantity::Size => Bytes(log2.end()).to_string(),
        BlockQuantity::Lifetime | BlockQuantity::Age => Nanoseconds(log2.end()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{Part, StackEnd, StackProfile};

    use super::*;
    use crate::table::COLUMNS;

    fn histograms(counts: &[(BlockQuantity, u32, u64)]) -> BlockHistograms {
        counts.iter().map(|&(quantity, log2, count)| (quantity, Log2::from_number(log2).unwrap(), count)).collect()
    }

    #[test]
    fn times_are_upper_bounds() {
        use BlockQuantity::{Age, Lifetime, Size};
        assert_eq!(times(&histograms(&[(Size, 4, 7)])), None);
        let both = histograms(&[(Lifetime, 19, 50), (Lifetime, 30, 50), (Age, 20, 1)]);
        let expected = "lifetime: 50% below 1.05 ms, 90% below 2.15 s; age: 50% below 2.10 ms, 90% below 2.10 ms";
        assert_eq!(times(&both).as_deref(), Some(expected));
    }

    #[test]
    fn tables_have_the_sums_of_all_stacks() {
        let stack = |counts: &[_]| StackProfile {
            histograms: histograms(counts),
            ..StackProfile::new(0, Part::WHOLE, [].into(), StackEnd::Complete)
        };
        let stacks = vec![
            stack(&[(BlockQuantity::Size, 4, 1200)]),
            stack(&[(BlockQuantity::Size, 4, 300), (BlockQuantity::Size, 10, 500)]),
        ];
        let mut out = Vec::new();
        write(&Profile { stacks, ..Profile::default() }, &mut TextWriter::new(&mut out, COLUMNS)).unwrap();
        let expected = "\nAllocated blocks by size\n     BELOW  BLOCKS  SHARE\n      32 B   1,500  75.0%  ########################################\n  2.00 KiB     500  25.0%  ##############\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        write(&Profile::default(), &mut TextWriter::new(&mut out, COLUMNS)).unwrap();
        assert!(out.is_empty());
    }

    #[test]
    fn quantile_is_the_lowest_sufficient_logarithm() {
        let counts = [(20, 50), (24, 40), (30, 10)];
        let counts = counts.map(|(log2, count)| (BlockQuantity::Lifetime, Log2::from_number(log2).unwrap(), count));
        let all: BlockHistograms = counts.into_iter().collect();
        let quantile = |share| quantile(&all, BlockQuantity::Lifetime, share).map(Log2::number);
        assert_eq!([0.0, 0.5, 0.51, 0.9, 1.0].map(quantile), [20, 20, 24, 24, 30].map(Some));
        assert_eq!(super::quantile(&all, BlockQuantity::Age, 0.5), None);
    }
}

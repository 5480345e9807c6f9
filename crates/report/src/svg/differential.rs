//! Differential flame graphs: the width of a box shows its value in the second report, and the colour shows the change
//! since the first report.

use std::cmp::Reverse;
use std::io;

use memtrace_model::format as number;
use memtrace_model::{Profile, plain};

use super::entry::SEPARATOR;
use super::{SUBTITLE_CHARACTERS, TITLE_CHARACTERS, write_empty};
use crate::fold::fold_pair;
use crate::format;
use crate::metrics::MetricView;
use crate::options::Options;

/// Maximum number of drawn stacks, for a file of some MiB. The largest stacks in either report are drawn.
const MOST_STACKS: usize = 10_000;

/// Writes the flame graph of the change from the first to the second profile, or a picture that says that there is
/// nothing to draw. `totals`: start of the subtitle.
pub(crate) fn write_differential(
    profiles: [&Profile; 2],
    options: &Options,
    totals: String,
    mut out: &mut dyn io::Write,
) -> io::Result<()> {
    let view = MetricView::new(profiles[1], options.metric);
    let metric_title = view.title();
    let title = format!("memtrace: change of {metric_title} of {}", plain(&options.subject));
    let title = format::shortened(&title, TITLE_CHARACTERS);
    let mut stacks: Vec<(String, [u64; 2])> = fold_pair(profiles, options, SEPARATOR).into_iter().collect();
    if stacks.is_empty() {
        return write_empty(&title, &totals, &format!("neither report has {metric_title}"), out);
    }
    let subtitle = totals + &left_out(&mut stacks);
    let subtitle = format::shortened(&subtitle, SUBTITLE_CHARACTERS);
    if stacks.is_empty() {
        return write_empty(&title, &subtitle, "all stacks vanished; the other order of the reports draws them", out);
    }

    let mut drawing = inferno::flamegraph::Options::default();
    drawing.title = title;
    drawing.subtitle = Some(subtitle);
    drawing.count_name = String::from(view.unit());
    // inferno refuses lines that are not ordered by their text. For a "flame chart" it takes any order, and reads the
    // lines from the last to the first.
    drawing.flame_chart = true;
    let shift = excess_bits(&stacks);
    drawing.factor = (1_u64 << shift) as f64;
    let line = |(stack, [before, after]): &(String, [u64; 2])| {
        format!("{} {} {}", stack.replace(SEPARATOR, ";"), before >> shift, after >> shift)
    };
    let lines: Vec<_> = stacks.iter().rev().map(line).collect();
    inferno::flamegraph::from_lines(&mut drawing, lines.iter().map(String::as_str), &mut out)?;
    out.write_all(b"\n")
}

/// Removes the stacks that are not drawn. Returns a phrase for the subtitle with the number of removed stacks.
fn left_out(stacks: &mut Vec<(String, [u64; 2])>) -> String {
    let all = stacks.len();
    stacks.retain(|(_, [_, after])| *after > 0);
    let vanished = all - stacks.len();
    let small = stacks.len().saturating_sub(MOST_STACKS);
    if small > 0 {
        stacks.sort_by_key(|(_, [before, after])| Reverse(*before.max(after)));
        stacks.truncate(MOST_STACKS);
        stacks.sort();
    }
    let parts = [(vanished, "vanished"), (small, "small")].map(|(count, kind)| match count {
        0 => String::new(),
        many => format!(
            " · {} {kind} {} not drawn",
            number::grouped(many as u64),
            if many == 1 { "stack" } else { "stacks" }
        ),
    });
    parts.concat()
}

/// Returns the number of low bits that values must lose so that their sum fits in 63 bits. inferno adds the values
/// up, and their differences are signed.
fn excess_bits(stacks: &[(String, [u64; 2])]) -> u32 {
    let sum: u128 = stacks.iter().flat_map(|(_, values)| values).map(|value| u128::from(*value)).sum();
    (u128::BITS - sum.leading_zeros()).saturating_sub(i64::BITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vanished_and_small_stacks_are_counted() {
        let stack = |index: usize, values| (format!("stack{index:06}"), values);
        let mut stacks: Vec<_> = (0..MOST_STACKS + 2).map(|index| stack(index, [1, index as u64])).collect();
        assert_eq!(left_out(&mut stacks), " · 1 vanished stack not drawn · 1 small stack not drawn");
        assert_eq!((stacks.len(), &stacks[0]), (MOST_STACKS, &stack(2, [1, 2])));
        assert_eq!(left_out(&mut stacks), "");
    }

    #[test]
    fn values_lose_bits_only_where_their_sum_passes_63() {
        assert_eq!(excess_bits(&[(String::new(), [i64::MAX.unsigned_abs(), 0])]), 0);
        assert_eq!(excess_bits(&[(String::new(), [u64::MAX, u64::MAX])]), 2);
    }
}

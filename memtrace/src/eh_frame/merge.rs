//! Spans, in any order and overlapping, to one row of rows.

use memtrace_common::unwind::Rule;

use super::frames::Frames;
use super::row::Row;
use super::rule::END;

/// How long a gap between descriptions has to be to be marked as one. Shorter ones are padding, which is never run, and
/// marking them would cost a fifth more rows.
const MIN_GAP: u32 = 16;

/// The number of [`Rule::default`], which says that nothing is known.
pub(super) const NOTHING: u32 = 0;

/// The rows of all descriptions, ordered, each saying something else than the one before; and the rules that they name.
///
/// Where descriptions overlap, the one that begins last holds, and of those that begin together the first: this is what
/// a program's own unwinder finds through the sorted index of `.eh_frame`. `entry` is where the object begins to run.
pub(super) fn merge(frames: Frames, entry: Option<u32>) -> (Vec<Row>, Vec<Rule>) {
    let Frames { mut spans, rows, rules, stats } = frames;
    spans.sort_by_key(|span| span.begin);
    spans.dedup_by_key(|span| span.begin);
    // A description that could not be read may be of code that looks like padding.
    let min_gap = if stats.unreadable == 0 { MIN_GAP } else { 1 };

    let mut merged: Vec<Row> = Vec::with_capacity(rows.len() + 1);
    let mut push = |row: Row| {
        if merged.last().map_or(NOTHING, |last| last.rule) != row.rule {
            merged.push(row);
        }
    };
    for (index, span) in spans.iter().enumerate() {
        let next = spans.get(index + 1).map(|next| next.begin);
        let end = next.map_or(span.end, |next| span.end.min(next));
        let described = &rows[span.first..span.first + span.count];
        for row in described.iter().take_while(|row| row.offset < end) {
            push(Row { offset: row.offset, rule: row.rule + 1 });
        }
        if next.is_none_or(|next| next - end >= min_gap) {
            push(Row { offset: end, rule: NOTHING });
        }
    }
    let mut rules: Vec<_> = std::iter::once(Rule::default()).chain(rules).collect();
    if let Some(entry) = entry {
        end_at_entry(entry, &mut merged, &mut rules);
    }
    merged.shrink_to_fit();
    (merged, rules)
}

/// Where an object begins to run nobody has called it, and stacks end. Some say so, others, such as dynamic linkers, have no
/// description there: then nothing else holds from there to the next.
fn end_at_entry(entry: u32, rows: &mut Vec<Row>, rules: &mut Vec<Rule>) {
    let after = rows.partition_point(|row| row.offset <= entry);
    let here = after.checked_sub(1).and_then(|index| rows.get_mut(index));
    let rule = rules.len() as u32;
    match here {
        Some(row) if row.rule != NOTHING => return,
        Some(row) if row.offset == entry => row.rule = rule,
        _ => rows.insert(after, Row { offset: entry, rule }),
    }
    rules.push(END);
}

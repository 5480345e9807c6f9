//! Merging of unordered, overlapping spans into one sorted list of rows.

use memtrace_common::unwind::Rule;

use super::frames::Frames;
use super::row::Row;
use super::rule::END;

/// Minimum length in bytes of a gap between descriptions that gets a row of its own. Shorter gaps are padding, which
/// is never executed. With rows for them, a table would have a fifth more rows.
const MIN_GAP: u32 = 16;

/// Index of [`Rule::default`]: no information.
pub(super) const NOTHING: u32 = 0;

/// Code with a rule for the addresses without call frame information. Offsets are relative to the table's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilledCode {
    pub(super) begin: u32,
    pub(super) end: u32,
    pub(super) rule: Rule,
}

/// Returns the rows of all descriptions in order, without consecutive equal rules, and the rules of these rows.
///
/// If descriptions overlap, the description with the last start applies. If several have this start, the first one
/// applies. An unwinder that uses the sorted index of `.eh_frame` has the same result. `filled`: code with rules for its
/// gaps between descriptions. `entry`: the offset of the object's entry point.
pub(super) fn merge(
    frames: Frames,
    filled: impl Iterator<Item = FilledCode>,
    entry: Option<u32>,
) -> (Vec<Row>, Vec<Rule>) {
    let Frames { mut spans, rows, rules, unreadable } = frames;
    spans.sort_by_key(|span| span.begin);
    spans.dedup_by_key(|span| span.begin);
    // An unreadable description may cover code that looks like padding.
    let min_gap = if unreadable == 0 { MIN_GAP } else { 1 };

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
    for code in filled {
        fill(code, &mut merged, &mut rules);
    }
    if let Some(entry) = entry {
        end_at_entry(entry, &mut merged, &mut rules);
    }
    merged.dedup_by_key(|row| row.rule);
    merged.shrink_to_fit();
    (merged, rules)
}

/// Sets the rule of `code`, which is not empty, at its addresses without information.
fn fill(code: FilledCode, rows: &mut Vec<Row>, rules: &mut Vec<Rule>) {
    let FilledCode { begin, end, rule } = code;
    let first = rows.partition_point(|row| row.offset <= begin);
    let after = rows.partition_point(|row| row.offset < end);
    let before = first.checked_sub(1).map(|index| rows[index]);
    let mut last = before.map_or(NOTHING, |row| row.rule);
    if last != NOTHING && rows[first..after].iter().all(|row| row.rule != NOTHING) {
        return;
    }
    let rule = number(rules, rule);
    let mut new = Vec::new();
    if last == NOTHING {
        new.push(Row { offset: begin, rule });
    }
    for row in &rows[first..after] {
        last = row.rule;
        new.push(if last == NOTHING { Row { rule, ..*row } } else { *row });
    }
    if last == NOTHING && rows.get(after).is_none_or(|next| next.offset > end) {
        new.push(Row { offset: end, rule: NOTHING });
    }
    // A row without information at `begin` is replaced.
    let is_replaced = before.is_some_and(|row| row.offset == begin && row.rule == NOTHING);
    drop(rows.splice(first - usize::from(is_replaced)..after, new));
}

/// Returns the index of `rule` in `rules`, and adds the rule if it is missing.
fn number(rules: &mut Vec<Rule>, rule: Rule) -> u32 {
    let known = rules.iter().position(|known| *known == rule);
    let index = known.unwrap_or_else(|| {
        rules.push(rule);
        rules.len() - 1
    });
    // There are at most as many rules as rows, which fit into 32 bits.
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Adds a row that ends stacks at the entry point, which has no caller. Call frame information takes precedence, but some
/// objects, such as dynamic linkers, have none for their entry point.
fn end_at_entry(entry: u32, rows: &mut Vec<Row>, rules: &mut Vec<Rule>) {
    let after = rows.partition_point(|row| row.offset <= entry);
    let here = after.checked_sub(1).and_then(|index| rows.get_mut(index));
    match here {
        Some(row) if row.rule != NOTHING => {}
        Some(row) if row.offset == entry => row.rule = number(rules, END),
        _ => rows.insert(after, Row { offset: entry, rule: number(rules, END) }),
    }
}

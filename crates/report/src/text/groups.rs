//! Table of groups, unless stacks are grouped by process.

use super::cells;
use std::cmp::Reverse;
use std::io;

use memtrace_model::format as number;
use memtrace_model::{ClassColumns, Profile, Quantity};

use super::page_columns::{self, Memory};
use super::text_writer::TextWriter;
use crate::groups::{self, Group, Groups};
use crate::kernel_reported::KernelReported;
use crate::metrics::MetricView;
use crate::options::Options;
use crate::table::Column;
use crate::{escape, format};

/// Writes the `top` groups by the metric, and the sum of the other groups.
pub(super) fn write(profile: &Profile, options: &Options, roots: &Groups, out: &mut TextWriter<'_>) -> io::Result<()> {
    if options.top == 0 || options.by.is_process() || roots.all().is_empty() {
        return Ok(());
    }
    let view = MetricView::new(profile, options.metric);
    let mut groups: Vec<_> = roots.all().iter().collect();
    groups.sort_by_key(|group| Reverse(view.value(&group.usage)));
    let (shown, others) = groups.split_at(options.top.min(groups.len()));
    let rest = rest(others);
    let rows: Vec<_> = shown.iter().copied().chain(&rest).collect();

    let layout = profile.run.class.facts().columns;
    let [_, alloc, free, _] = profile.run.class.words().heads;
    let live = format::live_head(profile);
    let sums = |head, bytes: Quantity| {
        Column::numbers(head, rows.iter().map(|row| cells::sum(view, &row.usage, &row.sampled, bytes)))
    };
    let mut columns = match layout {
        ClassColumns::Stalls => Vec::from(cells::stalls(rows.iter().map(|row| row.usage.stalls()))),
        ClassColumns::Pages => {
            let memory = |row: &&Group| Memory { known: row.known, usage: row.usage };
            page_columns::columns(&rows.iter().map(memory).collect::<Vec<_>>(), view)
        }
        ClassColumns::Amounts => cells::held(profile, live, sums).collect(),
    };
    if view.is_of_peaks() {
        let peak = |row: &&Group| {
            row.at_peak().map_or_else(|| String::from("-"), |peak| cells::peak(profile, peak, &row.sampled))
        };
        columns.push(Column::numbers("PEAK", rows.iter().map(peak)));
    }
    if layout == ClassColumns::Amounts {
        columns.push(sums(alloc, Quantity::AllocBytes).with_importance(2));
        // The freed amount is the difference of the other amounts. If the other amounts have errors, it has no column.
        if !rows.iter().any(|row| row.sampled.is_sampled()) {
            let freed = |row: &&Group| cells::amount(view.measure(), row.usage.free());
            columns.push(Column::numbers(free, rows.iter().map(freed)).with_importance(1));
        }
    }
    columns.push(Column::text(groups::head(options.by), rows.iter().map(|row| escape::visible(&row.label))));
    writeln!(out, "\n{} by {}\n", format::capitalised(options.by.plural()), view.title())?;
    out.table(columns)
}

fn rest(others: &[&Group]) -> Option<Group> {
    let (first, more) = others.split_first()?;
    let label = number::counted(others.len() as u64, "other", "others");
    let Group { usage, sampled, has_peak, known, .. } = **first;
    let start = Group { label, usage, sampled, has_peak, known };
    Some(more.iter().fold(start, |mut sum, group| {
        sum.usage += group.usage;
        sum.sampled += group.sampled;
        sum.known = KernelReported::of_both(sum.known, group.known);
        sum.has_peak |= group.has_peak;
        sum
    }))
}

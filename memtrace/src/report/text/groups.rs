//! The table of groups, for groupings other than by process.

use super::cells;
use std::cmp::Reverse;
use std::io;

use super::page_columns::{self, Memory};
use crate::model::format as number;
use crate::model::{Amount, Bytes, ClassColumns, GroupBy, Metric, Profile, Usage};
use crate::report::groups::{self, Group, Groups};
use crate::report::kernel_reported::KernelReported;
use crate::report::options::Options;
use crate::report::table::{self, Column};
use crate::report::{escape, format};

/// Writes the `top` groups by the metric, and the sum of the others.
pub(super) fn write(profile: &Profile, options: &Options, roots: &Groups, out: &mut dyn io::Write) -> io::Result<()> {
    if options.top == 0 || options.by == GroupBy::Process || roots.all().is_empty() {
        return Ok(());
    }
    let metric = options.metric;
    let mut groups: Vec<_> = roots.all().iter().collect();
    groups.sort_by_key(|group| Reverse(group.value(metric)));
    let (shown, others) = groups.split_at(options.top.min(groups.len()));
    let rest = rest(others);
    let rows: Vec<_> = shown.iter().copied().chain(&rest).collect();

    let amount = |amount: Amount| cells::amount(metric, amount);
    let layout = profile.class.facts().columns;
    let [_, alloc, free, _] = profile.class.words().heads;
    let live = format::live_head(profile);
    let sums = |head, of: fn(&Usage) -> Amount| Column::numbers(head, rows.iter().map(|row| amount(of(&row.usage))));
    let mut columns = match layout {
        ClassColumns::Stalls => Vec::from(cells::stalls(rows.iter().map(|row| row.usage.stalls))),
        ClassColumns::Pages => {
            let memory = |row: &&Group| Memory { known: row.known, usage: row.usage, variance: row.variance };
            page_columns::columns(&rows.iter().map(memory).collect::<Vec<_>>(), profile, metric)
        }
        ClassColumns::Amounts => cells::held(profile, live, sums).collect(),
    };
    if metric == Metric::PeakBytes {
        let peak = |row: &&Group| row.at_peak.map_or_else(|| String::from("-"), Bytes::compact);
        columns.push(Column::numbers("PEAK", rows.iter().map(peak)));
    }
    if layout == ClassColumns::Amounts {
        columns.push(sums(alloc, |usage| usage.alloc));
        columns.push(sums(free, |usage| usage.free));
    }
    columns.push(Column::text(groups::head(options.by), rows.iter().map(|row| escape::visible(&row.label))));
    writeln!(out, "\n{} by {}\n", format::capitalised(options.by.plural()), format::metric_title(profile, metric))?;
    table::write(&columns, out)
}

fn rest(others: &[&Group]) -> Option<Group> {
    let (first, more) = others.split_first()?;
    let label = number::counted(others.len() as u64, "other", "others");
    let start =
        Group { label, at_peak: first.at_peak, usage: first.usage, variance: first.variance, known: first.known };
    Some(more.iter().fold(start, |mut sum, group| {
        sum.usage += group.usage;
        sum.variance += group.variance;
        sum.known = KernelReported::of_both(sum.known, group.known);
        let at_peak = |group: &Group| group.at_peak.map_or(0, |bytes| bytes.0);
        sum.at_peak = sum.at_peak.or(group.at_peak).map(|_| Bytes(at_peak(&sum).saturating_add(at_peak(group))));
        sum
    }))
}

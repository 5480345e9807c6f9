//! The comparison as text.

use std::io;

use super::side::{Side, signed};
use super::sites::{Compared, Kind, STABLE_PARTS, Site, sum_of};
use crate::model::format as number;
use crate::model::{EventClass, Metric, plain};
use crate::report::table::{self, Column};
use crate::report::text::stack;
use crate::report::{escape, format};

/// Stable sites that are listed.
const STABLE_SHOWN: usize = 3;

/// Writes totals, a table by kind of change, and the sites that changed most.
pub(super) fn write(
    [before, after]: [&Side; 2],
    compared: &[Compared<'_>; 2],
    sites: &[Site],
    metric: Metric,
    top: usize,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let class = compared[1].profile.class;
    let title = format::metric_title(compared[1].profile, metric);
    let [first, last] = [before, after].map(|side| side.value(metric));
    writeln!(out, "Difference of {title}: {}", signed(class, metric, first, last))?;
    writeln!(
        out,
        "  before  {:>12}  {} ({})",
        format::value(class, metric, first),
        plain(&before.name),
        before.described()
    )?;
    writeln!(
        out,
        "  after   {:>12}  {} ({})",
        format::value(class, metric, last),
        plain(&after.name),
        after.described()
    )?;
    for (side, when) in [(before, "before"), (after, "after")] {
        let lost = side.profile.losses.total();
        if lost > 0 {
            let events = number::counted(lost, "event was", "events were");
            writeln!(out, "  {events} lost in the report {when}: its numbers are incomplete")?;
        }
    }
    if sites.is_empty() {
        return writeln!(out, "\nNo sites to compare: neither report has {title}.");
    }
    writeln!(out)?;
    write_kinds(class, sites, metric, out)?;

    let (stable, changed): (Vec<_>, Vec<_>) = sites.iter().partition(|site| site.kind() == Kind::Stable);
    let percent = 100 / STABLE_PARTS;
    match changed.len() {
        0 => writeln!(out, "\nNo site changed by more than {percent} %.")?,
        many => writeln!(out, "\n{} by change of {title}", of_all(many.min(top), many))?,
    }
    write_sites(class, compared, metric, changed.iter().take(top), out)?;
    let mut stable = stable;
    stable.sort_by_key(|site| std::cmp::Reverse(site.after));
    if !stable.is_empty() && top > 0 {
        let shown = stable.len().min(STABLE_SHOWN);
        writeln!(out, "\n{} that changed by at most {percent} %, by {title}", of_all(shown, stable.len()))?;
        write_sites(class, compared, metric, stable.iter().take(shown), out)?;
    }
    Ok(())
}

/// Returns `The one site`, `All 3 sites` or `Top 10 of 47 sites`.
fn of_all(shown: usize, all: usize) -> String {
    match (shown, all) {
        (_, 1) => String::from("The one site"),
        (shown, all) if shown == all => format!("All {} sites", number::grouped(all as u64)),
        (shown, all) => format!("Top {} of {} sites", number::grouped(shown as u64), number::grouped(all as u64)),
    }
}

fn write_kinds(class: EventClass, sites: &[Site], metric: Metric, out: &mut dyn io::Write) -> io::Result<()> {
    let sums = Kind::ALL.map(|kind| (kind.name(), sum_of(sites, kind)));
    let total = sums.iter().fold((0, 0, 0), |(count, before, after), (_, sum)| {
        (count + sum.0, sum.1.saturating_add(before), sum.2.saturating_add(after))
    });
    let rows: Vec<_> = sums.into_iter().chain([("total", total)]).collect();
    let column =
        |head, cell: &dyn Fn(&(u64, u64, u64)) -> String| Column::numbers(head, rows.iter().map(|(_, sum)| cell(sum)));
    let columns = [
        Column::text("SITES", rows.iter().map(|(name, _)| String::from(*name))),
        column("COUNT", &|sum| number::grouped(sum.0)),
        column("BEFORE", &|sum| format::value(class, metric, sum.1)),
        column("AFTER", &|sum| format::value(class, metric, sum.2)),
        column("CHANGE", &|sum| signed(class, metric, sum.1, sum.2)),
    ];
    table::write(&columns, out)
}

fn write_sites<'a>(
    class: EventClass,
    compared: &[Compared<'_>; 2],
    metric: Metric,
    sites: impl Iterator<Item = &'a &'a Site>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    for (index, site) in sites.enumerate() {
        writeln!(
            out,
            "\n{:>3}. {}  {}: {} to {}, {}",
            index + 1,
            signed(class, metric, site.before, site.after),
            site.kind().name(),
            format::value(class, metric, site.before),
            format::value(class, metric, site.after),
            escape::visible(&site.process)
        )?;
        let (report, example) = site.example(compared);
        stack::write(&stack::lines(&report.frames, example), &report.frames, out)?;
    }
    Ok(())
}

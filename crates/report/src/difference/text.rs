//! The comparison as text.

use std::io;

use memtrace_model::format as number;
use memtrace_model::plain;

use super::side::{self, Side, signed};
use super::sites::{Compared, Kind, STABLE_PARTS, Site, sum_of};
use crate::metrics::MetricView;
use crate::table::{self, Column};
use crate::text::stack;
use crate::text::text_writer::TextWriter;
use crate::{escape, format, samplers};

/// Maximum number of stable sites in the list, and of sites with a change within the error.
const STABLE_SHOWN: usize = 3;

/// Writes the totals, a table by kind of change, the `top` sites that changed most, the sites with the largest changes
/// within the error, and the largest stable sites.
pub(super) fn write(
    [before, after]: [&Side; 2],
    compared: &[Compared<'_>; 2],
    sites: &[Site],
    view: MetricView<'_>,
    top: usize,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let title = view.title();
    let [first, last] = [before, after].map(|side| side.value(view));
    let uncertainty = side::uncertainty_of_total([before, after], view);
    let error = side::error_of_change(uncertainty, view, first, last);
    writeln!(out, "Difference of {title}: {}{error}", signed(view, first, last))?;
    for (side, when, value) in [(before, "before", first), (after, "after ", last)] {
        let error = side.error_text(view);
        writeln!(out, "  {when}  {:>12}{error}  {} ({})", view.text(value), plain(&side.name), side.described())?;
    }
    for (side, when) in [(before, "before"), (after, "after")] {
        let lost = side.profile.losses.total();
        if lost > 0 {
            let events = number::counted(lost, "event was", "events were");
            writeln!(out, "  {events} lost in the report {when}: its numbers are incomplete")?;
        }
        if side.is_held {
            writeln!(out, "  live blocks of the report {when} count as held at exit")?;
        }
        if let Some(demoted) = format::demoted(&side.profile) {
            writeln!(out, "  {demoted} in the report {when}")?;
        }
        if let Some(sources) = samplers::sources(&side.profile) {
            writeln!(out, "  estimates in the report {when}: {sources}")?;
        }
    }
    if uncertainty.is_some() {
        writeln!(out, "  the error of a change is too large for blocks that are in both reports")?;
    }
    if sites.is_empty() {
        return writeln!(out, "\nNo sites to compare: neither report has {title}.");
    }
    writeln!(out)?;
    write_kinds(sites, view, out)?;

    let (stable, others): (Vec<_>, Vec<_>) = sites.iter().partition(|site| site.kind() == Kind::Stable);
    let (within, changed): (Vec<_>, Vec<_>) = others.into_iter().partition(|site| site.kind() == Kind::WithinError);
    let percent = 100 / STABLE_PARTS;
    match (changed.len(), within.is_empty()) {
        (0, true) => writeln!(out, "\nNo site changed by more than {percent} %.")?,
        (0, false) => writeln!(out, "\nNo site changed by more than {percent} % and its error.")?,
        (many, _) => writeln!(out, "\n{} by change of {title}", of_all(many.min(top), many))?,
    }
    write_sites(compared, view, changed.iter().take(top), out)?;
    if !within.is_empty() && top > 0 {
        let shown = within.len().min(STABLE_SHOWN);
        writeln!(out, "\n{} that changed within the error, by change of {title}", of_all(shown, within.len()))?;
        write_sites(compared, view, within.iter().take(shown), out)?;
    }
    let mut stable = stable;
    stable.sort_by_key(|site| std::cmp::Reverse(site.after));
    if !stable.is_empty() && top > 0 {
        let shown = stable.len().min(STABLE_SHOWN);
        writeln!(out, "\n{} that changed by at most {percent} %, by {title}", of_all(shown, stable.len()))?;
        write_sites(compared, view, stable.iter().take(shown), out)?;
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

fn write_kinds(sites: &[Site], view: MetricView<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let sums = Kind::ALL.map(|kind| (kind.words(), sum_of(sites, kind)));
    let total = sums.iter().fold((0, 0, 0), |(count, before, after), (_, sum)| {
        (count + sum.0, sum.1.saturating_add(before), sum.2.saturating_add(after))
    });
    // Only estimates have an error.
    let is_shown = |(name, (count, ..)): &(&str, (u64, u64, u64))| *count > 0 || *name != Kind::WithinError.words();
    let rows: Vec<_> = sums.into_iter().filter(is_shown).chain([("total", total)]).collect();
    let column =
        |head, cell: &dyn Fn(&(u64, u64, u64)) -> String| Column::numbers(head, rows.iter().map(|(_, sum)| cell(sum)));
    let columns = [
        Column::text("SITES", rows.iter().map(|(name, _)| String::from(*name))),
        column("COUNT", &|sum| number::grouped(sum.0)),
        column("BEFORE", &|sum| view.text(sum.1)),
        column("AFTER", &|sum| view.text(sum.2)),
        column("CHANGE", &|sum| signed(view, sum.1, sum.2)),
    ];
    table::write(&columns, out)
}

fn write_sites<'a>(
    compared: &[Compared<'_>; 2],
    view: MetricView<'_>,
    sites: impl Iterator<Item = &'a &'a Site>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    for (index, site) in sites.enumerate() {
        writeln!(
            out,
            "\n{:>3}. {}{}  {}: {} to {}, {}",
            index + 1,
            signed(view, site.before, site.after),
            side::error_of_change(site.uncertainty, view, site.before, site.after),
            site.kind().words(),
            view.text(site.before),
            view.text(site.after),
            escape::visible(&site.process)
        )?;
        let (report, example) = site.example(compared);
        let out = &mut TextWriter::new(out, table::COLUMNS);
        stack::write(&stack::lines(&report.frames, example), &report.frames, out)?;
    }
    Ok(())
}

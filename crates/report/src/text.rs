//! The text report: totals, tables, sites, and the quality of the numbers.

mod activity;
mod assessment;
mod cells;
pub(super) mod frames;
mod groups;
mod histograms;
mod memcg;
mod oom_kills;
mod page_columns;
mod processes;
mod quality;
mod reclaim;
mod residency;
mod sites;
pub(super) mod stack;
mod stack_advice;
mod stall_columns;
mod untraced;
mod waits;

use std::io;

use memtrace_model::format as number;
use memtrace_model::{Bytes, Measure, Profile, Quantity, TouchWindow, plain};

use crate::groups::Groups;
use crate::kernel_reported::{self, KernelReported};
use crate::metrics::MetricView;
use crate::options::Options;
use crate::wrap::wrapped;
use crate::{allocators, estimate, format, resident_sets};

/// Writes the text report. It has no colours, and the line feed is its only control character.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let time = match &profile.run.window {
        Some(window) => {
            format!("changes from +{} to +{}", number::duration(window.start), number::duration(window.end))
        }
        None => format!("traced for {}", number::duration(profile.run.duration)),
    };
    writeln!(out, "memtrace: {}, {time}\n", plain(&options.subject))?;
    totals(MetricView::new(profile, options.metric), out)?;
    oom_kills::write(profile, out)?;
    residency::write(profile, out)?;
    if let Some(sentences) = resident_sets::sentences(profile) {
        writeln!(out, "\n{}", wrapped(&sentences, 0))?;
    }
    reclaim::write(profile, options, out)?;
    if !profile.processes.is_empty() && !profile.is_of_one_image() {
        processes::write(profile, options, out)?;
    }
    untraced::write(profile, options, out)?;
    let roots = Groups::of(profile, options.by);
    groups::write(profile, options, &roots, out)?;
    histograms::write(profile, out)?;
    activity::write(profile, options, out)?;
    sites::write(profile, options, &roots, out)?;
    sites::write_shrunk(profile, options, &roots, out)?;
    quality::write(profile, out)
}

fn totals(view: MetricView<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let profile = view.profile();
    let total = profile.total();
    let words = profile.run.class.words();
    if profile.run.class.counts_stalls() {
        let waits = format::blocks(profile.run.class, total.stalls().count);
        return writeln!(out, "  {:<10}{:>12} in {waits} for memory", "stalled", total.stalls().time.to_string());
    }
    let live_error = kernel_reported::live_error(Some(KernelReported::of_all(profile)), profile, &total)
        .map(|pages| estimate::size_of_pages(pages).0);
    if view.is_of_marks() {
        let blocks = format::blocks(profile.run.class, total.live().count);
        writeln!(out, "  {:<10}{:>12} in {blocks} allocated between the marks", "growth", total.live().bytes)?;
    } else if profile.run.window.is_some() {
        let (grown, shrunk) = format::grown_and_shrunk(profile);
        let (bytes, blocks) =
            (format::change(total.live().bytes), format::change_in_blocks(profile.run.class, total.live().count));
        writeln!(out, "  {:<10}{bytes:>12} in {blocks} ({grown} grown, {shrunk} shrunk)", "net growth")?;
    }
    let live = (format::shows_live(profile) && profile.run.window.is_none()).then_some((words.live, total.live()));
    let exit = format::shows_exit(profile).then_some(("at exit", total.exit()));
    let all = [(words.alloc, total.alloc()), (words.free, total.free())];
    for (name, amount) in live.into_iter().chain(exit).chain(all) {
        let is_held = ![words.alloc, words.free].contains(&name);
        let age = match profile.run.older {
            Some(age) if is_held => format!(", only blocks at least {} old", number::duration(age)),
            _ => String::new(),
        };
        let error = match name {
            _ if is_held => live_error,
            _ if name == words.alloc => estimate::error(profile, Quantity::AllocBytes, &total),
            _ => estimate::released_error(profile, Measure::Bytes, &total),
        };
        let error = estimate::format_error(error, Measure::Bytes);
        writeln!(
            out,
            "  {name:<10}{:>12}{error} in {}{age}",
            amount.bytes,
            format::blocks(profile.run.class, amount.count)
        )?;
    }
    if let Some(TouchWindow { method, duration }) = profile.run.touches {
        let within = format!("{} within {} (method {})", method.verb(), number::duration(duration), method.name());
        writeln!(out, "  {:<10}{:>12} {within}", "hot", Bytes(total[Quantity::HotBytes]))?;
        writeln!(out, "  {:<10}{:>12} not {within}", "cold", Bytes(total[Quantity::ColdBytes]))?;
    }
    if total.temporary().count > 0 {
        let blocks = format::blocks(profile.run.class, total.temporary().count);
        let share = number::percent(total.temporary().count as f64 / total.alloc().count.max(1) as f64);
        let bytes = total.temporary().bytes;
        writeln!(out, "  {:<10}{bytes:>12} in {blocks}, {share} of the allocated ones", "temporary")?;
    }
    if profile.run.class.counts_pages() {
        write_page_faults(profile, out)?;
    }
    if profile.run.class.holds_mappings() {
        let resident = Bytes(total[Quantity::ResidentBytes]);
        writeln!(out, "  {:<10}{resident:>12} of the mapped memory is resident; the rest is reserved", "touched")?;
        let own = allocators::mapped(profile);
        writeln!(
            out,
            "  {:<10}{own:>12} of the mapped memory belongs to allocators, whose blocks are heap events",
            "heap"
        )?;
    }
    if profile.run.page_sample > 1 {
        let sampled = number::grouped(profile.run.page_sample.into());
        writeln!(
            out,
            "\n  Numbers with ± are estimates from one page in {sampled}; five of a hundred exceed their error."
        )?;
    }
    if let Some(peak) = profile.sole_peak() {
        writeln!(out, "  {:<10}{peak:>12} {} at once", "peak", words.live)?;
    }
    Ok(())
}

/// Writes the number of traced major faults, and the page faults as the kernel counts them, if known.
fn write_page_faults(profile: &Profile, out: &mut dyn io::Write) -> io::Result<()> {
    let major = profile.stacks.iter().map(|stack| stack.usage[Quantity::MajorFaults]).sum::<u64>();
    let error = estimate::format_error(estimate::count_error(profile, major), Measure::Count);
    let waited = number::grouped(major);
    writeln!(out, "  {:<10}{waited:>12}{error} of the touches waited for I/O (major faults)", "waited")?;
    let Some(faults) = KernelReported::of_all(profile).faults else {
        return Ok(());
    };
    let [all, major] = [faults.total(), faults.major].map(number::grouped);
    writeln!(out, "  {:<10}{all:>12} page faults as the kernel counts them, {major} of them major", "counted")
}

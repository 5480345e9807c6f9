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
pub(super) mod text_writer;
mod untraced;
mod waits;

use std::io;

use memtrace_model::format as number;
use memtrace_model::{Amount, Bytes, Measure, Profile, Quantity, TouchWindow, plain};

use self::sites::Bounds;
use self::text_writer::{TextWriter, line_count};
use crate::groups::Groups;
use crate::kernel_reported::{self, KernelReported};
use crate::metrics::MetricView;
use crate::options::{ListedSites, Options, TextLayout};
use crate::{allocators, estimate, format, resident_sets};

/// Divisor of the lines of a report that fits in a terminal: each other list has at most this part of them as rows.
const LISTS: usize = 4;

/// Writes the text report. It has no colours, and the line feed is its only control character.
pub(super) fn write(
    profile: &Profile,
    options: &Options,
    layout: TextLayout,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let TextLayout { columns, sites } = layout;
    let view = MetricView::new(profile, options.metric);
    let roots = Groups::of(profile, options.by);
    let rows = match sites {
        ListedSites::Rows | ListedSites::Large => options.top,
        ListedSites::Fitting(lines) => options.top.min((lines / LISTS).max(1)),
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let lists = Options { top: rows, ..options.clone() };
    write_before_sites(profile, &lists, &roots, &mut TextWriter::new(&mut before, columns))?;
    quality::write(profile, &mut TextWriter::new(&mut after, columns))?;
    after.extend_from_slice(totals_in_one_line(view, columns).as_bytes());
    after.push(b'\n');
    // In a window of a recording, growth and decreases have a list each.
    let site_lists = if view.is_net_growth() { 2 } else { 1 };
    let room = |lines: usize| lines.saturating_sub(line_count(&before) + line_count(&after)) / site_lists;
    let bounds = match sites {
        ListedSites::Rows => Bounds { most: options.top, only_large: false, lines: None },
        ListedSites::Large => Bounds { most: options.top, only_large: true, lines: None },
        ListedSites::Fitting(lines) => Bounds { most: usize::MAX, only_large: true, lines: Some(room(lines)) },
    };
    let mut out = TextWriter::new(out, columns);
    out.write_all(&before)?;
    sites::write(profile, options, bounds, &roots, &mut out)?;
    sites::write_shrunk(profile, options, bounds, &roots, &mut out)?;
    out.write_all(&after)
}

fn write_before_sites(
    profile: &Profile,
    options: &Options,
    roots: &Groups,
    out: &mut TextWriter<'_>,
) -> io::Result<()> {
    let time = match &profile.run.window {
        Some(window) => {
            format!("changes from +{} to +{}", number::duration(window.start), number::duration(window.end))
        }
        None => format!("traced for {}", number::duration(profile.run.duration)),
    };
    // Further lines are indented, so that none begins with a text from the target.
    let head = out.wrapped(&format!("memtrace: {}, {time}", plain(&options.subject)), 2);
    writeln!(out, "{}\n", head.trim_start())?;
    totals(MetricView::new(profile, options.metric), out)?;
    oom_kills::write(profile, out)?;
    residency::write(profile, out)?;
    if let Some(sentences) = resident_sets::sentences(profile) {
        writeln!(out, "\n{}", out.wrapped(&sentences, 0))?;
    }
    reclaim::write(profile, options, out)?;
    if !profile.processes.is_empty() && !profile.is_of_one_image() {
        processes::write(profile, options, out)?;
    }
    untraced::write(profile, options, out)?;
    groups::write(profile, options, roots, out)?;
    histograms::write(profile, out)?;
    activity::write(profile, options, out)
}

/// A sum of blocks in the totals.
struct SumOfBlocks {
    name: &'static str,
    amount: Amount,
    /// Error of an estimate, as a suffix of the bytes.
    error: String,
    /// True if a process holds the blocks, or held them at its exit.
    is_held: bool,
}

/// Returns the sums of live blocks, of blocks held at exit, and of all allocated and freed blocks, if the report shows them.
fn sums_of_blocks(profile: &Profile) -> Vec<SumOfBlocks> {
    let total = profile.total();
    let words = profile.run.class.words();
    let live_error = kernel_reported::live_error(Some(KernelReported::of_all(profile)), profile, &total)
        .map(|pages| estimate::size_of_pages(pages).0);
    let sum = |name, amount, error, is_held| {
        let error = estimate::format_error(error, Measure::Bytes);
        SumOfBlocks { name, amount, error, is_held }
    };
    let live = (format::shows_live(profile) && profile.run.window.is_none())
        .then(|| sum(words.live, total.live(), live_error, true));
    let exit = format::shows_exit(profile).then(|| sum("at exit", total.exit(), live_error, true));
    let all = [
        sum(words.alloc, total.alloc(), estimate::error(profile, Quantity::AllocBytes, &total), false),
        sum(words.free, total.free(), estimate::released_error(profile, Measure::Bytes, &total), false),
    ];
    live.into_iter().chain(exit).chain(all).collect()
}

/// Returns the totals in one line: `Total: live 2.17 MiB in 1,650 blocks, allocated 3.19 MiB, freed 1.02 MiB.` Sums that do not
/// fit in `columns` characters are left out, because the report begins with all of them.
fn totals_in_one_line(view: MetricView<'_>, columns: usize) -> String {
    let profile = view.profile();
    let class = profile.run.class;
    let total = profile.total();
    if class.counts_stalls() {
        let waits = format::blocks(class, total.stalls().count);
        return format!("Total: stalled {} in {waits} for memory.", total.stalls().time);
    }
    let live = total.live();
    let growth = match &profile.run.window {
        _ if view.is_of_marks() => Some(format!("growth {} in {}", live.bytes, format::blocks(class, live.count))),
        Some(_) => {
            let blocks = format::change_in_blocks(class, live.count);
            Some(format!("net growth {} in {blocks}", format::change(live.bytes)))
        }
        None => None,
    };
    let mut line = String::from("Total: ");
    line.push_str(growth.as_deref().unwrap_or_default());
    for (index, SumOfBlocks { name, amount, error, .. }) in sums_of_blocks(profile).into_iter().enumerate() {
        let is_first = growth.is_none() && index == 0;
        let next = match is_first {
            true => format!("{name} {}{error} in {}", amount.bytes, format::blocks(class, amount.count)),
            false => format!(", {name} {}{error}", amount.bytes),
        };
        // The line ends with a full stop.
        if !is_first && line.chars().count() + next.chars().count() >= columns {
            break;
        }
        line.push_str(&next);
    }
    line.push('.');
    line
}

fn totals(view: MetricView<'_>, out: &mut TextWriter<'_>) -> io::Result<()> {
    let profile = view.profile();
    let total = profile.total();
    let words = profile.run.class.words();
    if profile.run.class.counts_stalls() {
        let waits = format::blocks(profile.run.class, total.stalls().count);
        return out.total("stalled", &total.stalls().time, &format!("in {waits} for memory"));
    }
    if view.is_of_marks() {
        let blocks = format::blocks(profile.run.class, total.live().count);
        out.total("growth", &total.live().bytes, &format!("in {blocks} allocated between the marks"))?;
    } else if profile.run.window.is_some() {
        let (grown, shrunk) = format::grown_and_shrunk(profile);
        let (bytes, blocks) =
            (format::change(total.live().bytes), format::change_in_blocks(profile.run.class, total.live().count));
        out.total("net growth", &bytes, &format!("in {blocks} ({grown} grown, {shrunk} shrunk)"))?;
    }
    for SumOfBlocks { name, amount, error, is_held } in sums_of_blocks(profile) {
        let age = match profile.run.older {
            Some(age) if is_held => format!(", only blocks at least {} old", number::duration(age)),
            _ => String::new(),
        };
        let blocks = format::blocks(profile.run.class, amount.count);
        out.total(name, &amount.bytes, format!("{error} in {blocks}{age}").trim_start())?;
    }
    if let Some(TouchWindow { method, duration }) = profile.run.touches {
        let within = format!("{} within {} (method {})", method.verb(), number::duration(duration), method.name());
        out.total("hot", &Bytes(total[Quantity::HotBytes]), &within)?;
        out.total("cold", &Bytes(total[Quantity::ColdBytes]), &format!("not {within}"))?;
    }
    if total.temporary().count > 0 {
        let blocks = format::blocks(profile.run.class, total.temporary().count);
        let share = number::percent(total.temporary().count as f64 / total.alloc().count.max(1) as f64);
        let bytes = total.temporary().bytes;
        out.total("temporary", &bytes, &format!("in {blocks}, {share} of the allocated ones"))?;
    }
    if profile.run.class.counts_pages() {
        write_page_faults(profile, out)?;
    }
    if profile.run.class.holds_mappings() {
        let unknown = format::unknown_residency(profile);
        let resident = format::resident_bytes(Bytes(total[Quantity::ResidentBytes]), unknown.is_some());
        let rest = unknown.as_deref().unwrap_or("the rest is reserved");
        out.total("touched", &resident, &format!("of the mapped memory is resident; {rest}"))?;
        let own = allocators::mapped(profile);
        out.total("heap", &own, "of the mapped memory belongs to allocators, whose blocks are heap events")?;
    }
    if profile.run.page_sample > 1 {
        let sampled = number::grouped(profile.run.page_sample.into());
        let text =
            format!("Numbers with ± are estimates from one page in {sampled}; five of a hundred exceed their error.");
        writeln!(out, "\n{}", out.wrapped(&text, 2))?;
    }
    if let Some(peak) = profile.sole_peak() {
        out.total("peak", &peak, &format!("{} at once", words.live))?;
    }
    Ok(())
}

/// Writes the number of traced major faults, and the page faults as the kernel counts them, if known.
fn write_page_faults(profile: &Profile, out: &mut TextWriter<'_>) -> io::Result<()> {
    let major = profile.stacks.iter().map(|stack| stack.usage[Quantity::MajorFaults]).sum::<u64>();
    let error = estimate::format_error(estimate::count_error(profile, major), Measure::Count);
    let waited = number::grouped(major);
    let text = format!("{error} of the touches waited for I/O (major faults)");
    out.total("waited", &waited, text.trim_start())?;
    let Some(faults) = KernelReported::of_all(profile).faults else {
        return Ok(());
    };
    let [all, major] = [faults.total(), faults.major].map(number::grouped);
    out.total("counted", &all, &format!("page faults as the kernel counts them, {major} of them major"))
}

//! The totals of the text report.

use std::io;

use memtrace_model::format as number;
use memtrace_model::{Amount, Bytes, Measure, Profile, Quantity, TouchWindow};

use super::text_writer::TextWriter;
use crate::estimate::{SampledPart, Uncertainty};
use crate::kernel_reported::{self, KernelReported};
use crate::metrics::MetricView;
use crate::{allocators, estimate, format, samplers};

/// A sum of blocks.
struct SumOfBlocks {
    name: &'static str,
    /// Bytes, or their change.
    bytes: String,
    /// Error of an estimate, as a suffix of the bytes.
    error: String,
    /// Number of the blocks with its error.
    blocks: String,
    /// Exact part of the bytes, as a suffix of the number of blocks. Empty if all bytes are exact, or if no byte is exact.
    exact: String,
    /// True if a process holds the blocks, or held them at its exit.
    is_held: bool,
}

/// Sums over the stacks of a profile.
struct Sums<'a> {
    profile: &'a Profile,
    sampled: SampledPart,
}

impl<'a> Sums<'a> {
    fn of(profile: &'a Profile) -> Self {
        Self { profile, sampled: SampledPart::of_profile(profile) }
    }

    /// Returns the sums of live blocks, of blocks held at exit, and of all allocated and freed blocks, if the report shows
    /// them.
    fn blocks(&self) -> Vec<SumOfBlocks> {
        let profile = self.profile;
        let total = profile.total();
        let words = profile.run.class.words();
        let live_error = kernel_reported::live_error(Some(KernelReported::of_all(profile)), profile, &total)
            .map(|pages| estimate::size_of_pages(pages).0);
        let part = self.sampled.sum();
        let live = (format::shows_live(profile) && profile.run.window.is_none()).then(|| SumOfBlocks {
            is_held: true,
            ..self.sum(words.live, [total.live(), part.live()], live_error, self.uncertainties(Quantity::LiveBytes))
        });
        let exit = format::shows_exit(profile).then(|| SumOfBlocks {
            is_held: true,
            ..self.sum("at exit", [total.exit(), part.exit()], live_error, self.uncertainties(Quantity::ExitBytes))
        });
        let alloc_error = estimate::error(profile, Quantity::AllocBytes, &total);
        let free_error = estimate::released_error(profile, Measure::Bytes, &total);
        let of_free = [Measure::Bytes, Measure::Count].map(|measure| self.sampled.freed_uncertainty(profile, measure));
        let of_alloc = self.uncertainties(Quantity::AllocBytes);
        let all = [
            // In a window of a recording, corrections of samples can exceed what was allocated or freed in the window.
            self.sum(words.alloc, [total.alloc().increase(), part.alloc()], alloc_error, of_alloc),
            self.sum(words.free, [total.free().increase(), part.free()], free_error, of_free),
        ];
        live.into_iter().chain(exit).chain(all).collect()
    }

    /// Returns the growth of the live memory in a window of a recording; `None` if the report has no window.
    fn growth(&self, view: MetricView<'_>) -> Option<SumOfBlocks> {
        let class = self.profile.run.class;
        let live = self.profile.total().live();
        if view.is_of_marks() {
            // These blocks have the uncertainty of all blocks that were allocated between the marks.
            let growth = self.sum("growth", [live; 2], None, self.uncertainties(Quantity::AllocBytes));
            return Some(growth);
        }
        self.profile.run.window.as_ref()?;
        let [bytes, count] = self.uncertainties(Quantity::LiveBytes);
        let growth = self.sum("net growth", [live; 2], None, [bytes, None]);
        let blocks = format::change_in_blocks(class, live.count, count);
        Some(SumOfBlocks { bytes: format::change(live.bytes), blocks, ..growth })
    }

    /// Returns the uncertainties of the bytes and of the number of their blocks. `bytes`: quantity of the bytes.
    fn uncertainties(&self, bytes: Quantity) -> [Option<Uncertainty>; 2] {
        [Some(bytes), bytes.facts().pair].map(|quantity| self.sampled.uncertainty(self.profile, quantity?))
    }

    /// Returns a sum with `is_held` false. `amount`: the sum. `sampled`: its sampled part. `pages`: error of the bytes from
    /// sampled pages.
    fn sum(
        &self,
        name: &'static str,
        [amount, sampled]: [Amount; 2],
        pages: Option<u64>,
        [bytes, count]: [Option<Uncertainty>; 2],
    ) -> SumOfBlocks {
        let exact = Bytes(amount.bytes.0.saturating_sub(sampled.bytes.0));
        SumOfBlocks {
            name,
            bytes: amount.bytes.to_string(),
            error: match bytes {
                Some(uncertainty) => uncertainty.suffix(Measure::Bytes, amount.bytes.0),
                None => estimate::format_error(pages, Measure::Bytes),
            },
            blocks: format::estimated_blocks(self.profile.run.class, amount.count, count),
            exact: match bytes {
                Some(_) if exact > Bytes(0) => format!(", {exact} of it exact"),
                _ => String::new(),
            },
            is_held: false,
        }
    }
}

/// Returns the totals in one line: `Total: live 2.17 MiB in 1,650 blocks, allocated 3.19 MiB, freed 1.02 MiB.` Sums that do not
/// fit in `columns` characters are left out, because the report begins with all of them.
pub(super) fn in_one_line(view: MetricView<'_>, columns: usize) -> String {
    let profile = view.profile();
    let class = profile.run.class;
    let total = profile.total();
    if class.counts_stalls() {
        let waits = format::blocks(class, total.stalls().count);
        return format!("Total: stalled {} in {waits} for memory.", total.stalls().time);
    }
    let sums = Sums::of(profile);
    let mut line = String::from("Total: ");
    for (index, sum) in sums.growth(view).into_iter().chain(sums.blocks()).enumerate() {
        let SumOfBlocks { name, bytes, error, blocks, .. } = sum;
        let next = match index {
            0 => format!("{name} {bytes}{error} in {blocks}"),
            _ => format!(", {name} {bytes}{error}"),
        };
        // The line ends with a full stop.
        if index > 0 && line.chars().count() + next.chars().count() >= columns {
            break;
        }
        line.push_str(&next);
    }
    line.push('.');
    line
}

/// Writes the totals, and sentences about estimates.
pub(super) fn write(view: MetricView<'_>, out: &mut TextWriter<'_>) -> io::Result<()> {
    let profile = view.profile();
    let total = profile.total();
    let words = profile.run.class.words();
    if profile.run.class.counts_stalls() {
        let waits = format::blocks(profile.run.class, total.stalls().count);
        return out.total("stalled", &total.stalls().time, &format!("in {waits} for memory"));
    }
    let sums = Sums::of(profile);
    if let Some(SumOfBlocks { name, bytes, error, blocks, .. }) = sums.growth(view) {
        let text = if view.is_of_marks() {
            format!("{error} in {blocks} allocated between the marks")
        } else {
            let (grown, shrunk) = format::grown_and_shrunk(profile);
            format!("{error} in {blocks} ({grown} grown, {shrunk} shrunk)")
        };
        out.total(name, &bytes, text.trim_start())?;
    }
    for SumOfBlocks { name, bytes, error, blocks, exact, is_held } in sums.blocks() {
        let age = match profile.run.older {
            Some(age) if is_held => format!(", only blocks at least {} old", number::duration(age)),
            _ => String::new(),
        };
        out.total(name, &bytes, format!("{error} in {blocks}{exact}{age}").trim_start())?;
    }
    if let Some(TouchWindow { method, duration }) = profile.run.touches {
        let within = format!("{} within {} (method {})", method.verb(), number::duration(duration), method.name());
        out.total("hot", &Bytes(total[Quantity::HotBytes]), &within)?;
        out.total("cold", &Bytes(total[Quantity::ColdBytes]), &format!("not {within}"))?;
    }
    if total.temporary().count > 0 {
        let blocks = format::blocks(profile.run.class, total.temporary().count);
        // It is not known if sampled blocks are temporary, so the share refers to exact blocks.
        let exact = total.alloc().saturating_sub(sums.sampled.sum().alloc()).count;
        let share = number::percent(total.temporary().count as f64 / exact.max(1) as f64);
        let which = if sums.sampled.is_sampled() { "allocated ones that are exact" } else { "allocated ones" };
        out.total("temporary", &total.temporary().bytes, &format!("in {blocks}, {share} of the {which}"))?;
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
        let uncertainty = sums.sampled.uncertainty(profile, Quantity::AtPeakBytes);
        let error = uncertainty.map(|uncertainty| uncertainty.suffix(Measure::Bytes, peak.0)).unwrap_or_default();
        out.total("peak", &peak, format!("{error} {} at once", words.live).trim_start())?;
    }
    if let Some(sentences) = samplers::sentences(profile, view.is_of_marks()) {
        writeln!(out, "\n{}", out.wrapped(&sentences, 2))?;
    }
    let patched = samplers::patched(profile);
    if !patched.is_empty() {
        writeln!(out)?;
    }
    for sentence in patched {
        writeln!(out, "{}", out.wrapped(&sentence, 2))?;
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

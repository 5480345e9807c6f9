//! Converts quantities, their errors, and the kernel's counters to JSON.

use memtrace_json::{Blocks, Histograms, KernelCounts, NumberMut, Numbers, Object, ResidentMemory};
use memtrace_model::{
    Amount, BlockHistograms, BlockQuantity, Bytes, Measure, Profile, Quantities, Quantity, Requirement, Residency,
    ResidentKind,
};

use super::objects::by_name;
use crate::estimate::{self, Margin, SampledPart, Uncertainty};
use crate::kernel_reported::{self, KernelReported};
use crate::metrics::MetricView;

/// Returns quantities with their errors. `sampled`: the sampled part of the same stack, process, group or report. `known`:
/// the kernel's counters for it. They limit the error of live memory.
pub(super) fn of(
    view: MetricView<'_>,
    usage: Quantities,
    sampled: &SampledPart,
    known: Option<KernelReported>,
) -> Numbers {
    let profile = view.profile();
    let live = kernel_reported::live_error(known, profile, &usage);
    let alloc = estimate::error(profile, Quantity::AllocCount, &usage);
    let free = estimate::released_error(profile, Measure::Count, &usage);
    let [live_bytes, alloc_bytes, free_bytes] = [live, alloc, free].map(|n| n.map(|n| estimate::size_of_pages(n).0));
    Numbers {
        live_error_bytes: live_bytes,
        live_error_count: live,
        alloc_error_bytes: alloc_bytes,
        alloc_error_count: alloc,
        free_error_bytes: free_bytes,
        free_error_count: free,
        ..with_intervals(view, usage, sampled)
    }
}

/// Returns quantities with the intervals of estimates from sampled blocks.
fn with_intervals(view: MetricView<'_>, usage: Quantities, sampled: &SampledPart) -> Numbers {
    let profile = view.profile();
    let numbers = without_errors(profile, usage);
    if !sampled.is_sampled() {
        return numbers;
    }
    let has_exit = usage.exit() != Amount::default();
    // Nothing is live in a process that has ended.
    let has_live = !has_exit || usage.live() != Amount::default();
    // Live blocks from between two marks have the uncertainty of all blocks that were allocated between the marks.
    let live_ends = |live: Quantity, alloc: Quantity| {
        let varying = if view.is_of_marks() { alloc } else { live };
        let uncertainty = sampled.uncertainty(profile, varying).filter(|_| has_live);
        uncertainty.map_or([None; 2], |uncertainty| ends_of_live(view, usage[live], uncertainty).map(Some))
    };
    let exit_ends = |exit: Quantity| ends(usage[exit], sampled.uncertainty(profile, exit).filter(|_| has_exit));
    let alloc_ends = |alloc: Quantity| ends(usage[alloc], sampled.uncertainty(profile, alloc));
    let free = usage.free();
    let free_ends = |number: u64, measure: Measure| ends(number, sampled.freed_uncertainty(profile, measure));
    let [live_bytes_low, live_bytes_high] = live_ends(Quantity::LiveBytes, Quantity::AllocBytes);
    let [live_count_low, live_count_high] = live_ends(Quantity::LiveCount, Quantity::AllocCount);
    let [exit_bytes_low, exit_bytes_high] = exit_ends(Quantity::ExitBytes);
    let [exit_count_low, exit_count_high] = exit_ends(Quantity::ExitCount);
    let [alloc_bytes_low, alloc_bytes_high] = alloc_ends(Quantity::AllocBytes);
    let [alloc_count_low, alloc_count_high] = alloc_ends(Quantity::AllocCount);
    let [free_bytes_low, free_bytes_high] = free_ends(free.bytes.0, Measure::Bytes);
    let [free_count_low, free_count_high] = free_ends(free.count, Measure::Count);
    let all = sampled.sum();
    let [held_samples, alloc_samples] = [all[Quantity::HeldSamples], all[Quantity::AllocSamples]];
    Numbers {
        // In a window of a recording, the number is a change, which can be negative.
        samples: profile.run.window.is_none().then_some(held_samples),
        alloc_samples: Some(increase(alloc_samples)),
        // Each sampled block is freed once.
        free_samples: Some(increase(alloc_samples.wrapping_sub(held_samples))),
        live_bytes_low,
        live_bytes_high,
        live_count_low,
        live_count_high,
        exit_bytes_low,
        exit_bytes_high,
        exit_count_low,
        exit_count_high,
        alloc_bytes_low,
        alloc_bytes_high,
        alloc_count_low,
        alloc_count_high,
        free_bytes_low,
        free_bytes_high,
        free_count_low,
        free_count_high,
        ..numbers
    }
}

/// Returns a number; 0 for a decrease in a window of a recording. Corrections of samples can exceed the allocations.
fn increase(number: u64) -> u64 {
    number.cast_signed().max(0).cast_unsigned()
}

/// Returns the ends of the interval of an estimate. `uncertainty`: `None` if the report has no interval.
fn ends(estimate: u64, uncertainty: Option<Uncertainty>) -> [Option<u64>; 2] {
    uncertainty.map_or([None; 2], |uncertainty| uncertainty.ends(increase(estimate)).map(Some))
}

/// Returns the ends of the interval of live bytes, or of a number of live blocks.
fn ends_of_live(view: MetricView<'_>, number: u64, uncertainty: Uncertainty) -> [i64; 2] {
    let profile = view.profile();
    let number = live(profile, number);
    let Margin { below, above } = uncertainty.margin();
    let low = number.saturating_sub_unsigned(below);
    // The number of blocks from between two marks is a total, except in Go's profile, which has changes.
    let is_change = number < 0 || profile.run.window.is_some() && !view.is_of_marks();
    [if is_change { low } else { low.max(0) }, number.saturating_add_unsigned(above)]
}

/// Returns the ends of the interval of a peak of live bytes. `sampled`: the sampled part of the same stack, process, group or
/// report.
pub(super) fn ends_of_peak(profile: &Profile, peak: Option<Bytes>, sampled: &SampledPart) -> [Option<u64>; 2] {
    peak.map_or([None; 2], |peak| ends(peak.0, sampled.uncertainty(profile, Quantity::AtPeakBytes)))
}

pub(super) fn without_errors(profile: &Profile, usage: Quantities) -> Numbers {
    let free = usage.free().increase();
    let mut numbers = Numbers { free_bytes: free.bytes.0, free_count: free.count, ..Numbers::default() };
    for quantity in Quantity::ALL {
        let value = usage[quantity];
        match numbers.number_mut(quantity.facts().name) {
            Some(NumberMut::Signed(number)) => *number = live(profile, value),
            Some(NumberMut::Unsigned(number)) => *number = increase(value),
            Some(NumberMut::Optional(number)) => *number = is_measured(profile, quantity).then_some(value),
            Some(NumberMut::OptionalSigned(number)) => {
                *number = is_measured(profile, quantity).then(|| live(profile, value));
            }
            // Some quantities are not in the JSON, such as variances.
            None => {}
        }
    }
    numbers
}

/// Returns true if the run has measured `quantity`. Only estimates have a number of samples, which [`with_intervals`] sets.
fn is_measured(profile: &Profile, quantity: Quantity) -> bool {
    let needs_touches = Requirement::Touches.is_of(quantity);
    let is_of_samples = quantity == Quantity::AllocSamples;
    quantity.is_of(profile.run.class) && (!needs_touches || profile.run.touches.is_some()) && !is_of_samples
}

/// Converts live bytes or a number of live blocks. In a window of a recording, the number is a change and can be
/// negative.
fn live(profile: &Profile, number: u64) -> i64 {
    match profile.run.window {
        Some(_) => number.cast_signed(),
        None => i64::try_from(number).unwrap_or(i64::MAX),
    }
}

pub(super) const fn blocks(amount: Amount) -> Blocks {
    Blocks { count: amount.count, bytes: amount.bytes.0 }
}

pub(super) fn kernel_counts(known: KernelReported) -> KernelCounts {
    KernelCounts {
        resident_bytes: known.resident.map(|bytes| bytes.0),
        minor_faults: known.faults.map(|faults| faults.minor),
        major_faults: known.faults.map(|faults| faults.major),
    }
}

/// Returns the resident memory of a process by kind.
pub(super) fn resident(profile: &Profile, residence: &Residency) -> Object<'static, ResidentMemory> {
    let memory = |resident: &ResidentKind| ResidentMemory {
        total_bytes: resident.total.0,
        with_stack_bytes: resident.explained().0,
        with_stack_error_bytes: estimate::kind_error(profile, resident).map(|pages| estimate::size_of_pages(pages).0),
        before_bytes: resident.before.0,
    };
    by_name(residence.0.iter().map(|(kind, resident)| (kind.name(), memory(resident))))
}

/// Returns the histograms; `None` if nothing was counted.
pub(super) fn histograms(histograms: &BlockHistograms) -> Option<Histograms> {
    let counts = |quantity| histograms.of(quantity).map(|(log2, count)| (log2.number(), count)).collect();
    (!histograms.is_empty()).then(|| Histograms {
        size_log2: counts(BlockQuantity::Size),
        lifetime_log2: counts(BlockQuantity::Lifetime),
        age_log2: counts(BlockQuantity::Age),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_model::{EventClass, RunFacts, TouchWindow, WorkingSetMethod};
    use serde_json::{Value, json};

    use super::*;

    /// Returns the numbers of a report of `class`. The value of the n-th quantity is n, except that 1,000 bytes in
    /// 100 blocks are allocated.
    fn numbers(class: EventClass, touches: Option<TouchWindow>) -> Value {
        let values = (1..).zip(Quantity::ALL);
        let usage = values.fold(Quantities::ZERO, |usage, (value, quantity)| usage.with(quantity, value));
        let usage = usage.with(Quantity::AllocBytes, 1000).with(Quantity::AllocCount, 100);
        let run = RunFacts { class, touches, ..RunFacts::default() };
        serde_json::to_value(without_errors(&Profile { run, ..Profile::default() }, usage)).unwrap()
    }

    #[test]
    fn a_report_has_the_numbers_of_its_class() {
        // 24 of the 1,000 allocated bytes are not freed: 1 is live, 3 are held at exit, 9 discarded, and 11 left out.
        let common = json!({
            "live_bytes": 1, "live_count": 2, "exit_bytes": 3, "exit_count": 4, "alloc_bytes": 1000, "alloc_count": 100,
            "free_bytes": 976, "free_count": 72,
        });
        let with = |others: Value| {
            let mut all = common.clone();
            all.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
            all
        };
        let touches = Some(TouchWindow { method: WorkingSetMethod::Idle, duration: Duration::from_secs(1) });
        let temporary = json!({ "temporary_bytes": 7, "temporary_count": 8 });
        let touched = json!({ "hot_bytes": 20, "cold_bytes": 21 });
        assert_eq!(numbers(EventClass::Heap, None), with(temporary));
        assert_eq!(numbers(EventClass::Map, touches), with(touched));
        assert_eq!(numbers(EventClass::Fault, None), common);
        assert_eq!(numbers(EventClass::Reclaim, None), with(json!({ "stall_count": 13, "stall_ns": 14 })));
    }
}

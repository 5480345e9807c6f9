//! Numbers, their errors, and the kernel's counters.

use memtrace_json::{Blocks, Histograms, KernelCounts, Numbers, Object, ResidentMemory};

use super::objects::by_name;
use crate::model::{
    Amount, BlockHistograms, BlockQuantity, Measure, Profile, Quantities, Quantity, Residency, ResidentKind,
};
use crate::report::estimate;
use crate::report::kernel_reported::{self, KernelReported};

/// Returns numbers with their errors. `known` has the kernel's counters for the same owner, which limit the errors.
pub(super) fn of(profile: &Profile, usage: Quantities, known: Option<KernelReported>) -> Numbers {
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
        ..without_errors(profile, usage)
    }
}

pub(super) fn without_errors(profile: &Profile, usage: Quantities) -> Numbers {
    let temporary = Quantity::TemporaryCount.is_of(profile.run.class).then_some(usage.temporary());
    let stalls = profile.run.class.counts_stalls().then_some(usage.stalls());
    Numbers {
        live_bytes: live(profile, usage.live().bytes.0),
        live_count: live(profile, usage.live().count),
        exit_bytes: usage.exit().bytes.0,
        exit_count: usage.exit().count,
        alloc_bytes: usage.alloc().bytes.0,
        alloc_count: usage.alloc().count,
        free_bytes: usage.free().bytes.0,
        free_count: usage.free().count,
        temporary_bytes: temporary.map(|amount| amount.bytes.0),
        temporary_count: temporary.map(|amount| amount.count),
        hot_bytes: profile.run.touches.map(|_| usage[Quantity::HotBytes]),
        cold_bytes: profile.run.touches.map(|_| usage[Quantity::ColdBytes]),
        stall_ns: stalls.map(|stalls| stalls.time.0),
        stall_count: stalls.map(|stalls| stalls.count),
        ..Numbers::default()
    }
}

/// Returns a live number, or its change, which can be negative.
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
        with_stack_bytes: resident.with_stack.0,
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

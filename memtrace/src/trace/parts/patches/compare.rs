//! Comparison of the samples of a process with independent numbers. Code that is inlined or linked twice bypasses a patched
//! function without an error.

use memtrace_model::{Bytes, Pid, Quantities, Quantity, Variance};

/// Minimum number of samples for a comparison of their estimate with the allocated bytes.
const LEAST_SAMPLES: u64 = 100;

/// Permitted difference of the estimate: in standard deviations, and as a part of the allocated bytes. The allocated
/// bytes include those between the end of the trace and the end of the patch.
const DEVIATIONS: u64 = 5;
const ONE_IN: u64 = 10;

/// Minimum growth of the anonymous memory for a comparison with the live blocks.
const LEAST_GROWTH: Bytes = Bytes(64 << 20);

/// Standard deviations that are added to the live bytes, and maximum ratio of the growth to this sum.
const HELD_DEVIATIONS: u64 = 3;
const FACTOR: u64 = 4;

/// Numbers of a patched process that do not depend on samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndependentCounts {
    /// Bytes that the patched functions have allocated; `None` if they are not known exactly.
    pub(super) allocated: Option<Bytes>,
    /// Growth of the anonymous memory.
    pub(super) growth: Bytes,
}

/// Compares the totals of a process. Returns a note if the samples contradict the counts. No filter may leave out blocks.
pub(super) fn compare(pid: Pid, total: &Quantities, counts: IndependentCounts) -> Option<String> {
    let IndependentCounts { allocated, growth } = counts;
    let deviation = |variance| u64::try_from(total.variance(variance).isqrt()).unwrap_or(u64::MAX);
    if let Some(allocated) = allocated.filter(|_| total[Quantity::AllocSamples] >= LEAST_SAMPLES) {
        let estimate = Bytes(total[Quantity::AllocBytes]);
        let tolerated = DEVIATIONS.saturating_mul(deviation(Variance::AllocBytes)).saturating_add(allocated.0 / ONE_IN);
        if estimate.0.abs_diff(allocated.0) > tolerated {
            return Some(format!(
                "process {pid}: its samples stand for {estimate}, but its patched functions have allocated {allocated}: the \
                 numbers of its stacks are not to be trusted"
            ));
        }
    }
    let more = HELD_DEVIATIONS.saturating_mul(deviation(Variance::HeldBytes));
    let held = Bytes(total[Quantity::LiveBytes].saturating_add(more));
    let is_partial = growth > LEAST_GROWTH && growth.0 > held.0.saturating_mul(FACTOR);
    is_partial.then(|| {
        format!(
            "process {pid}: its anonymous memory has grown by {growth}, and its sampled blocks hold at most {held}: the \
             patched functions see only a part of its allocations; `memtrace faults` shows all of its memory"
        )
    })
}

#[cfg(test)]
mod tests {
    use memtrace_model::Amount;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns totals with these MiB, and variances with standard deviations of `deviation` MiB.
    fn total(allocated: u64, live: u64, samples: u64, deviation: u64) -> Quantities {
        let amount = |mib: u64| Amount { bytes: Bytes(mib * MIB), count: 1 };
        let mut total = Quantities::ZERO
            .with_amount(Quantity::AllocBytes, amount(allocated))
            .with_amount(Quantity::LiveBytes, amount(live));
        total[Quantity::AllocSamples] = samples;
        let variance = u128::from(deviation * MIB).pow(2);
        total.add_variance(Variance::AllocBytes, variance);
        total.add_variance(Variance::HeldBytes, variance);
        total
    }

    fn note(total: &Quantities, allocated: Option<u64>, growth: u64) -> Option<String> {
        let allocated = allocated.map(|mib| Bytes(mib * MIB));
        compare(Pid(7), total, IndependentCounts { allocated, growth: Bytes(growth * MIB) })
    }

    #[test]
    fn estimate_within_its_error_is_trusted() {
        // Five deviations are 50 MiB, and a tenth of 1,000 MiB are 100 MiB.
        assert_eq!(note(&total(1149, 0, 100, 10), Some(1000), 0), None);
        assert!(note(&total(1151, 0, 100, 10), Some(1000), 0).is_some());
        let text = note(&total(840, 0, 100, 10), Some(1000), 0).unwrap();
        assert!(text.starts_with("process 7: its samples stand for ") && text.contains("1000.00 MiB"), "{text}");
        assert_eq!(note(&total(1, 0, 99, 10), Some(1000), 0), None, "too few samples");
        assert_eq!(note(&total(1, 0, 100, 10), None, 0), None, "the allocated bytes are an estimate");
    }

    #[test]
    fn memory_that_no_sample_explains_is_noted() {
        // The live blocks hold at most 10 + 3 * 2 MiB.
        assert_eq!(note(&total(20, 10, 5, 2), None, 64), None);
        assert!(note(&total(20, 10, 5, 2), None, 65).is_some());
        assert_eq!(note(&total(20, 0, 5, 0), None, 64), None, "growth of a start");
        assert!(note(&total(20, 0, 5, 0), None, 65).unwrap().contains("see only a part"));
    }
}

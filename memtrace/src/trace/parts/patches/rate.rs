//! Control of the sampling intervals of patched processes.
//!
//! The interval of a process is a base times a power of two. Each process gets a share of the samples a second: a least number,
//! and a part of the rest by the bytes that it allocates.

use memtrace_model::Bytes;

/// Shortest interval in a run with a number of samples a second.
pub(super) const BASE: Bytes = Bytes(64 << 10);

/// First shift in such a run: 512 KiB.
pub(super) const FIRST_SHIFT: u8 = 3;

/// Largest shift.
const MAX_SHIFT: u8 = 16;

/// Largest interval. A draw is at most 23 times as large, and a countdown stays below 2^40.
const MAX_INTERVAL: u64 = 1 << 32;

/// Number of samples a second that each process gets, if there are enough.
const LEAST: f64 = 10.0;

/// Largest change of a shift in a second.
const MOST_CHANGE: u8 = 2;

/// Tolerated factor between an interval and the best range. Without it, a steady process would change its interval each
/// second.
const TOLERATED: f64 = 1.2;

/// Processor time of a sample with its stack, in seconds (`cargo run -p bench -- sampled`).
const SAMPLE_COST: f64 = 6e-6;

/// Share of a processor that the samples of one process may take before its interval is raised at once.
const MOST_COST: f64 = 0.02;

/// Largest rate, in bytes a second, that memtrace believes. The rate comes from the memory of the target, and a larger number
/// would give all samples to this target.
const MOST_BYTES: f64 = (1_u64 << 40) as f64;

/// Rates of a patched process, and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usage {
    pub(super) bytes_per_second: f64,
    pub(super) samples_per_second: f64,
    /// Binary logarithm of the interval divided by the base.
    pub(super) shift: u8,
    /// Smallest permitted shift, because the process had too many live samples with a smaller one.
    pub(super) least: u8,
    /// False in the first second of the process. Its interval is then raised as far as necessary, and never lowered.
    pub(super) is_settled: bool,
}

/// Returns the next shift of each process, so that all together take at most about `total` samples a second. The function is
/// called once a second, and more often for processes that are not settled, and if there are far too many samples. `base`:
/// interval with the shift 0.
pub(super) fn shifts(processes: &[Usage], total: u64, base: Bytes) -> Vec<u8> {
    let count = processes.len() as f64;
    let total = total as f64;
    let rate = |usage: &Usage| {
        let rate = usage.bytes_per_second;
        if rate.is_finite() && rate > 0.0 { rate.min(MOST_BYTES) } else { 0.0 }
    };
    let sum: f64 = processes.iter().map(rate).sum();
    let least = (total / count).min(LEAST);
    let rest = total - least * count;
    let share = |rate: f64| least + if sum > 0.0 { rest * rate / sum } else { rest / count };
    processes.iter().map(|usage| next(usage, rate(usage) / share(rate(usage)), base)).collect()
}

/// Returns the next shift of a process. `wanted`: interval that gives the process its share of the samples.
fn next(usage: &Usage, wanted: f64, base: Bytes) -> u8 {
    let Usage { shift, least, is_settled, .. } = *usage;
    // Even at the shortest interval, an idle process takes less than one sample a second. The interval is not
    // shortened, because the process would take far too many samples as soon as it allocates.
    let is_idle = usage.bytes_per_second < base.0 as f64;
    let current = interval(base, shift).0 as f64;
    let most = fitting(base, MAX_INTERVAL as f64);
    let best = fitting(base, wanted);
    let is_expensive = usage.samples_per_second * SAMPLE_COST > MOST_COST;
    let next = if wanted > current * TOLERATED {
        if is_settled && !is_expensive { best.min(shift.saturating_add(MOST_CHANGE)) } else { best }
    } else if is_settled && !is_idle && wanted * TOLERATED < current / 2.0 {
        best.max(shift.saturating_sub(MOST_CHANGE))
    } else {
        shift
    };
    next.max(least).min(most)
}

/// Returns the smallest shift with an interval of at least `wanted`, or the largest possible one.
fn fitting(base: Bytes, wanted: f64) -> u8 {
    let is_enough = |&shift: &u8| {
        let Bytes(interval) = interval(base, shift);
        interval >= MAX_INTERVAL || interval as f64 >= wanted
    };
    (0..MAX_SHIFT).find(is_enough).unwrap_or(MAX_SHIFT)
}

/// Returns an interval: the base times 2 to the power of `shift`.
pub(super) fn interval(base: Bytes, shift: u8) -> Bytes {
    let factor = 1_u64 << shift.min(MAX_SHIFT);
    Bytes(base.0.max(1).saturating_mul(factor).min(MAX_INTERVAL))
}

/// Returns the smallest shift after the level of a full table has risen by `levels`: the interval doubles with each level.
pub(super) fn raised(base: Bytes, shift: u8, levels: u8) -> u8 {
    shift.saturating_add(levels).min(fitting(base, MAX_INTERVAL as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = (1 << 20) as f64;

    fn usage(bytes_per_second: f64, shift: u8) -> Usage {
        Usage { bytes_per_second, samples_per_second: 0.0, shift, least: 0, is_settled: true }
    }

    /// Returns the numbers of samples a second after a minute with these rates.
    fn samples(rates: &[f64], total: u64) -> Vec<f64> {
        let mut processes: Vec<_> = rates.iter().map(|&rate| usage(rate, FIRST_SHIFT)).collect();
        for _ in 0..60 {
            let next = shifts(&processes, total, BASE);
            processes.iter_mut().zip(next).for_each(|(process, shift)| process.shift = shift);
        }
        processes.iter().map(|usage| usage.bytes_per_second / interval(BASE, usage.shift).0 as f64).collect()
    }

    #[test]
    fn one_process_gets_half_to_all_of_the_samples() {
        // 64 KiB are the shortest interval, so 100 MiB a second have at most 1,600 samples.
        for rate in [100.0 * MIB, 1e9, 3.3e9, 95e9, 900e9] {
            let [samples] = samples(&[rate], 1000)[..] else { panic!("one process") };
            assert!((1000.0 / 2.0 / TOLERATED..=1000.0 * TOLERATED).contains(&samples), "{rate}: {samples}");
        }
        assert_eq!(samples(&[MIB], 1000), [16.0]);
        assert_eq!(samples(&[0.0], 1000), [0.0]);
    }

    #[test]
    fn several_processes_share_the_samples_by_their_rates() {
        // 10 each, and 970 by the rates: 10 + 970 / 111, 10 + 9700 / 111, and 10 + 97000 / 111.
        let [small, medium, large] = samples(&[1e9, 1e10, 1e11], 1000)[..] else { panic!("three processes") };
        for (samples, share) in [(small, 18.7), (medium, 97.4), (large, 883.9)] {
            assert!((share / 2.0 / TOLERATED..=share * TOLERATED).contains(&samples), "{samples} of {share}");
        }
    }

    #[test]
    fn a_busy_process_leaves_the_least_number_to_others() {
        let mut rates = vec![1e9; 20];
        rates[0] = 1e12;
        let samples = samples(&rates, 1000);
        assert!(samples[1..].iter().all(|&samples| samples >= LEAST / 2.0 / TOLERATED), "{samples:?}");
        assert!(samples.iter().sum::<f64>() <= 1000.0 * TOLERATED, "{samples:?}");
    }

    #[test]
    fn too_many_processes_share_equally() {
        // 5 samples a second each.
        let samples = samples(&[1e9; 200], 1000);
        assert!(samples.iter().all(|&samples| (2.0..=6.0).contains(&samples)), "{samples:?}");
        assert!(shifts(&[], 1000, BASE).is_empty());
    }

    #[test]
    fn shift_changes_by_two_a_second() {
        let next = |usage| shifts(&[usage], 1000, BASE);
        // 95 GB a second need 2^11 * 64 KiB.
        assert_eq!(next(usage(95e9, 3)), [5]);
        assert_eq!(next(usage(95e9, 10)), [11]);
        assert_eq!(next(usage(95e9, 16)), [14]);
        assert_eq!(next(usage(95e9, 12)), [11]);
    }

    #[test]
    fn new_or_expensive_process_is_raised_at_once() {
        let next = |usage| shifts(&[usage], 1000, BASE);
        assert_eq!(next(Usage { is_settled: false, ..usage(95e9, 3) }), [11]);
        assert_eq!(next(Usage { is_settled: false, ..usage(1e6, 3) }), [3], "few samples say little");
        // 2 % of a processor are 3,333 samples of 6 µs.
        assert_eq!(next(Usage { samples_per_second: 3_300.0, ..usage(95e9, 3) }), [5]);
        assert_eq!(next(Usage { samples_per_second: 3_400.0, ..usage(95e9, 3) }), [11]);
    }

    #[test]
    fn steady_process_keeps_its_interval() {
        // 1,000 samples a second with the shift 4.
        let rate = 1000.0 * f64::from(1 << 20);
        for change in [0.45, 0.6, 0.8, 1.0, 1.19] {
            assert_eq!(shifts(&[usage(rate * change, 4)], 1000, BASE), [4], "{change}");
        }
        assert_eq!(shifts(&[usage(rate * 1.21, 4)], 1000, BASE), [5]);
        assert_eq!(shifts(&[usage(rate * 0.41, 4)], 1000, BASE), [3]);
    }

    #[test]
    fn idle_process_keeps_its_interval() {
        let next = |rate| shifts(&[usage(rate, FIRST_SHIFT)], 1000, BASE);
        assert_eq!([next(0.0), next(65_535.0), next(65_536.0)], [[3], [3], [1]]);
    }

    #[test]
    fn empty_loop_settles_in_its_first_second() {
        // A sample takes 6 µs, so the loop allocates less while it has many samples.
        let (mut shift, mut passed, mut taken, mut last) = (FIRST_SHIFT, 0.0, 0.0, 0.0);
        for period in [0.02, 0.08, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1] {
            let interval = interval(BASE, shift).0 as f64;
            let rate = 95e9 / (1.0 + 95e9 / interval * SAMPLE_COST);
            (last, passed) = (rate / interval, passed + period);
            taken += last * period;
            let now = Usage { samples_per_second: last, is_settled: false, ..usage(rate, shift) };
            shift = shifts(&[now], 1000, BASE)[0];
        }
        assert!((416.0..=1200.0).contains(&last), "{last} samples a second");
        assert!(passed <= 1.01 && taken < 3_000.0, "{taken} samples in {passed} s");
    }

    #[test]
    fn forged_numbers_leave_the_least_number_to_others() {
        for forged in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            let samples = samples(&[forged, 1e9], 1000);
            assert!(samples[1] >= LEAST / 2.0 / TOLERATED, "{forged}: {samples:?}");
        }
    }

    #[test]
    fn full_table_raises_the_interval_for_good() {
        assert_eq!(raised(BASE, 3, 2), 5);
        assert_eq!(raised(BASE, 15, 15), 16);
        assert_eq!(raised(Bytes(1 << 31), 0, 3), 1, "the interval has a limit");
        let full = Usage { least: 5, ..usage(0.0, 5) };
        assert_eq!(shifts(&[full], 1000, BASE), [5]);
    }

    #[test]
    fn intervals_have_a_limit() {
        assert_eq!(interval(BASE, FIRST_SHIFT), Bytes(512 << 10));
        assert_eq!([16, 17, 255].map(|shift| interval(BASE, shift)), [Bytes(1 << 32); 3]);
        assert_eq!([interval(Bytes(0), 0), interval(Bytes(1 << 32), 4)], [Bytes(1), Bytes(1 << 32)]);
    }
}

//! Options of sampled traces: samples of allocated bytes instead of each call of an allocator.

use std::ops::RangeInclusive;

use clap::Args;
use memtrace_model::{Bytes, format};

use crate::options::conflict::{ArgConflict, first_given};
use crate::options::headings::TUNING;
use crate::options::source::AllocationSource;
use crate::options::units;

/// Possible intervals. A stub counts bytes down from a random number. This number is at most 23 times the interval, and
/// must stay below 2^40.
const INTERVALS: RangeInclusive<Bytes> = Bytes(1)..=Bytes(1 << 32);

/// Possible rates, in samples a second.
const RATES: RangeInclusive<u64> = 10..=100_000;

/// Samples of allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct SamplingArgs {
    /// Sample one allocated byte in this number of bytes, as in 512KiB, instead of tracing each call
    ///
    /// At most 4GiB. Numbers are estimates with 95 % intervals. Heap profiles and samplers that a process has are used
    /// first. The allocators of other processes are sampled with --allow-patching only. With --all, page faults of the
    /// remaining processes are sampled, one page in 64 unless --sample is given.
    #[arg(long, value_name = "SIZE", value_parser = units::size, hide_short_help = true, help_heading = TUNING)]
    pub(crate) sample_interval: Option<Bytes>,

    /// Adapt the interval to this number of samples a second, for all processes together [default: 1000]
    ///
    /// From 10 to 100000. Processes that allocate more bytes get more of the samples, and each gets at least 10 if there
    /// are enough.
    #[arg(long, value_name = "N", value_parser = units::count, hide_short_help = true, help_heading = TUNING)]
    pub(crate) samples_per_second: Option<u64>,

    /// Permit memtrace to change code of the target while it runs
    ///
    /// To sample malloc and free of glibc and jemalloc at a low cost, a jump replaces one instruction of each function. For
    /// this, memtrace stops the threads of the process by ptrace(2) for a moment, at the start and at the end. The page
    /// sampling of the guide describes the risk. Without a rate, 1000 samples a second are taken; with --max-overhead, each
    /// call is traced unless that exceeds the limit. `memtrace doctor --pid` examines whether a process can be patched.
    /// `memtrace detach` restores the code if memtrace was killed.
    #[arg(long, hide_short_help = true, help_heading = TUNING)]
    pub(crate) allow_patching: bool,
}

impl SamplingArgs {
    /// Returns an option that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        self.given_rate().or_else(|| first_given(&[("--allow-patching", self.allow_patching)]))
    }

    /// Returns an option that is given and sets the rate of the samples.
    pub(crate) fn given_rate(&self) -> Option<&'static str> {
        first_given(&[
            ("--sample-interval", self.sample_interval.is_some()),
            ("--samples-per-second", self.samples_per_second.is_some()),
        ])
    }

    /// Checks the rate, and that `source` fits samples.
    pub(crate) fn check(&self, source: AllocationSource) -> Result<(), ArgConflict> {
        if self.sample_interval.is_some() && self.samples_per_second.is_some() {
            return Err(ArgConflict::new(
                "--sample-interval is given together with --samples-per-second",
                "remove one of them: the interval is fixed, or follows from the rate",
            ));
        }
        if let Some(interval) = self.sample_interval.filter(|interval| !INTERVALS.contains(interval)) {
            return Err(ArgConflict::new(
                format!("--sample-interval {} is not between 1 and 4GiB", format::size_argument(interval.0)),
                "give a size in this range, as in 512KiB",
            ));
        }
        if let Some(rate) = self.samples_per_second.filter(|rate| !RATES.contains(rate)) {
            return Err(ArgConflict::new(
                format!("--samples-per-second {rate} is not between {} and {}", RATES.start(), RATES.end()),
                "give a number in this range, as in 1000",
            ));
        }
        match source {
            AllocationSource::Exact if let Some(option) = self.given() => Err(ArgConflict::new(
                format!("{option} is given together with --source exact, which traces each call"),
                "remove one of them",
            )),
            AllocationSource::Own if self.allow_patching => Err(ArgConflict::new(
                "--allow-patching is given together with --source own, which uses only samples that targets take",
                "remove one of them: without --source own, these samples are used too",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the options as arguments of another memtrace.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let interval = self.sample_interval.map(|size| format!("--sample-interval={}", size.0));
        let rate = self.samples_per_second.map(|rate| format!("--samples-per-second={rate}"));
        let patching = self.allow_patching.then(|| String::from("--allow-patching"));
        [interval, rate, patching].into_iter().flatten().collect()
    }

    /// Returns the rate of the samples; `None` if no option asks for samples.
    pub(crate) fn rate(&self) -> Option<SamplingRate> {
        let interval = self.sample_interval.map(SamplingRate::Interval);
        let per_second = self.samples_per_second.map(SamplingRate::PerSecond);
        interval.or(per_second).or_else(|| self.allow_patching.then(SamplingRate::default))
    }
}

/// Rate of the samples of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SamplingRate {
    /// One allocated byte in this number of bytes.
    Interval(Bytes),
    /// Samples a second, of all processes together. The intervals follow from it.
    PerSecond(u64),
}

impl Default for SamplingRate {
    fn default() -> Self {
        Self::PerSecond(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{refusal_of_trace as refused, resolved_trace as resolved};

    const ONE_THOUSAND: SamplingRate = SamplingRate::PerSecond(1000);

    fn sampling(line: &str) -> Result<(Option<SamplingRate>, bool), String> {
        resolved(line).map(|config| (config.sampling, config.allow_patching))
    }

    #[test]
    fn one_option_suffices_for_samples() {
        assert_eq!(sampling("--pid 7"), Ok((None, false)));
        let interval = SamplingRate::Interval(Bytes(512 << 10));
        assert_eq!(sampling("--pid 7 --sample-interval 512KiB"), Ok((Some(interval), false)));
        assert_eq!(sampling("--all --samples-per-second 2k"), Ok((Some(SamplingRate::PerSecond(2000)), false)));
        assert_eq!(sampling("--comm a --allow-patching"), Ok((Some(ONE_THOUSAND), true)));
        assert_eq!(sampling("--sample-interval 512k --allow-patching -- ls"), Ok((Some(interval), true)));
        assert_eq!(sampling("--allow-patching -- ls"), Ok((Some(ONE_THOUSAND), true)));
    }

    #[test]
    fn command_that_stops_at_exec_is_not_sampled() {
        let message = "--hold-exec keeps memtrace attached to the command as its tracer, and --allow-patching changes no \
                       traced process";
        for options in ["", "--samples-per-second 100 ", "--max-overhead 5% "] {
            assert_eq!(refused(&format!("--hold-exec --allow-patching {options}-- ls")), message, "{options}");
        }
        for option in ["--sample-interval 1M", "--samples-per-second 100"] {
            let name = option.split(' ').next().unwrap();
            assert_eq!(
                refused(&format!("--hold-exec {option} -- ls")),
                format!(
                    "--hold-exec stops processes until each call of their allocators is probed, and {name} takes samples"
                )
            );
        }
        assert!(resolved("--hold-exec -- ls").is_ok());
    }

    #[test]
    fn limit_without_a_rate_starts_with_each_call() {
        let config = resolved("--pid 7 --max-overhead 5% --allow-patching").unwrap();
        assert_eq!((config.sampling, config.allow_patching), (None, true));
        assert!(config.probes_allocators() && config.map_uses().samples);
        for option in ["--sample-interval 1M", "--samples-per-second 100"] {
            let name = option.split(' ').next().unwrap();
            let message = refused(&format!("--pid 7 --max-overhead 5% --allow-patching {option}"));
            assert_eq!(
                message,
                format!("--max-overhead limits the cost of tracing each call, and {name} takes samples")
            );
        }
    }

    #[test]
    fn rates_have_bounds() {
        for (option, value, text) in [
            ("--sample-interval", "0", "0 is not between 1 and 4GiB"),
            ("--sample-interval", "4294967297", "4294967297 is not between 1 and 4GiB"),
            ("--samples-per-second", "9", "9 is not between 10 and 100000"),
            ("--samples-per-second", "100001", "100001 is not between 10 and 100000"),
        ] {
            assert_eq!(refused(&format!("--pid 7 {option} {value}")), format!("{option} {text}"));
        }
        for line in
            ["--sample-interval 1", "--sample-interval 4G", "--samples-per-second 10", "--samples-per-second 100k"]
        {
            assert!(resolved(&format!("--pid 7 {line}")).is_ok(), "{line}");
        }
        assert_eq!(
            refused("--pid 7 --sample-interval 1M --samples-per-second 100"),
            "--sample-interval is given together with --samples-per-second"
        );
    }

    #[test]
    fn sources_that_exclude_samples_are_refused() {
        for option in ["--sample-interval 1M", "--samples-per-second 10", "--allow-patching"] {
            let name = option.split(' ').next().unwrap();
            assert_eq!(
                refused(&format!("--pid 7 --source exact {option}")),
                format!("{name} is given together with --source exact, which traces each call")
            );
        }
        let own = "--allow-patching is given together with --source own, which uses only samples that targets take";
        assert_eq!(refused("--pid 7 --source own --allow-patching"), own);
        assert!(resolved("--pid 7 --source own --sample-interval 1M").is_ok());
    }

    #[test]
    fn options_that_need_each_call_are_refused() {
        let of = |line: &str| refused(&format!("--pid 7 {line}"));
        for (option, name) in [
            ("--size usable", "--size usable"),
            ("--allocator-latency 1ms", "--allocator-latency"),
            ("--probe-site entry", "--probe-site"),
            ("--hook alloc=take(size=arg0)->ret,free=give(arg0)", "--hook"),
            ("--allocator libpool.so:pool_", "--allocator"),
        ] {
            let message = format!("{name} needs each call of an allocator, and --sample-interval takes samples");
            assert_eq!(of(&format!("--sample-interval 1M {option}")), message);
        }
        let limited = of("--max-overhead 5% --allow-patching --probe-site return");
        assert_eq!(limited, "--probe-site needs each call of an allocator, and --allow-patching takes samples");
        let cold = of("--allow-patching --cold-after 10s");
        assert_eq!(cold, "--cold-after needs the address of each block, which some samplers do not report");
        for allowed in
            ["--size requested", "-m peak-bytes", "--older 1m", "--thread main", "--min-size 1k", "--lifetimes"]
        {
            assert!(resolved(&format!("--pid 7 --allow-patching {allowed}")).is_ok(), "{allowed}");
        }
        assert!(of("--events fault --allow-patching").starts_with("--allow-patching needs heap events"));
    }

    #[test]
    fn samples_replace_probes_of_each_call() {
        let facts = |line: &str| {
            let config = resolved(line).unwrap();
            (config.probes_allocators(), config.reads_own_profiles(), config.map_uses().samples)
        };
        assert_eq!(facts("--pid 7"), (true, true, false));
        assert_eq!(facts("--pid 7 --sample-interval 1M"), (false, true, true));
        assert_eq!(facts("--pid 7 --allow-patching --older 1m"), (false, false, true));
        assert_eq!(facts("--pid 7 --source own --sample-interval 1M"), (false, true, true));
    }
}

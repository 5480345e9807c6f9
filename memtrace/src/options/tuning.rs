//! Options of the rings, limits and memory of a trace.

use std::num::NonZeroU32;

use clap::{Args, value_parser};
use memtrace_model::{Bytes, DEFAULT_FRAMES, MAX_FRAMES, MAX_RINGS, Metric, Requirement, format};

use crate::options::conflict::ArgConflict;
use crate::options::headings::TUNING;
use crate::options::units;

/// Maximum ring size. The size of a BPF map has 32 bits (`max_entries` of `union bpf_attr`, include/uapi/linux/bpf.h).
const LARGEST_RING: Bytes = Bytes(1 << 31);
/// Minimum ring size: one page.
const SMALLEST_RING: Bytes = Bytes(4096);

/// Limits of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct TuningArgs {
    /// Record at most N frames of a stack, 0 to 256; 0 records no stacks
    #[arg(
        long,
        value_name = "N",
        value_parser = value_parser!(u32).range(..=MAX_FRAMES as i64),
        default_value_t = DEFAULT_FRAMES,
        hide_short_help = true, help_heading = TUNING
    )]
    pub(crate) max_depth: u32,

    /// Set the size of each ring buffer
    ///
    /// A power of two from 4KiB to 2GiB. Events wait there for memtrace; a larger ring absorbs longer bursts. Increase
    /// it if the report lists events lost to a full ring.
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "16MiB", hide_short_help = true, help_heading = TUNING)]
    pub(crate) ring_size: Bytes,

    /// Keep at most this number of live blocks
    ///
    /// For example 500k or 32M; units are powers of 1000. A block takes at most 80 bytes of memory. If 90% of the limit is
    /// reached, small blocks of the largest processes are no longer followed.
    #[arg(long, value_name = "BLOCKS", value_parser = units::count, default_value = "32M", hide_short_help = true, help_heading = TUNING)]
    pub(crate) max_live: u64,

    /// Use at most this memory while tracing, as in 64MiB
    ///
    /// It is for memtrace's own memory, BPF maps and rings. At least 40MiB, and some more with tags, activity or more
    /// than 30 processors. --ring-size and --max-live remain upper limits. With --all and selections the default is 256MiB (352MiB with a recording) or, if that is
    /// less, a quarter of the limit of the memory cgroup that memtrace runs in. --pid and commands have no limit,
    /// unless that cgroup leaves less than 512MiB.
    #[arg(long, value_name = "SIZE", value_parser = units::size, hide_short_help = true, help_heading = TUNING)]
    pub(crate) memory_limit: Option<Bytes>,

    /// Protect memtrace from the OOM killer, and lock its memory
    ///
    /// For traces that run all the time. In a cgroup with a memory limit, it is killed last instead of never. Each part that
    /// the system denies is a warning. Free memory is not returned to the system then.
    #[arg(long, hide_short_help = true, help_heading = TUNING)]
    pub(crate) protect: bool,

    /// Read events with this real-time priority, from 1 to 99
    ///
    /// The threads that read them then run before all threads that are not real-time tasks, and can take a large part of the
    /// processors. Use it if a note of the report says that they waited for a processor.
    #[arg(long, value_name = "PRIORITY", value_parser = value_parser!(u8).range(1..=99), hide_short_help = true, help_heading = TUNING)]
    pub(crate) realtime: Option<u8>,
}

impl TuningArgs {
    pub(crate) fn check(&self) -> Result<(), ArgConflict> {
        check_ring_size(self.ring_size)?;
        match self.max_live {
            0 => Err(ArgConflict::new("--max-live 0 allows no block", "give at least 1, as in 32M")),
            _ => Ok(()),
        }
    }
}

/// Number of shards.
#[derive(Debug, Default, Args)]
pub(crate) struct ShardArgs {
    /// Process events in N rings and threads, 1 to 16 [default: by processors]
    ///
    /// The report is the same for each number. The metric peak-bytes needs a single shard.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MAX_RINGS)), hide_short_help = true, help_heading = TUNING)]
    pub(crate) shards: Option<u32>,
}

impl ShardArgs {
    /// Returns the number of shards; `None` to derive it from the number of processors.
    ///
    /// The high-water mark of a process is not the sum of the marks in the shards. So a metric with peaks needs a
    /// single shard.
    pub(crate) fn resolve(&self, metric: Option<Metric>) -> Result<Option<NonZeroU32>, ArgConflict> {
        let shards = self.shards.and_then(NonZeroU32::new);
        let needs_peaks = metric.is_some_and(|metric| metric.needs(Requirement::Peaks));
        match shards {
            Some(shards) if needs_peaks && shards > NonZeroU32::MIN => Err(ArgConflict::new(
                format!("--metric peak-bytes needs a single shard, but --shards is {shards}"),
                "remove --shards, or give --shards 1",
            )),
            None if needs_peaks => Ok(Some(NonZeroU32::MIN)),
            _ => Ok(shards),
        }
    }
}

fn check_ring_size(size: Bytes) -> Result<(), ArgConflict> {
    let shown = format::size_argument(size.0);
    if !(SMALLEST_RING..=LARGEST_RING).contains(&size) {
        return Err(ArgConflict::new(
            format!("--ring-size {shown} is not between 4KiB and 2GiB"),
            "give a power of two in this range, as in 16MiB",
        ));
    }
    if !size.0.is_power_of_two() {
        let above = size.0.next_power_of_two();
        return Err(ArgConflict::new(
            format!("--ring-size {shown} is not a power of two"),
            format!("give {} or {}", format::size_argument(above / 2), format::size_argument(above)),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{refusal_of_trace as refused, resolved_trace as resolved};

    #[test]
    fn limits_have_these_defaults_and_can_be_set() {
        let limits = |line: &str| resolved(line).map(|config| config.tuning);
        let default = TuningArgs {
            max_depth: 128,
            ring_size: Bytes(16 << 20),
            max_live: 32_000_000,
            memory_limit: None,
            protect: false,
            realtime: None,
        };
        assert_eq!(limits("-p 1"), Ok(default));
        let given = TuningArgs {
            max_depth: 0,
            ring_size: Bytes(4096),
            max_live: 500_000,
            memory_limit: Some(Bytes(64 << 20)),
            protect: true,
            realtime: Some(10),
        };
        let line = "-p 1 --max-depth 0 --ring-size 4096 --max-live 500k --memory-limit 64MiB --protect --realtime 10";
        assert_eq!(limits(line), Ok(given));
    }

    #[test]
    fn peak_needs_exactly_one_shard() {
        let shards = |line: &str| resolved(line).map(|config| config.shards.map(NonZeroU32::get));
        assert_eq!(shards("-p 1 -m peak-bytes"), Ok(Some(1)));
        assert_eq!(shards("-p 1 -m peak-bytes --shards 1"), Ok(Some(1)));
        assert_eq!(shards("-p 1 --shards 2"), Ok(Some(2)));
        assert!(refused("-p 1 -m peak-bytes --shards 2").starts_with("--metric peak-bytes needs a single shard"));
    }

    #[test]
    fn ring_is_a_power_of_two_within_bounds() {
        for size in ["4096", "64KiB", "2GiB"] {
            assert!(resolved(&format!("-p 1 --ring-size {size}")).is_ok(), "{size}");
        }
        for size in [0, 2048, 4 << 30, 1 << 63] {
            assert!(check_ring_size(Bytes(size)).is_err(), "{size}");
        }
        let conflict = check_ring_size(Bytes(5000)).unwrap_err();
        assert_eq!(conflict.message, "--ring-size 5000 is not a power of two");
        assert_eq!(conflict.remedy, "give 4KiB or 8KiB");
    }

    #[test]
    fn at_least_one_live_block_is_kept() {
        assert_eq!(refused("-p 1 --max-live 0"), "--max-live 0 allows no block");
    }
}

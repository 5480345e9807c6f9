//! Division of a limited memory among maps, rings, ledgers and the state of processes.

use memtrace_history::EndedSettings;
use memtrace_history::registry;
use memtrace_host::kernel::{MapSizes, MapUses};
use memtrace_host::mmap_events;
use memtrace_host::procfs;
use memtrace_model::{Bytes, Pid, Tick};

use crate::run_kit::error::Error;
use crate::targets::select::Target;
use crate::targets::unwind_tables::UnwindLimits;
use crate::trace::config::Config;

/// Limits of all state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryPlan {
    /// Limit of the memory of all items together; `None` without one.
    pub(super) limit: Option<Bytes>,
    pub(super) maps: MapSizes,
    pub(super) ring_size: Bytes,
    /// Size of the ring of mmap events, for each processor.
    pub(super) mmap_ring: Bytes,
    /// Maximum number of live blocks of all shards.
    pub(super) live: u64,
    /// Maximum number of stacks of running images in each shard.
    pub(super) stacks: u32,
    pub(super) ended: EndedLimits,
    pub(super) registry: registry::Limits,
    /// Maximum number of programs whose own heap profile is read.
    pub(super) profile_programs: usize,
    /// Maximum number of stacks in the heap profiles that are read.
    pub(super) profile_stacks: usize,
    /// Maximum number of patched processes.
    pub(super) patched: usize,
    /// Maximum number of open object files.
    pub(super) files: usize,
    pub(super) unwinding: UnwindLimits,
    /// Maximum memory of the names of generated code.
    pub(super) generated_names: Bytes,
    /// True if stacks have histograms.
    pub(super) has_histograms: bool,
    /// Limits of the recorder; `None` if no deltas are needed.
    pub(super) recorder: Option<RecorderLimits>,
}

/// Limits of the state of ended images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedLimits {
    /// Maximum number of stacks of ended images and their groups.
    pub(super) stacks: usize,
    /// Maximum number of distinct call paths of ended images.
    pub(super) call_paths: usize,
    /// Maximum number of totals and stacks of ended images that wait for missing data. Images that ended just now can exceed
    /// it.
    pub(super) waiting: usize,
}

/// Limits of the state of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecorderLimits {
    /// Maximum number of distinct call paths.
    pub(super) call_paths: usize,
    /// Maximum number of stacks of groups that wait to be recorded.
    pub(super) grouped_stacks: usize,
    /// Maximum number of stacks with rows that the writer of the recording knows.
    pub(super) known_totals: usize,
    /// Maximum number of rows of waiting intervals. Beyond it, intervals are merged.
    pub(super) queued_rows: usize,
    /// Maximum memory of a history that has no file.
    pub(super) book: Bytes,
    /// Maximum number of stacks in deltas that wait for the recorder. One delta of each shard can exceed it.
    pub(super) waiting_stacks: usize,
    /// Divisor of the memory that [`PROGRAM`] leaves: the recorder gets this part.
    divisor: u64,
}

/// Memory of memtrace without its state: its executable, the kernel's type information, the BPF programs that aya
/// keeps, and the stacks of threads (docs/design/0106).
const PROGRAM: u64 = 20 << 20;

/// Memory that the report needs for symbols at the end, while the state still exists. It is left free in a memory cgroup,
/// because the kernel ends a process that exceeds the limit.
const REPORT: u64 = 8 << 20;

/// Default memory limit of a trace that selects processes by their properties. Such a trace may run for weeks.
const DEFAULT_LIMIT: Bytes = Bytes(256 << 20);

/// Default memory limit of a trace that selects processes by their properties, if a recording or another output shows
/// moments before the end. Apart from the history, the state has as much memory as with [`DEFAULT_LIMIT`].
const RECORDED_LIMIT: Bytes = Bytes(352 << 20);

/// Divisors of the memory that [`PROGRAM`] leaves: an item with divisor 4 gets a quarter.
const MAPS: u64 = 4;
const RINGS: u64 = 4;
const UNWIND_ROWS: u64 = 8;
const FRAME_DATA: u64 = 32;
const GENERATED_NAMES: u64 = 64;
const RECORDER: u64 = 8;
/// Divisor for a recorder of trends only.
const RECORDER_OF_TRENDS: u64 = 48;

/// Shares, in parts of [`shares::ALL`], of the memory that [`PROGRAM`] and the divisors above leave.
mod shares {
    pub(super) const ALL: u64 = 32;
    pub(super) const LIVE_BLOCKS: u64 = 8;
    pub(super) const STACKS: u64 = 8;
    pub(super) const ENDED_STACKS: u64 = 2;
    pub(super) const WAITING_ENDED: u64 = 1;
    pub(super) const CALL_PATHS: u64 = 4;
    pub(super) const REGISTRY: u64 = 5;
    pub(super) const COPIES: u64 = 2;
    pub(super) const MMAP_RINGS: u64 = 2;
}

/// Shares, in parts of [`registry_shares::ALL`], of the memory of the registry, its object files, and the heap profiles that
/// its processes keep.
mod registry_shares {
    pub(super) const ALL: u64 = 32;
    pub(super) const IMAGES: u64 = 7;
    pub(super) const MAPPINGS: u64 = 7;
    pub(super) const PROFILE_PROGRAMS: u64 = 5;
    pub(super) const PROFILE_STACKS: u64 = 3;
    pub(super) const THREAD_NAMES: u64 = 2;
    pub(super) const FILES: u64 = 8;
}

/// Shares, in ninths, of the memory of the recorder.
mod recorder_ninths {
    pub(super) const CALL_PATHS: u64 = 3;
    pub(super) const GROUPED_STACKS: u64 = 1;
    pub(super) const KNOWN_TOTALS: u64 = 3;
    pub(super) const QUEUED_ROWS: u64 = 1;
    pub(super) const WAITING_STACKS: u64 = 1;
}

/// Memory of a live block, in bytes.
const BLOCK: u64 = 80;
/// Memory of a stack of a running image, in bytes. A stack with samples counts as two (`crates/history/tests/profile_memory.rs`).
///
/// With the maximum number of stacks, a stack takes up to twice this memory (`crates/history/tests/stack_memory.rs`). The other
/// shares are not full then. With half as many stacks, 10 % of the allocations in the soak test would have merged stacks
/// (docs/design/0062).
const STACK: u64 = 288;
/// Additional memory of a stack of a running image if the run has a recorder: its call path, in bytes.
const RECORDED_STACK: u64 = 48;
/// Memory of a stack of an ended image, in bytes. Its encoded totals take about ten bytes; with samples they take up to 64 bytes,
/// and the stack counts as four. While call paths are removed, a temporary list contains the number of each path.
const ENDED_STACK: u64 = 16;
/// Memory of the totals or the frames of a stack in an ended image that waits, in bytes.
const WAITING_ENDED: u64 = 384;
/// Additional memory of a stack for its histograms, in bytes: two headers, and 8 bytes for each of 26 buckets. Most
/// stacks have fewer than ten buckets.
const HISTOGRAMS: u64 = 256;
/// Additional memory of a stack of an ended image for its histograms, in bytes. A bucket takes about three bytes.
const ENDED_HISTOGRAMS: u64 = 32;
/// Memory of a stack with a row that the writer of the recording knows, in bytes.
const KNOWN_TOTAL: u64 = 48;
/// Memory of a row of a waiting interval, in bytes. The totals of a stack take 304 bytes, and most other rows less than
/// 100.
const QUEUED_ROW: u64 = 256;
/// Memory of a change in a waiting delta, in bytes: the totals of a changed stack, or the frames of a
/// new stack.
const WAITING_STACK: u64 = 320;
/// Memory of a call path, in bytes: the tree node, its hash-table entry, and the path's number in the recording.
const CALL_PATH: u64 = 36;
/// Memory of an image in the registry, in bytes.
const IMAGE: u64 = 640;
/// Memory of a mapping in the registry, in bytes.
const MAPPING: u64 = 64;
/// Memory of the name of a thread in the registry, in bytes.
const THREAD_NAME: u64 = 64;
/// Memory of a program whose own heap profile is read, in bytes, without its stacks. Between readings, no file is open.
const PROFILE_PROGRAM: u64 = 512;
/// Memory of a stack in a heap profile that is read, in bytes: the place in the target, the last numbers, and the ID of
/// the stack.
const PROFILE_STACK: u64 = 40;
/// Maximum number of patched processes.
const MAX_PATCHED: usize = 5000;
/// Memory of a patched process, in bytes: its state, and five open files of 256 bytes: the file of its stub, and the links of
/// four BPF programs. All patched processes together take at most half of the memory for live blocks, because a sampled run has
/// fewer live blocks.
const PATCHED_PROCESS: u64 = 2048;
/// Memory of an open object file, in bytes. It includes the kernel's structures and the position of the unwind table.
const FILE: u64 = 1024;
/// Memory of a BPF map of unwind rows, in bytes.
const ROWS: u64 = 1 << 20;

/// Size of the smallest ring, in bytes. It absorbs a burst of some thousand events.
const SMALLEST_RING: u64 = 1 << 18;

/// Size of the smallest ring of mmap events, in bytes. It has space for 50 mappings between two polls.
const SMALLEST_MMAP_RING: u64 = 1 << 13;

/// If memtrace's cgroup has less free memory than this, memtrace limits itself to the free memory.
const LOW_LIMIT: Bytes = Bytes(512 << 20);

/// Origin of the memory limit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Option,
    /// memtrace's own memory cgroup.
    Cgroup,
    /// The default limit of traces that may run for weeks.
    Default,
}

impl MemoryPlan {
    /// Returns the limits of a run without a memory limit.
    fn full(config: &Config) -> Self {
        let has_intervals = config.views_moments() || config.every.or(config.timeline).is_some();
        let recorder = has_intervals.then_some(match config.recording {
            Some(_) => RecorderLimits::FULL,
            None => RecorderLimits::WITHOUT_FILE,
        });
        let recorder = recorder.or(config.trend_interval().map(|_| RecorderLimits::OF_TRENDS));
        Self {
            limit: None,
            maps: MapSizes::FULL.with(config.map_uses()),
            ring_size: config.tuning.ring_size,
            mmap_ring: Bytes(mmap_events::LARGEST_RING as u64),
            live: config.tuning.max_live,
            stacks: 1 << 20,
            ended: EndedLimits { stacks: 1 << 22, call_paths: 1 << 23, waiting: 1 << 20 },
            registry: registry::Limits::default(),
            profile_programs: 1 << 16,
            profile_stacks: 1 << 20,
            patched: if config.allow_patching { MAX_PATCHED } else { 0 },
            files: 1 << 16,
            // 16 MiB is the call frame information of six compiler executables.
            unwinding: UnwindLimits { copies: Bytes(64 << 20), copy_count: 1 << 18, frame_data: Bytes(16 << 20) },
            generated_names: Bytes(32 << 20),
            has_histograms: config.blocks.lifetimes,
            recorder,
        }
    }

    /// Returns the largest limits within `limit`, none larger than in `full`; `None` if the smallest limits do not fit.
    /// `rings`: number of rings of events. `processors`: number of rings of mmap events.
    fn within(limit: Bytes, rings: u32, processors: u64, full: Self) -> Option<Self> {
        let rest = limit.0.checked_sub(PROGRAM)?;
        let rings = u64::from(rings.max(1));
        let rows = u32::try_from(rest / UNWIND_ROWS / ROWS).unwrap_or(u32::MAX);
        let maps = MapSizes::within(Bytes(rest / MAPS), rows, full.maps.uses)?;
        let ring = power_of_two(rest / RINGS / rings).filter(|&ring| ring >= SMALLEST_RING)?;
        let ring_size = full.ring_size.min(Bytes(ring));
        let frame_data = full.unwinding.frame_data.min(Bytes(rest / FRAME_DATA));
        let generated_names = full.generated_names.min(Bytes(rest / GENERATED_NAMES));
        let tables = u64::from(maps.rows) * ROWS + frame_data.0;
        let recorder = full.recorder.map(|full| full.within(Bytes(rest / full.divisor)));
        let (of_recorder, recorded_stack) =
            recorder.map_or((0, 0), |recorder| (rest / recorder.divisor, RECORDED_STACK));
        let taken = maps.memory().0 + tables + ring_size.0 * rings + of_recorder;
        // A recorder has its own names of generated code.
        let taken = taken + generated_names.0 * if recorder.is_some() { 2 } else { 1 };
        let part = rest.checked_sub(taken)? / shares::ALL;
        let mmap_ring = power_of_two(part * shares::MMAP_RINGS / processors.max(1));
        let mmap_ring = mmap_ring.filter(|&ring| ring >= SMALLEST_MMAP_RING)?;
        let (stack, ended_stack) = stack_memory(full.has_histograms);
        let stack = stack + recorded_stack;
        let entries = |share: u64, bytes: u64| part * share / bytes;
        let state = |share: u64, bytes: u64| count(entries(shares::REGISTRY, registry_shares::ALL) * share / bytes);
        let registry = registry::Limits {
            images: full.registry.images.min(state(registry_shares::IMAGES, IMAGE)),
            mappings: full.registry.mappings.min(state(registry_shares::MAPPINGS, MAPPING)),
            thread_names: full.registry.thread_names.min(state(registry_shares::THREAD_NAMES, THREAD_NAME)),
        };
        let of_blocks = part * shares::LIVE_BLOCKS;
        let patched = full.patched.min(count(of_blocks / 2 / PATCHED_PROCESS));
        let of_blocks = of_blocks - patched as u64 * PATCHED_PROCESS;
        let stacks = entries(shares::STACKS, stack);
        Some(Self {
            limit: Some(limit),
            maps,
            ring_size,
            mmap_ring: full.mmap_ring.min(Bytes(mmap_ring)),
            live: full.live.min(of_blocks / BLOCK),
            stacks: full.stacks.min(u32::try_from(stacks / rings).unwrap_or(u32::MAX)),
            ended: EndedLimits {
                stacks: full.ended.stacks.min(count(entries(shares::ENDED_STACKS, ended_stack))),
                call_paths: full.ended.call_paths.min(count(entries(shares::CALL_PATHS, CALL_PATH))),
                waiting: full.ended.waiting.min(count(entries(shares::WAITING_ENDED, WAITING_ENDED))),
            },
            registry,
            profile_programs: full.profile_programs.min(state(registry_shares::PROFILE_PROGRAMS, PROFILE_PROGRAM)),
            profile_stacks: full.profile_stacks.min(state(registry_shares::PROFILE_STACKS, PROFILE_STACK)),
            patched,
            files: full.files.min(state(registry_shares::FILES, FILE)),
            unwinding: UnwindLimits {
                copies: full.unwinding.copies.min(Bytes(entries(shares::COPIES, 1))),
                // The frames of a copied stack are not in the ledgers, so the share of stacks includes them.
                copy_count: full.unwinding.copy_count.min(count(stacks / 2)),
                frame_data,
            },
            generated_names,
            has_histograms: full.has_histograms,
            recorder,
        })
    }

    /// Returns the size limit of the run's history; `None` if nothing shows moments before the end.
    pub(super) fn history_limit(&self, config: &Config) -> Option<Bytes> {
        let of_file = config.recording.as_ref().map(|recording| recording.size_limit);
        let in_memory = self.recorder.filter(|_| config.views_moments()).map(|limits| limits.book);
        of_file.or(in_memory)
    }

    /// Returns the limits of ended processes. `keep`: number of processes with rows of their own.
    /// `start`: start of the trace.
    pub(super) fn of_ended(&self, keep: usize, start: Tick) -> EndedSettings {
        EndedSettings {
            keep,
            max_stack_entries: self.ended.stacks,
            max_call_paths: self.ended.call_paths,
            max_name_bytes: count(self.generated_names.0),
            start,
        }
    }
}

/// Returns the memory of a stack, and of an ended stack, in bytes.
const fn stack_memory(has_histograms: bool) -> (u64, u64) {
    if has_histograms { (STACK + HISTOGRAMS, ENDED_STACK + ENDED_HISTOGRAMS) } else { (STACK, ENDED_STACK) }
}

impl RecorderLimits {
    const FULL: Self = Self {
        call_paths: 1 << 23,
        grouped_stacks: 1 << 20,
        known_totals: 1 << 20,
        queued_rows: 3 << 18,
        book: Bytes(0),
        waiting_stacks: 3 << 18,
        divisor: RECORDER,
    };

    /// Limits of a run with its history in memory. In ten minutes, 100 busy accounts take 4 MiB, and 100 busy threads
    /// 10 MiB.
    const WITHOUT_FILE: Self = Self { known_totals: 0, queued_rows: 0, book: Bytes(128 << 20), ..Self::FULL };

    /// Limits of a run with a history for trends only: 40 MiB together. Ended images have no groups.
    const OF_TRENDS: Self = Self {
        call_paths: 1 << 18,
        grouped_stacks: 0,
        book: Bytes(16 << 20),
        waiting_stacks: 3 << 14,
        divisor: RECORDER_OF_TRENDS,
        ..Self::WITHOUT_FILE
    };

    /// Returns the largest limits within `memory`, none larger than in `self`.
    fn within(self, memory: Bytes) -> Self {
        let entries = |ninths: u64, bytes: u64| count(memory.0 / 9 * ninths / bytes);
        Self {
            call_paths: self.call_paths.min(entries(recorder_ninths::CALL_PATHS, CALL_PATH)),
            grouped_stacks: self.grouped_stacks.min(entries(recorder_ninths::GROUPED_STACKS, ENDED_STACK)),
            known_totals: self.known_totals.min(entries(recorder_ninths::KNOWN_TOTALS, KNOWN_TOTAL)),
            queued_rows: self.queued_rows.min(entries(recorder_ninths::QUEUED_ROWS, QUEUED_ROW)),
            // Only a run without a file has this history. It has no known totals and no queued rows, so it uses their
            // shares.
            book: self.book.min(Bytes(memory.0 / 9 * (recorder_ninths::KNOWN_TOTALS + recorder_ninths::QUEUED_ROWS))),
            waiting_stacks: self.waiting_stacks.min(entries(recorder_ninths::WAITING_STACKS, WAITING_STACK)),
            divisor: self.divisor,
        }
    }
}

/// Returns the limits for `config` with `rings` rings, and a note for the user if they are unusually low.
///
/// # Errors
///
/// [`Error::Memory`] if the smallest limits exceed the memory.
pub(super) fn plan(config: &Config, rings: u32) -> Result<(MemoryPlan, Option<String>), Error> {
    let full = MemoryPlan::full(config);
    let processors = procfs::online_cpus().map_or(1, |cpus| cpus.len()) as u64;
    let least = smallest(rings, processors, full.maps.uses);
    let Some((limit, origin)) = limit(config, own_limit(), least) else { return Ok((full, None)) };
    let Some(plan) = MemoryPlan::within(limit, rings, processors, full) else {
        return Err(Error::Memory { limit, required: least, is_option: origin == Origin::Option });
    };
    let reason = match origin {
        Origin::Option => "--memory-limit allows",
        Origin::Cgroup => "this memory cgroup leaves",
        Origin::Default => {
            log::info!("memtrace uses at most {limit} (--memory-limit): {plan:?}");
            return Ok((plan, None));
        }
    };
    let note = format!(
        "{reason} {limit}: the rings have {} each, and at most {} live blocks are kept",
        plan.ring_size, plan.live
    );
    Ok((plan, Some(note)))
}

/// Returns the memory limit and its origin; `None` without a limit. `own`: limit of memtrace's own cgroup. `least`:
/// lowest limit that suffices for the run.
fn limit(config: &Config, own: Option<OwnLimit>, least: Bytes) -> Option<(Bytes, Origin)> {
    if let Some(limit) = config.tuning.memory_limit {
        return Some((limit, Origin::Option));
    }
    let free = own.map(|own| own.free);
    match config.target {
        Target::Selected { .. } => {
            let default = if config.views_moments() { RECORDED_LIMIT } else { DEFAULT_LIMIT };
            // A quarter of a low limit can be too little, so it is at least `least`.
            let quarter = own.map(|own| Bytes(own.limit.0 / 4).max(least).min(own.free));
            match quarter.filter(|quarter| *quarter < default) {
                Some(quarter) => Some((quarter, Origin::Cgroup)),
                None => Some((default.max(least), Origin::Default)),
            }
        }
        Target::Pids { .. } | Target::Command { .. } => {
            free.filter(|free| *free < LOW_LIMIT).map(|free| (free, Origin::Cgroup))
        }
    }
}

/// Memory of memtrace's own cgroup.
#[derive(Clone, Copy, Debug)]
struct OwnLimit {
    limit: Bytes,
    /// Unused part of the limit, minus the memory of the report.
    free: Bytes,
}

fn own_limit() -> Option<OwnLimit> {
    let memory = procfs::cgroup_memory(Pid(std::process::id()))?;
    let limit = memory.limit?;
    // The kernel reclaims the page cache of the cgroup if memory is short.
    let used = limit.current.0.saturating_sub(memory.counters.file.unwrap_or_default().0);
    Some(OwnLimit { limit: limit.most, free: Bytes(limit.most.0.saturating_sub(used + REPORT)) })
}

/// Returns the lowest memory limit for a run. `rings`: number of rings of events. `processors`: number of rings of mmap
/// events. `uses`: optional features with BPF maps of their own.
fn smallest(rings: u32, processors: u64, uses: MapUses) -> Bytes {
    let maps = MAPS * MapSizes::SMALLEST.with(uses).memory().0;
    let rings = RINGS * SMALLEST_RING * u64::from(rings.max(1));
    // The divisors of a recorded run leave 3/16 of the memory for the shares.
    let mmap_rings = (16 * shares::ALL * SMALLEST_MMAP_RING * processors).div_ceil(3 * shares::MMAP_RINGS);
    Bytes((PROGRAM + maps.max(rings).max(mmap_rings).max(UNWIND_ROWS * ROWS)).next_multiple_of(1 << 20))
}

/// Returns the largest power of two up to `number`.
fn power_of_two(number: u64) -> Option<u64> {
    number.checked_ilog2().map(|bits| 1 << bits)
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;

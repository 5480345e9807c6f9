//! Settings of the BPF programs: the user's options, and offsets of members in the running kernel's structs.

use std::num::NonZeroU32;

use memtrace_common::wire::{
    CgroupLayout, HIERARCHIES, HugeFaultLayout, KernelMember, MAX_FRAMES, MAX_RINGS, MemcgLayout, MemoryLockLayout,
    NO_HIERARCHY, ReclaimArguments, ReturnInstanceLayout, RusageLayout, Settings, TaskLayout, ThreadIoLayout,
    ThreadLayout, VmaLayout, VmaTreeLayout, filter_key,
};
use memtrace_model::{Bytes, Nanoseconds, printable};

use super::btf::Btf;
use super::error::KernelError;
use super::map_sizes::MapSizes;
use super::process_filter::{ProcessFilter, ThreadFilter};
use super::tracepoints;
use crate::procfs::{self, Hierarchies, kernel_files};

/// Divisor of the size of a ring. The quotient is the number of unread bytes that wakes the reader.
const WAKE_PART: u64 = 4;

/// Options of the activity of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityOptions {
    /// Duration of the shortest recorded futex wait; `None` to record none.
    pub min_wait: Option<Nanoseconds>,
    /// Duration of the shortest recorded allocator call; `None` to time no calls.
    pub min_call: Option<Nanoseconds>,
}

/// Options of the BPF programs, fixed before they are loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of rings.
    pub rings: u32,
    /// Size of each ring.
    pub ring_size: Bytes,
    /// Sizes of the maps.
    pub map_sizes: MapSizes,
    /// Maximum number of frames of a stack; 0 to take no stacks.
    pub max_depth: u32,
    /// Size of the smallest recorded allocation. [`super::Kernel::raise_min_size`] raises it later.
    pub min_size: Bytes,
    /// Size of the largest recorded allocation.
    pub max_size: Bytes,
    /// Monotonic clock at tick 0, in nanoseconds.
    pub start_ns: u64,
    /// Processes to trace.
    pub filter: ProcessFilter,
    /// Threads to trace.
    pub threads: ThreadFilter,
    /// True if allocation events name the allocator.
    pub records_allocators: bool,
    /// True if allocation events have the current tag.
    pub records_tags: bool,
    /// True if functions can tag a block that was allocated before. Only if `records_tags` is true.
    pub records_late_tags: bool,
    /// True if allocations are recorded with the usable size of the block instead of the requested size.
    pub usable_sizes: bool,
    /// True to record exits of threads.
    pub records_thread_exits: bool,
    /// N to record the page faults of one page in N; `None` to record no page faults.
    pub page_sample: Option<NonZeroU32>,
    /// True to record each huge page at its fault, even if pages are sampled.
    pub records_huge_pages: bool,
    /// True to record moves of pages (`mremap`), by programs at each system call.
    pub records_moves: bool,
    /// True to record reclaim, and stalls for memory.
    pub reclaim: bool,
    /// True to record all changes of mappings.
    pub records_mappings: bool,
    /// True to count the usage of threads instead of recording events.
    pub counts_threads: bool,
    /// Options of the activity of threads; `None` to record none.
    pub activity: Option<ActivityOptions>,
}

/// By default, the programs record only starts and ends of processes, to a small ring.
impl Default for Options {
    fn default() -> Self {
        Self {
            rings: 1,
            ring_size: Bytes(1 << 16),
            map_sizes: MapSizes::SMALLEST,
            max_depth: 0,
            min_size: Bytes(0),
            max_size: Bytes(u64::MAX),
            start_ns: 0,
            filter: ProcessFilter::default(),
            threads: ThreadFilter::default(),
            records_allocators: false,
            records_tags: false,
            records_late_tags: false,
            usable_sizes: false,
            records_thread_exits: false,
            page_sample: None,
            records_huge_pages: false,
            records_moves: false,
            reclaim: false,
            records_mappings: false,
            counts_threads: false,
            activity: None,
        }
    }
}

impl Options {
    const fn follows_syscalls(&self) -> bool {
        self.records_moves || self.records_mappings
    }
}

/// Returns the settings of the BPF programs for `options` on the running kernel.
///
/// # Errors
///
/// [`KernelError::TooOld`]; [`KernelError::Unsupported`] if the kernel's BTF lacks a member that every run needs.
pub(super) fn settings(options: &Options) -> Result<Settings, KernelError> {
    let types = read_types()?;
    let types = Btf::parse(&types).ok_or_else(|| missing("type information"))?;
    let offset_of = |member| {
        types.offset_of(member).ok_or_else(|| {
            let KernelMember { structure, names } = member;
            missing(&format!("{structure}.{}", names.first().copied().unwrap_or_default()))
        })
    };
    let return_instances = ReturnInstanceLayout::resolve(offset_of).unwrap_or_else(|error| {
        log::warn!("stacks through functions with a pending uretprobe may be cut: {error}");
        ReturnInstanceLayout::default()
    });
    let vma_tree = VmaTreeLayout::resolve(offset_of).unwrap_or_else(|error| {
        log::debug!("VMAs cannot be looked up while their lock is held: {error}");
        VmaTreeLayout::default()
    });
    let cgroup = CgroupLayout::resolve(offset_of).or_else(|error| {
        log::debug!("cgroups are not recorded: {error}");
        if options.filter.is_by(filter_key::CGROUP) { Err(error) } else { Ok(CgroupLayout::default()) }
    })?;
    let mut rusage = RusageLayout::default();
    if options.page_sample.is_some() {
        rusage = RusageLayout::resolve(offset_of).unwrap_or_else(|error| {
            log::warn!("page faults of processes that exit are not counted: {error}");
            RusageLayout::default()
        });
    }
    let mut huge_fault = HugeFaultLayout::default();
    if options.records_huge_pages {
        huge_fault = HugeFaultLayout::resolve(offset_of).unwrap_or_else(|error| {
            log::info!("huge pages are not recorded at their faults: {error}");
            HugeFaultLayout::default()
        });
    }
    let memory_lock = MemoryLockLayout::resolve(offset_of).unwrap_or_else(|error| {
        log::info!("a process that holds the lock of its memory map can hold up the insertion of probes: {error}");
        MemoryLockLayout::default()
    });
    let shortest =
        |of: fn(ActivityOptions) -> Option<Nanoseconds>| options.activity.and_then(of).map_or(u64::MAX, |time| time.0);
    let needs_threads = options.counts_threads || options.activity.is_some();
    let settings = Settings {
        start_ns: options.start_ns,
        max_size: options.max_size.0,
        wake_mark: options.ring_size.0 / WAKE_PART,
        min_wait: shortest(|activity| activity.min_wait),
        min_call: shortest(|activity| activity.min_call),
        rings: options.rings.clamp(1, MAX_RINGS),
        max_depth: options.max_depth.min(MAX_FRAMES as u32),
        filter_mode: options.filter.mode(),
        traced_by_default: options.filter.by_default().into(),
        filters_by_user: options.filter.is_by(filter_key::USER).into(),
        filters_by_comm: options.filter.is_by(filter_key::COMM).into(),
        filters_by_cgroup: options.filter.is_by(filter_key::CGROUP).into(),
        thread_filter: options.threads.mode(),
        hierarchies: Hierarchies::read().map_or([NO_HIERARCHY; HIERARCHIES], |hierarchies| {
            let mut numbers = hierarchies.numbers();
            [(); HIERARCHIES].map(|()| numbers.next().unwrap_or(NO_HIERARCHY))
        }),
        records_allocators: options.records_allocators.into(),
        records_tags: options.records_tags.into(),
        records_late_tags: (options.records_tags && options.records_late_tags).into(),
        usable_sizes: options.usable_sizes.into(),
        page_sample: options.page_sample.map_or(1, u32::from),
        // With sampled pages, the pages of a child cannot be derived from the pages of its parent, so forks are not recorded.
        records_forks: (options.page_sample.map_or(options.records_mappings, |sample| sample == NonZeroU32::MIN))
            .into(),
        records_mappings: options.records_mappings.into(),
        syscall_programs: if options.follows_syscalls() { tracepoints::programs_per_syscall() } else { 0 },
        pending_slots: options.map_sizes.entries("PENDING"),
        scratch_slots: options.map_sizes.entries("SCRATCH"),
        records_thread_exits: options.records_thread_exits.into(),
        records_activity: options.activity.is_some().into(),
        task: TaskLayout::resolve(offset_of)?,
        return_instances,
        vma: VmaLayout::resolve(offset_of)?,
        vma_tree,
        cgroup,
        memcg: memcg(&types, offset_of),
        rusage,
        huge_fault,
        reclaim: reclaim(&types),
        thread: if needs_threads { ThreadLayout::resolve(offset_of)? } else { ThreadLayout::default() },
        thread_io: ThreadIoLayout::resolve(offset_of).unwrap_or_default(),
        memory_lock,
    };
    has_find_vma(&types).map(|()| settings)
}

/// Checks if BPF programs can look up VMAs.
///
/// # Errors
///
/// [`KernelError::TooOld`]; [`KernelError::Unsupported`] without type information.
pub(super) fn find_vma() -> Result<(), KernelError> {
    let types = read_types()?;
    has_find_vma(&Btf::parse(&types).ok_or_else(|| missing("type information"))?)
}

/// Returns true if a process has its memory at the tracepoint `sched_process_exit`. Since Linux 6.16, the tracepoint is
/// before `exit_mm` (`do_exit`, kernel/exit.c), and has a second argument, `group_dead`.
pub(super) fn has_memory_at_exit() -> bool {
    let Ok(types) = read_types() else { return false };
    let arguments = Btf::parse(&types).and_then(|types| Some(types.tracepoint_arguments("sched_process_exit")?.len()));
    arguments.is_some_and(|arguments| arguments > 1)
}

fn has_find_vma(types: &Btf<'_>) -> Result<(), KernelError> {
    if types.has_function("bpf_find_vma") {
        return Ok(());
    }
    Err(KernelError::TooOld { release: procfs::kernel_release().unwrap_or_default() })
}

fn read_types() -> Result<Vec<u8>, KernelError> {
    kernel_files::read(procfs::kernel_btf())
        .map_err(|error| KernelError::from_error("read the kernel's type information", &error))
}

fn missing(subject: &str) -> KernelError {
    KernelError::Unsupported {
        action: String::from("describe its own types"),
        reason: format!("{subject} cannot be found in {}", printable(procfs::kernel_btf())),
    }
}

/// Returns the positions of the arguments of the running kernel's reclaim tracepoints (include/trace/events/vmscan.h).
fn reclaim(types: &Btf<'_>) -> ReclaimArguments {
    let direct = types.tracepoint_arguments("mm_vmscan_direct_reclaim_begin").unwrap_or_default();
    let isolate = types.tracepoint_arguments("mm_vmscan_lru_isolate").unwrap_or_default();
    let memcg = types.tracepoint_arguments("mm_vmscan_memcg_reclaim_begin").unwrap_or_default();
    let compaction = types.tracepoint_arguments("mm_compaction_begin").unwrap_or_default();
    let order = || types.member_offset("compact_control", "order");
    ReclaimArguments {
        order: u32::from(direct.get(1) == Some(&"int")),
        lru: if isolate.len() > 7 { 7 } else { 6 },
        has_memcg: u32::from(memcg.get(2) == Some(&"")),
        compaction_order: (compaction.first() == Some(&"")).then(order).flatten().unwrap_or_default(),
    }
}

/// Returns the offsets of the members for memcgs. They are all 0 if the kernel is built without the memory controller.
fn memcg(types: &Btf<'_>, offset_of: impl FnMut(KernelMember) -> Result<u32, KernelError>) -> MemcgLayout {
    const POINTER: u32 = size_of::<u64>() as u32;
    let Some(controller) = types.enum_value("cgroup_subsys_id", "memory_cgrp_id") else {
        log::debug!("memory cgroups are not recorded: the kernel is built without the memory controller");
        return MemcgLayout::default();
    };
    match MemcgLayout::resolve(offset_of) {
        Ok(layout) => MemcgLayout { css_set_memory: layout.css_set_memory + controller * POINTER, ..layout },
        Err(error) => {
            log::debug!("memory cgroups are not recorded: {error}");
            MemcgLayout::default()
        }
    }
}

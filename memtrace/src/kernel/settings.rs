//! What the programs are told before they are loaded: what the user wants, and where the running kernel keeps what they
//! read.

use std::num::NonZeroU32;

use memtrace_common::wire::{AreaLayout, CountsLayout, GroupLayout, MAX_FRAMES, MAX_RINGS, ReclaimLayout, Settings};

use super::btf::Btf;
use super::error::KernelError;
use super::process_filter::ProcessFilter;
use super::tracepoints;
use crate::model::Bytes;
use crate::procfs;

/// A ring's reader is woken when its backlog passes one part in so many of the ring.
const WAKE_PART: u64 = 4;

/// What the kernel half is told before it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many rings.
    pub rings: u32,
    /// The size of each.
    pub ring_size: Bytes,
    /// How many frames a stack may have; 0: no stacks.
    pub max_depth: u32,
    /// Allocations below this are filtered.
    pub min_size: Bytes,
    /// Allocations above this are filtered.
    pub max_size: Bytes,
    /// The monotonic clock, in nanoseconds, from which ticks are counted.
    pub start_ns: u64,
    /// Who is traced.
    pub filter: ProcessFilter,
    /// Whether events say which allocator has handed a block out (Linux 5.15).
    pub tells_allocators: bool,
    /// Touches of pages are told of, of one page in so many; `None`: they are not.
    pub page_sample: Option<NonZeroU32>,
    /// The search for memory, and waiting for it, is told of.
    pub reclaim: bool,
    /// Whether mappings are told of.
    pub tells_mappings: bool,
}

impl Options {
    /// Whether it takes following system calls to see what is asked for.
    const fn follows_calls(&self) -> bool {
        self.page_sample.is_some() || self.tells_mappings
    }
}

/// `options` as the programs read them.
///
/// # Errors
///
/// [`KernelError::Unsupported`] where the kernel does not tell of its types what nothing can replace.
pub(super) fn settings(options: &Options) -> Result<Settings, KernelError> {
    let unknown = |what: &str| KernelError::Unsupported {
        action: String::from("describe its own types"),
        reason: format!("{what} cannot be found in {}", procfs::kernel_btf().display()),
    };
    let types = std::fs::read(procfs::kernel_btf())
        .map_err(|error| KernelError::from_error("read the kernel's type information", &error))?;
    let types = Btf::parse(&types).ok_or_else(|| unknown("anything"))?;
    let member = |name: &str, member: &str| {
        types.member_offset(name, member).ok_or_else(|| unknown(&format!("{name}.{member}")))
    };
    let [task_utask, utask_instances, instance_stack, instance_address, instance_next] = return_instances(&types)
        .unwrap_or_else(|| {
            log::warn!(
                "pending return probes cannot be seen: {} does not say where they are",
                procfs::kernel_btf().display()
            );
            [0; 5]
        });
    let areas = areas(&types).unwrap_or_else(|| {
        log::debug!("the kernel cannot be asked what processes have mapped");
        AreaLayout::default()
    });
    let mut counts = CountsLayout::default();
    if options.page_sample.is_some() {
        counts = self::counts(&types).unwrap_or_else(|| {
            log::warn!(
                "of processes that end, page faults are not counted: {} does not say where they are",
                procfs::kernel_btf().display()
            );
            CountsLayout::default()
        });
    }
    Ok(Settings {
        start_ns: options.start_ns,
        min_size: options.min_size.0,
        max_size: options.max_size.0,
        rings: options.rings.clamp(1, MAX_RINGS),
        max_depth: options.max_depth.min(MAX_FRAMES as u32),
        wake_mark: options.ring_size.0 / WAKE_PART,
        task_signal: member("task_struct", "signal")?,
        signal_live: member("signal_struct", "live")?,
        task_utask,
        utask_instances,
        instance_stack,
        instance_address,
        instance_next,
        task_tgid: member("task_struct", "tgid")?,
        task_leader: member("task_struct", "group_leader")?,
        task_comm: member("task_struct", "comm")?,
        memory_exe: member("mm_struct", "exe_file")?,
        scope: options.filter.scope(),
        by_default: options.filter.by_default().into(),
        by_cgroup: options.filter.by_cgroup().into(),
        allocators: options.tells_allocators.into(),
        page_sample: options.page_sample.map_or(1, u32::from),
        // What one in so many pages of a process tells is not to be mixed with what was told of another's.
        forks: (options.page_sample.map_or(options.tells_mappings, |sample| sample == NonZeroU32::MIN)).into(),
        memory_break: member("mm_struct", "brk")?,
        mappings: options.tells_mappings.into(),
        calls: if options.follows_calls() { tracepoints::programs_a_call() } else { 0 },
        areas,
        reclaim: reclaim(&types),
        counts,
    })
}

/// How the running kernel's tracepoints about reclaim are called (include/trace/events/vmscan.h).
fn reclaim(types: &Btf<'_>) -> ReclaimLayout {
    let direct = types.tracepoint_arguments("mm_vmscan_direct_reclaim_begin").unwrap_or_default();
    let isolate = types.tracepoint_arguments("mm_vmscan_lru_isolate").unwrap_or_default();
    let memcg = types.tracepoint_arguments("mm_vmscan_memcg_reclaim_begin").unwrap_or_default();
    let compaction = types.tracepoint_arguments("mm_compaction_begin").unwrap_or_default();
    let order = || types.member_offset("compact_control", "order");
    ReclaimLayout {
        task_flags: types.member_offset("task_struct", "flags").unwrap_or_default(),
        order_argument: u32::from(direct.get(1) == Some(&"int")),
        list_argument: if isolate.len() > 7 { 7 } else { 6 },
        tells_group: u32::from(memcg.get(2) == Some(&"")),
        compaction_order: (compaction.first() == Some(&"")).then(order).flatten().unwrap_or_default(),
        reserved: 0,
        groups: groups(types).unwrap_or_else(|| {
            log::debug!("the kernel does not tell of control groups of memory");
            GroupLayout::default()
        }),
    }
}

/// Where the kernel keeps the control groups of the memory controller; `None` where it has none.
fn groups(types: &Btf<'_>) -> Option<GroupLayout> {
    const POINTER: u32 = size_of::<u64>() as u32;
    let controller = types.enum_value("cgroup_subsys_id", "memory_cgrp_id")?;
    Some(GroupLayout {
        known: 1,
        task_memory: types.member_offset("task_struct", "mm")?,
        owner: types.member_offset("mm_struct", "owner")?,
        task_groups: types.member_offset("task_struct", "cgroups")?,
        memory_group: types.member_offset("css_set", "subsys")?.checked_add(controller.checked_mul(POINTER)?)?,
        group: types.member_offset("mem_cgroup", "css.cgroup")?,
        node: types.member_offset("cgroup", "kn")?,
        id: types.member_offset("kernfs_node", "id")?,
        root: types.member_offset("cgroup", "root")?,
        hierarchy: types.member_offset("cgroup_root", "hierarchy_id")?,
        memory: types.member_offset("mem_cgroup", "memory")?,
        with_swap: types.member_offset("mem_cgroup", "memsw")?,
        usage: types.member_offset("page_counter", "usage")?,
        max: types.member_offset("page_counter", "max")?,
        high: types.member_offset("page_counter", "high")?,
        parent: types.member_offset("page_counter", "parent")?,
    })
}

/// Where the kernel keeps what it counts of processes.
fn counts(types: &Btf<'_>) -> Option<CountsLayout> {
    Some(CountsLayout {
        told: 1,
        task_minor: types.member_offset("task_struct", "min_flt")?,
        task_major: types.member_offset("task_struct", "maj_flt")?,
        task_node: types.member_offset("task_struct", "thread_node")?,
        signal_minor: types.member_offset("signal_struct", "min_flt")?,
        signal_major: types.member_offset("signal_struct", "maj_flt")?,
        signal_threads: types.member_offset("signal_struct", "thread_head")?,
        // A lock of sequences is one of a spin lock's sequences since Linux 5.10 (include/linux/seqlock_types.h).
        signal_sequence: types.member_offset("signal_struct", "stats_lock.seqcount.seqcount.sequence")?,
        signal_peak: types.member_offset("signal_struct", "maxrss")?,
        reserved: 0,
    })
}

/// Where the kernel keeps the return addresses that it has exchanged to see returns.
fn return_instances(types: &Btf<'_>) -> Option<[u32; 5]> {
    Some([
        types.member_offset("task_struct", "utask")?,
        types.member_offset("uprobe_task", "return_instances")?,
        types.member_offset("return_instance", "stack")?,
        types.member_offset("return_instance", "orig_ret_vaddr")?,
        types.member_offset("return_instance", "next")?,
    ])
}

/// Where the kernel keeps what a process has mapped, and whether it can be asked for it.
fn areas(types: &Btf<'_>) -> Option<AreaLayout> {
    let (changed_s, changed_ns) = change_time(types)?;
    Some(AreaLayout {
        known: types.has_function("bpf_find_vma").into(),
        task_memory: types.member_offset("task_struct", "mm")?,
        code_pages: types.member_offset("mm_struct", "exec_vm")?,
        begin: types.member_offset("vm_area_struct", "vm_start")?,
        end: types.member_offset("vm_area_struct", "vm_end")?,
        page_offset: types.member_offset("vm_area_struct", "vm_pgoff")?,
        flags: types.member_offset("vm_area_struct", "vm_flags")?,
        file: types.member_offset("vm_area_struct", "vm_file")?,
        memory: types.member_offset("vm_area_struct", "vm_mm")?,
        vdso: types.member_offset("mm_struct", "context.vdso")?,
        inode: types.member_offset("file", "f_inode")?,
        number: types.member_offset("inode", "i_ino")?,
        changed_s,
        changed_ns,
        super_block: types.member_offset("inode", "i_sb")?,
        device: types.member_offset("super_block", "s_dev")?,
        program: types.member_offset("linux_binprm", "file")?,
        task_files: types.member_offset("task_struct", "files")?,
        files_table: types.member_offset("files_struct", "fdt")?,
        table_files: types.member_offset("fdtable", "fd")?,
        program_begin: types.member_offset("mm_struct", "start_code")?,
        program_end: types.member_offset("mm_struct", "end_code")?,
    })
}

/// The inode's change time: seconds and nanoseconds. It was a `timespec64` until Linux 6.10, under another name since 6.6.
fn change_time(types: &Btf<'_>) -> Option<(u32, u32)> {
    let member = |member: &str| types.member_offset("inode", member);
    let pair = |seconds: &str, nanoseconds: &str| Some((member(seconds)?, member(nanoseconds)?));
    pair("i_ctime_sec", "i_ctime_nsec")
        .or_else(|| pair("__i_ctime.tv_sec", "__i_ctime.tv_nsec"))
        .or_else(|| pair("i_ctime.tv_sec", "i_ctime.tv_nsec"))
}

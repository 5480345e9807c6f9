//! Writes explanations as JSON.

use std::io;

use memtrace_json::{self as schema, SCHEMA_VERSION};
use memtrace_model::{
    Bytes, CgroupEvents, CgroupLimit, CgroupMemory, Explanation, FileMemory, GoMemory, GoProfile, GoSource, GoTotals,
    HeapSource, HeapStats, MappingKind, MemoryCounters, MemorySizes, NamedMemory, Pressure, Stalled,
};

use crate::json::TOOL;
use crate::json_lines;

/// Writes an explanation as JSON.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write(page: &Explanation, out: &mut dyn io::Write) -> io::Result<()> {
    let counted = &page.counted;
    let page = schema::Explanation {
        schema_version: SCHEMA_VERSION,
        tool: TOOL,
        pid: page.pid.0,
        comm: page.comm.raw().into(),
        exe: page.exe.to_string_lossy(),
        threads: page.threads,
        rss_bytes: counted.rss.0,
        rss_before_bytes: page.before.map(|before| before.0),
        rss_peak_bytes: counted.peak.0,
        rss_anonymous_bytes: counted.anonymous.0,
        rss_file_bytes: counted.file.0,
        rss_shmem_bytes: counted.shmem.0,
        pss_bytes: page.pss.0,
        virtual_bytes: counted.virtual_size.0,
        swap_bytes: counted.swap.0,
        page_table_bytes: counted.page_tables.0,
        unexplained_bytes: page.unexplained(page.held()),
        explained: page.explained(),
        heap: heap(page),
        go: page.go.as_ref().map(go),
        anonymous: page.anonymous.iter().map(named).collect(),
        main_stack: sizes(page.main_stack),
        thread_stacks: schema::ThreadStacks {
            count: page.thread_stacks.stacks,
            sizes: sizes(page.thread_stacks.held),
            largest_thread: page.thread_stacks.largest.map(|(tid, _)| tid.0),
            largest_resident_bytes: page.thread_stacks.largest.map(|(_, resident)| resident.0),
        },
        files: page.files.iter().map(file).collect(),
        shmem: page.shmem.iter().map(named).collect(),
        special: sizes(page.special),
        hugetlb: sizes(page.hugetlb),
        kinds: page.kinds.iter().map(kind).collect(),
        cgroup: page.cgroup.as_ref().map(cgroup),
        pressure: page.pressure.map(pressure),
        file_timeouts: page.file_timeouts,
    };
    json_lines::write(&page, out)
}

const fn sizes(sizes: MemorySizes) -> schema::Sizes {
    schema::Sizes {
        reserved_bytes: sizes.reserved.0,
        resident_bytes: sizes.resident.0,
        swap_bytes: sizes.swap.0,
        huge_bytes: sizes.huge.0,
        returnable_bytes: sizes.returnable.0,
    }
}

fn heap(page: &Explanation) -> schema::Heap<'_> {
    let (blocks, not_told) = match &page.heap.source {
        HeapSource::Known(stats) => (Some(heap_blocks(stats)), None),
        HeapSource::Unknown(why) => (None, Some(why.as_str().into())),
    };
    let allocator = page.heap.allocator.as_deref().map(Into::into);
    schema::Heap { allocator, sizes: sizes(page.heap.held), blocks, not_told }
}

const fn heap_blocks(stats: &HeapStats) -> schema::HeapBlocks {
    schema::HeapBlocks {
        in_use_bytes: stats.in_use.0,
        in_use_count: stats.blocks,
        in_use_resident_bytes: stats.in_use_resident.0,
        mapped_bytes: stats.mapped.0,
        mapped_count: stats.mapped_blocks,
        free_bytes: stats.free.0,
        trimmable_bytes: stats.trimmable.0,
        own_bytes: stats.own.0,
        untold_resident_bytes: stats.undetermined.0,
        arenas: stats.arenas,
    }
}

fn go(go: &GoMemory) -> schema::GoMemory<'_> {
    let (totals, parts, not_told) = match &go.source {
        GoSource::Known(known) => (Some(go_totals(&known.totals)), [known.heap, known.stacks, known.own], None),
        GoSource::Unknown(why) => (None, [MemorySizes::default(); 3], Some(why.as_str().into())),
    };
    let [heap, stacks, own] = parts.map(sizes);
    let (profile, profile_not_told) = match &go.profile {
        GoProfile::Readable => ("readable", None),
        GoProfile::Off => ("off", None),
        GoProfile::Unreadable(why) => ("unreadable", Some(why.as_str().into())),
    };
    schema::GoMemory {
        version: go.version.as_deref().map(Into::into),
        heap,
        stacks,
        own,
        totals,
        not_told,
        profile: profile.into(),
        profile_not_told,
    }
}

const fn go_totals(totals: &GoTotals) -> schema::GoTotals {
    schema::GoTotals {
        heap_alloc_bytes: totals.objects.0,
        heap_in_use_bytes: totals.in_use.0,
        heap_idle_bytes: totals.idle_or_released().0,
        heap_released_bytes: totals.released.0,
        heap_sys_bytes: totals.heap().0,
        stack_in_use_bytes: totals.stacks.0,
        stack_sys_bytes: totals.all_stacks().0,
        mspan_sys_bytes: totals.spans.0,
        mcache_sys_bytes: totals.caches.0,
        buck_hash_sys_bytes: totals.profile_tables.0,
        gc_sys_bytes: totals.all_of_collector().0,
        other_sys_bytes: totals.other.0,
        sys_bytes: totals.sys().0,
    }
}

fn named(named: &NamedMemory) -> schema::NamedMemory<'_> {
    schema::NamedMemory { name: named.name.as_str().into(), mappings: named.mappings, sizes: sizes(named.held) }
}

fn file(file: &FileMemory) -> schema::FileMemory<'_> {
    schema::FileMemory { path: file.path.as_str().into(), sizes: sizes(file.held), copied_bytes: file.copied.0 }
}

fn kind((kind, held): &(MappingKind, MemorySizes)) -> schema::KindMemory<'static> {
    schema::KindMemory { kind: kind.name().into(), sizes: sizes(*held) }
}

pub(super) fn cgroup(group: &CgroupMemory) -> schema::CgroupUse<'_> {
    let CgroupEvents { high, max, oom, oom_kill } = group.events;
    schema::CgroupUse {
        path: group.path.as_str().into(),
        current_bytes: group.current.0,
        peak_bytes: group.peak.map(|bytes| bytes.0),
        counters: counters(&group.counters),
        limit: group.limit.as_ref().map(limit),
        high: group.high.as_ref().map(limit),
        events: schema::CgroupEvents { high, max, oom, oom_kill },
        pressure: group.pressure.map(pressure),
    }
}

fn limit(limit: &CgroupLimit) -> schema::CgroupLimit<'_> {
    schema::CgroupLimit { path: limit.path.as_str().into(), limit_bytes: limit.most.0, current_bytes: limit.current.0 }
}

pub(super) fn counters(counters: &MemoryCounters) -> schema::MemoryCounters {
    let number = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
    let unmapped_shmem = counters.unmapped_shmem();
    let kernel = &counters.kernel;
    schema::MemoryCounters {
        anonymous_bytes: number(counters.anonymous),
        file_bytes: number(counters.file),
        shmem_bytes: number(counters.shmem),
        mapped_bytes: number(counters.mapped),
        unmapped_bytes: number(counters.unmapped()),
        unmapped_shmem_least_bytes: unmapped_shmem.map(|(least, _)| least.0),
        unmapped_shmem_most_bytes: unmapped_shmem.map(|(_, most)| most.0),
        dirty_bytes: number(counters.dirty),
        clean_bytes: number(counters.clean()),
        swap_bytes: number(counters.swap),
        kernel: schema::KernelMemory {
            bytes: number(kernel.sum()),
            slab_reclaimable_bytes: number(kernel.slab_reclaimable),
            slab_unreclaimable_bytes: number(kernel.slab_unreclaimable),
            stack_bytes: number(kernel.stacks),
            page_table_bytes: number(kernel.page_tables),
            socket_bytes: number(kernel.sockets),
            per_cpu_bytes: number(kernel.per_cpu),
            vmalloc_bytes: number(kernel.vmalloc),
            zswap_bytes: number(kernel.zswap),
        },
    }
}

pub(super) fn pressure(pressure: Pressure) -> schema::Pressure {
    schema::Pressure { some: shares(pressure.some), full: pressure.full.map(shares) }
}

const fn shares(stalled: Stalled) -> schema::PressureShares {
    schema::PressureShares {
        percent_10s: stalled.ten_seconds,
        percent_60s: stalled.minute,
        percent_300s: stalled.five_minutes,
        total_s: stalled.total.as_secs_f64(),
    }
}

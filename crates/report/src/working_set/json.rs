//! Working sets as JSON, one line for each reading.

use std::io;

use memtrace_json::{self as schema, SCHEMA_VERSION, WorkingSetMemory};
use memtrace_model::{DistinctMemory, DistinctPages, LimitedGroup, ProcessWorkingSet, ReferencedMemory, WorkingSets};

use crate::json::{TOOL, by_name};
use crate::json_lines;

/// Writes a reading as a JSON object in a line of its own.
///
/// # Errors
///
/// Returns the errors of `out`.
pub(super) fn write(sets: &WorkingSets, out: &mut dyn io::Write) -> io::Result<()> {
    let memory_once = sets.distinct.as_ref();
    let line = schema::WorkingSets {
        tool: TOOL,
        kind: "working-sets".into(),
        schema_version: SCHEMA_VERSION,
        method: sets.method.name().into(),
        cumulative: sets.is_cumulative,
        requested_s: sets.requested.as_secs_f64(),
        at_s: sets.at().as_secs_f64(),
        total: memory(sets.total()),
        distinct: memory_once.and_then(|memory| memory.as_ref().ok()).map(distinct),
        unknown_frames: memory_once.and_then(|memory| memory.as_ref().err()).map(|reason| reason.name().into()),
        processes: sets.processes.iter().map(process).collect(),
        exited: sets.unmeasured.exited,
        not_permitted: sets.unmeasured.not_permitted,
        unreadable: sets.unmeasured.unreadable,
        lost_page_faults: sets.lost_faults,
        unmapped_cache: sets
            .unmapped_cache
            .map(|(all, touched)| schema::PageCache { bytes: all.0, referenced_bytes: touched.0 }),
        last_level_cache: sets
            .cache
            .map(|cache| schema::CacheUse { references: cache.references, misses: cache.misses }),
        machine: schema::MachineSeconds {
            seconds: sets.seconds.all,
            scanning_seconds: sets.seconds.scanning,
            paging_seconds: sets.seconds.paging,
            kswapd_runs: sets.kswapd_runs,
        },
        limits: sets.limits.iter().map(limit).collect(),
        limits_left_out: sets.limits_left_out,
        fit: sets.fit.map(|fit| schema::Fit {
            needed_bytes: fit.needed.0,
            has_swap: fit.has_swap,
            memory_high_bytes: fit.high.map(|high| high.0),
        }),
    };
    json_lines::write_line(&line, out)
}

fn distinct(memory: &DistinctMemory) -> schema::DistinctMemory<'static> {
    schema::DistinctMemory {
        total: distinct_pages(memory.total()),
        kinds: by_name(memory.kinds.iter().map(|(kind, pages)| (kind.name(), distinct_pages(*pages)))),
    }
}

const fn distinct_pages(pages: DistinctPages) -> schema::DistinctPages {
    schema::DistinctPages {
        rss_bytes: pages.resident.0,
        referenced_bytes: pages.referenced.0,
        least_referenced_bytes: pages.least_referenced.0,
    }
}

fn limit(group: &LimitedGroup) -> schema::LimitedGroup<'_> {
    schema::LimitedGroup {
        cgroup: group.path.as_str().into(),
        limit_bytes: group.limit.0,
        seconds: group.seconds.all,
        seconds_at_limit: group.seconds.scanning,
        paging_seconds: group.seconds.paging,
    }
}

fn process(process: &ProcessWorkingSet) -> schema::MeasuredProcess<'_> {
    schema::MeasuredProcess {
        pid: process.pid.0,
        name: process.comm.raw().into(),
        estimated_s: process.duration().as_secs_f64(),
        clear_s: process.clear_time().as_secs_f64(),
        read_s: process.read_time().as_secs_f64(),
        total: memory(process.total()),
        kinds: by_name(process.kinds.iter().map(|(kind, of_kind)| (kind.name(), memory(*of_kind)))),
        hugetlb_bytes: process.hugetlb.0,
        locked_bytes: process.locked.map(|bytes| bytes.0),
    }
}

const fn memory(memory: ReferencedMemory) -> WorkingSetMemory {
    WorkingSetMemory {
        rss_bytes: memory.resident.0,
        pss_bytes: memory.pss.0,
        shared_bytes: memory.shared.0,
        referenced_bytes: memory.referenced.0,
        least_referenced_bytes: memory.least_referenced.0,
        huge_bytes: memory.huge.0,
        swap_bytes: memory.swap.0,
    }
}

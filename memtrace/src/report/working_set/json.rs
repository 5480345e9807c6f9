//! Working sets as JSON, a line for each reading. `docs/json.md` documents the fields.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use crate::model::{ProcessWorkingSet, ReferencedMemory, WorkingSets};
use crate::report::json_lines::SingleLine;
use crate::report::tool::Tool;

/// Version of the fields.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Line<'a> {
    tool: Tool,
    kind: &'static str,
    schema_version: u32,
    method: &'static str,
    cumulative: bool,
    requested_s: f64,
    at_s: f64,
    total: Memory,
    processes: Vec<Process<'a>>,
    exited: u64,
    not_permitted: u64,
    unreadable: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_page_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unmapped_cache: Option<CacheFields>,
    last_level_cache: Option<CacheUseFields>,
    machine: Machine,
    #[serde(skip_serializing_if = "Option::is_none")]
    fit: Option<FitFields>,
}

/// Page cache of the selected control groups that no process has mapped.
#[derive(Serialize)]
struct CacheFields {
    bytes: u64,
    referenced_bytes: u64,
}

/// Use of the last-level cache by the processes.
#[derive(Serialize)]
struct CacheUseFields {
    references: u64,
    misses: u64,
}

/// Reclaim of the machine since the start.
#[derive(Serialize)]
struct Machine {
    seconds: u64,
    scanning_seconds: u64,
    paging_seconds: u64,
    kswapd_runs: u64,
}

#[derive(Serialize)]
struct FitFields {
    needed_bytes: u64,
    has_swap: bool,
    memory_high_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Process<'a> {
    pid: u32,
    name: &'a str,
    estimated_s: f64,
    clear_s: f64,
    read_s: f64,
    total: Memory,
    kinds: BTreeMap<&'static str, Memory>,
    hugetlb_bytes: u64,
    locked_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Memory {
    rss_bytes: u64,
    pss_bytes: u64,
    referenced_bytes: u64,
    least_referenced_bytes: u64,
    huge_bytes: u64,
}

impl From<ReferencedMemory> for Memory {
    fn from(memory: ReferencedMemory) -> Self {
        Self {
            rss_bytes: memory.resident.0,
            pss_bytes: memory.pss.0,
            referenced_bytes: memory.referenced.0,
            least_referenced_bytes: memory.least_referenced.0,
            huge_bytes: memory.huge.0,
        }
    }
}

/// Writes a reading as an object in a line of its own.
///
/// # Errors
///
/// Returns the errors of `out`.
pub(super) fn write(sets: &WorkingSets, mut out: &mut dyn io::Write) -> io::Result<()> {
    let line = Line {
        tool: Tool::THIS,
        kind: "working-sets",
        schema_version: SCHEMA_VERSION,
        method: sets.method.name(),
        cumulative: sets.is_cumulative,
        requested_s: sets.requested.as_secs_f64(),
        at_s: sets.at().as_secs_f64(),
        total: sets.total().into(),
        processes: sets.processes.iter().map(process).collect(),
        exited: sets.unmeasured.exited,
        not_permitted: sets.unmeasured.not_permitted,
        unreadable: sets.unmeasured.unreadable,
        lost_page_faults: sets.lost_faults,
        unmapped_cache: sets
            .unmapped_cache
            .map(|(all, touched)| CacheFields { bytes: all.0, referenced_bytes: touched.0 }),
        last_level_cache: sets.cache.map(|cache| CacheUseFields { references: cache.references, misses: cache.misses }),
        machine: Machine {
            seconds: sets.seconds.all,
            scanning_seconds: sets.seconds.scanning,
            paging_seconds: sets.seconds.paging,
            kswapd_runs: sets.kswapd_runs,
        },
        fit: sets.fit.map(|fit| FitFields {
            needed_bytes: fit.needed.0,
            has_swap: fit.has_swap,
            memory_high_bytes: fit.high.map(|high| high.0),
        }),
    };
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, SingleLine);
    line.serialize(&mut serializer)?;
    out.write_all(b"\n")
}

fn process(process: &ProcessWorkingSet) -> Process<'_> {
    Process {
        pid: process.pid.0,
        name: process.comm.raw(),
        estimated_s: process.duration().as_secs_f64(),
        clear_s: process.clear_time().as_secs_f64(),
        read_s: process.read_time().as_secs_f64(),
        total: process.total().into(),
        kinds: process.kinds.iter().map(|(kind, memory)| (kind.name(), (*memory).into())).collect(),
        hugetlb_bytes: process.hugetlb.0,
        locked_bytes: process.locked.map(|bytes| bytes.0),
    }
}

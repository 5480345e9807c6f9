//! Fields of the page, separate from the model, so that the model can change without a change of the format.

use serde::Serialize;

use crate::model::{
    CgroupMemory, Explanation, FileMemory, HeapSource, HeapStats, MappingKind, MemorySizes, NamedMemory, Pressure,
    Stalled,
};
use crate::report::tool::Tool;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
pub(super) struct Page<'a> {
    schema_version: u32,
    tool: Tool,
    pid: u32,
    comm: &'a str,
    exe: std::borrow::Cow<'a, str>,
    threads: u32,
    rss_bytes: u64,
    rss_before_bytes: Option<u64>,
    rss_peak_bytes: u64,
    rss_anonymous_bytes: u64,
    rss_file_bytes: u64,
    rss_shmem_bytes: u64,
    pss_bytes: u64,
    virtual_bytes: u64,
    swap_bytes: u64,
    page_table_bytes: u64,
    unexplained_bytes: i64,
    explained: f64,
    heap: Heap<'a>,
    anonymous: Vec<Named<'a>>,
    main_stack: Numbers,
    thread_stacks: Stacks,
    files: Vec<File<'a>>,
    shmem: Vec<Named<'a>>,
    special: Numbers,
    hugetlb: Numbers,
    kinds: Vec<Kind>,
    cgroup: Option<Group<'a>>,
    pressure: Option<Waited>,
}

impl<'a> Page<'a> {
    pub(super) fn new(page: &'a Explanation) -> Self {
        let counted = &page.counted;
        Self {
            schema_version: SCHEMA_VERSION,
            tool: Tool::THIS,
            pid: page.pid.0,
            comm: page.comm.raw(),
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
            heap: Heap::of(page),
            anonymous: page.anonymous.iter().map(Named::of).collect(),
            main_stack: page.main_stack.into(),
            thread_stacks: Stacks::of(page),
            files: page.files.iter().map(File::of).collect(),
            shmem: page.shmem.iter().map(Named::of).collect(),
            special: page.special.into(),
            hugetlb: page.hugetlb.into(),
            kinds: page.kinds.iter().map(Kind::of).collect(),
            cgroup: page.cgroup.as_ref().map(Group::of),
            pressure: page.pressure.map(Waited::from),
        }
    }
}

#[derive(Serialize)]
struct Numbers {
    reserved_bytes: u64,
    resident_bytes: u64,
    swap_bytes: u64,
    huge_bytes: u64,
}

impl From<MemorySizes> for Numbers {
    fn from(sizes: MemorySizes) -> Self {
        Self {
            reserved_bytes: sizes.reserved.0,
            resident_bytes: sizes.resident.0,
            swap_bytes: sizes.swap.0,
            huge_bytes: sizes.huge.0,
        }
    }
}

#[derive(Serialize)]
struct Heap<'a> {
    allocator: Option<&'a str>,
    #[serde(flatten)]
    held: Numbers,
    blocks: Option<Blocks>,
    not_told: Option<&'a str>,
}

impl<'a> Heap<'a> {
    fn of(page: &'a Explanation) -> Self {
        let (blocks, not_told) = match &page.heap.source {
            HeapSource::Known(stats) => (Some(Blocks::from(stats)), None),
            HeapSource::Unknown(why) => (None, Some(why.as_str())),
        };
        Self { allocator: page.heap.allocator.as_deref(), held: page.heap.held.into(), blocks, not_told }
    }
}

#[derive(Serialize)]
struct Blocks {
    in_use_bytes: u64,
    in_use_count: u64,
    in_use_resident_bytes: u64,
    mapped_bytes: u64,
    mapped_count: u64,
    free_bytes: u64,
    own_bytes: u64,
    untold_resident_bytes: u64,
    arenas: u32,
}

impl From<&HeapStats> for Blocks {
    fn from(stats: &HeapStats) -> Self {
        Self {
            in_use_bytes: stats.in_use.0,
            in_use_count: stats.blocks,
            in_use_resident_bytes: stats.in_use_resident.0,
            mapped_bytes: stats.mapped.0,
            mapped_count: stats.mapped_blocks,
            free_bytes: stats.free.0,
            own_bytes: stats.own.0,
            untold_resident_bytes: stats.undetermined.0,
            arenas: stats.arenas,
        }
    }
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    mappings: u32,
    #[serde(flatten)]
    held: Numbers,
}

impl<'a> Named<'a> {
    fn of(named: &'a NamedMemory) -> Self {
        Self { name: &named.name, mappings: named.mappings, held: named.held.into() }
    }
}

#[derive(Serialize)]
struct Stacks {
    count: u32,
    #[serde(flatten)]
    held: Numbers,
    largest_thread: Option<u32>,
    largest_resident_bytes: Option<u64>,
}

impl Stacks {
    fn of(page: &Explanation) -> Self {
        let stacks = &page.thread_stacks;
        Self {
            count: stacks.stacks,
            held: stacks.held.into(),
            largest_thread: stacks.largest.map(|(tid, _)| tid.0),
            largest_resident_bytes: stacks.largest.map(|(_, resident)| resident.0),
        }
    }
}

#[derive(Serialize)]
struct File<'a> {
    path: &'a str,
    #[serde(flatten)]
    held: Numbers,
    copied_bytes: u64,
}

impl<'a> File<'a> {
    fn of(file: &'a FileMemory) -> Self {
        Self { path: &file.path, held: file.held.into(), copied_bytes: file.copied.0 }
    }
}

#[derive(Serialize)]
struct Kind {
    kind: &'static str,
    #[serde(flatten)]
    held: Numbers,
}

impl Kind {
    fn of((kind, sizes): &(MappingKind, MemorySizes)) -> Self {
        Self { kind: kind.name(), held: (*sizes).into() }
    }
}

#[derive(Serialize)]
struct Group<'a> {
    path: &'a str,
    current_bytes: u64,
    anonymous_bytes: Option<u64>,
    file_bytes: Option<u64>,
    limit: Option<Limit<'a>>,
    pressure: Option<Waited>,
}

#[derive(Serialize)]
struct Limit<'a> {
    path: &'a str,
    limit_bytes: u64,
    current_bytes: u64,
}

impl<'a> Group<'a> {
    fn of(group: &'a CgroupMemory) -> Self {
        Self {
            path: &group.path,
            current_bytes: group.current.0,
            anonymous_bytes: group.anonymous.map(|bytes| bytes.0),
            file_bytes: group.file.map(|bytes| bytes.0),
            limit: group.limit.as_ref().map(|limit| Limit {
                path: &limit.path,
                limit_bytes: limit.most.0,
                current_bytes: limit.current.0,
            }),
            pressure: group.pressure.map(Waited::from),
        }
    }
}

#[derive(Serialize)]
struct Waited {
    some: Shares,
    full: Option<Shares>,
}

#[derive(Serialize)]
struct Shares {
    percent_10s: f64,
    percent_60s: f64,
    percent_300s: f64,
    total_s: f64,
}

impl From<Pressure> for Waited {
    fn from(found: Pressure) -> Self {
        Self { some: found.some.into(), full: found.full.map(Shares::from) }
    }
}

impl From<Stalled> for Shares {
    fn from(stalled: Stalled) -> Self {
        Self {
            percent_10s: stalled.ten_seconds,
            percent_60s: stalled.minute,
            percent_300s: stalled.five_minutes,
            total_s: stalled.total.as_secs_f64(),
        }
    }
}

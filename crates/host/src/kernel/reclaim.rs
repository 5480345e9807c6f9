//! BPF programs that record reclaim and compaction, and the counters that they increment.

use std::collections::BTreeMap;

use aya::maps::{HashMap, PerCpuArray};
use memtrace_common::wire::{self, KernelThreadTotals, reclaim_counter, reclaim_kind};
use memtrace_model::{CgroupId, KernelThread, Nanoseconds, ReclaimActivity, ReclaimKind};

use super::bpf::Bpf;
use super::decode;
use super::error::KernelError;
use super::wire_type::MapEntry;

/// Programs, each with the possible names of its tracepoint in order of preference. The first two programs are required.
const TRACEPOINTS: &[(&str, &[&str])] = &[
    ("direct_reclaim_begin", &["mm_vmscan_direct_reclaim_begin"]),
    ("direct_reclaim_end", &["mm_vmscan_direct_reclaim_end"]),
    // Kernels without memcgs lack these two.
    ("memcg_reclaim_begin", &["mm_vmscan_memcg_reclaim_begin"]),
    ("memcg_reclaim_end", &["mm_vmscan_memcg_reclaim_end"]),
    ("compaction_begin", &["mm_compaction_begin"]),
    ("compaction_end", &["mm_compaction_end"]),
    ("kswapd_wake", &["mm_vmscan_kswapd_wake"]),
    ("kswapd_sleep", &["mm_vmscan_kswapd_sleep"]),
    ("lru_isolate", &["mm_vmscan_lru_isolate"]),
    ("lru_shrink_inactive", &["mm_vmscan_lru_shrink_inactive"]),
    ("lru_shrink_active", &["mm_vmscan_lru_shrink_active"]),
    // Older kernels use the second name.
    ("write_folio", &["mm_vmscan_write_folio", "mm_vmscan_writepage"]),
    ("throttled", &["mm_vmscan_throttled"]),
];
const REQUIRED: usize = 2;

/// Counters of reclaim and compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReclaimCounters {
    /// Reclaim by kind. Kinds without reclaim are absent.
    pub efforts: BTreeMap<ReclaimKind, ReclaimActivity>,
    /// Reclaim by kernel threads, with the longest time first.
    pub threads: Vec<KernelThread>,
}

/// Attaches the programs. Returns the tracepoints that the kernel lacks.
///
/// # Errors
///
/// The kernel's error if it lacks the tracepoints of direct reclaim.
pub(super) fn attach(bpf: &mut Bpf) -> Result<Vec<&'static str>, KernelError> {
    let mut missing = Vec::new();
    for (index, (program, names)) in TRACEPOINTS.iter().enumerate() {
        let mut outcome = bpf.load_tracepoint(program, names[0]);
        if outcome.is_ok() {
            for name in *names {
                outcome = bpf.attach_loaded_tracepoint(program, name);
                if outcome.is_ok() {
                    break;
                }
            }
        }
        match outcome {
            Ok(()) => {}
            Err(error) if index < REQUIRED => return Err(error),
            Err(error) => {
                log::info!("{error}");
                missing.extend(names.first());
            }
        }
    }
    Ok(missing)
}

/// Reads the counters.
pub(super) fn counters(bpf: &Bpf) -> ReclaimCounters {
    ReclaimCounters { efforts: activity(bpf), threads: kernel_threads(bpf) }
}

/// Returns the number of inactive pages that were scanned for the limit of each memcg.
pub(super) fn scanned_by_memcg(bpf: &Bpf) -> BTreeMap<CgroupId, u64> {
    let map = bpf.map("MEMCG_SCANNED").and_then(|map| HashMap::<_, u64, u64>::try_from(map).ok());
    let all = map.iter().flat_map(HashMap::iter).filter_map(Result::ok);
    all.filter_map(|(group, pages)| Some((CgroupId::of(group)?, pages))).collect()
}

fn activity(bpf: &Bpf) -> BTreeMap<ReclaimKind, ReclaimActivity> {
    let map = bpf.map("RECLAIM").and_then(|map| PerCpuArray::<_, u64>::try_from(map).ok());
    let Some(map) = map else { return BTreeMap::new() };
    let activity = |kind: u32| {
        let total = |counter: u32| {
            map.get(&(kind * reclaim_counter::COUNT + counter), 0).map_or(0, |by_cpu| by_cpu.iter().sum())
        };
        ReclaimActivity {
            times: total(reclaim_counter::TIMES),
            time: Nanoseconds(total(reclaim_counter::TIME)),
            scanned: total(reclaim_counter::SCANNED),
            scanned_active: total(reclaim_counter::SCANNED_ACTIVE),
            taken: total(reclaim_counter::TAKEN),
            reclaimed: total(reclaim_counter::RECLAIMED),
            deactivated: total(reclaim_counter::DEACTIVATED),
            written: total(reclaim_counter::WRITTEN),
        }
    };
    let all = (0..reclaim_kind::COUNT).filter_map(|kind| Some((decode::reclaim_kind(kind)?, activity(kind))));
    all.filter(|(_, activity)| *activity != ReclaimActivity::default()).collect()
}

fn kernel_threads(bpf: &Bpf) -> Vec<KernelThread> {
    type Entries<M> = HashMap<M, MapEntry<wire::KernelThread>, MapEntry<KernelThreadTotals>>;
    let map = bpf.map("KERNEL_THREADS").and_then(|map| Entries::try_from(map).ok());
    let thread = |(MapEntry(key), MapEntry(totals)): (MapEntry<wire::KernelThread>, MapEntry<KernelThreadTotals>)| {
        Some(KernelThread {
            name: decode::comm(&key.comm),
            work: decode::reclaim_kind(key.kind)?,
            effort: ReclaimActivity {
                times: totals.times,
                time: Nanoseconds(totals.time),
                scanned: totals.scanned,
                reclaimed: totals.reclaimed,
                ..ReclaimActivity::default()
            },
        })
    };
    let all = map.iter().flat_map(HashMap::iter).filter_map(Result::ok);
    let mut threads: Vec<_> = all.filter_map(thread).collect();
    threads.sort_by(|one, other| {
        other.effort.time.cmp(&one.effort.time).then_with(|| (&one.name, one.work).cmp(&(&other.name, other.work)))
    });
    threads
}

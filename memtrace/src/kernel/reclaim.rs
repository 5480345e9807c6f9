//! The kernel's search for memory, followed and counted.

use std::collections::BTreeMap;

use aya::maps::{HashMap, PerCpuArray};
use memtrace_common::wire::{self, KernelThreadTotals, reclaim_counter, reclaim_kind};

use super::decode;
use super::error::KernelError;
use super::load::Kernel;
use crate::model::{CgroupId, KernelThread, Nanoseconds, ReclaimActivity, ReclaimKind};

/// Programs and the tracepoints that they are for. Without the first two there is nothing to tell.
const TRACEPOINTS: &[(&str, &[&str])] = &[
    ("direct_reclaim_begin", &["mm_vmscan_direct_reclaim_begin"]),
    ("direct_reclaim_end", &["mm_vmscan_direct_reclaim_end"]),
    // Kernels without control groups for memory do not have these.
    ("memcg_reclaim_begin", &["mm_vmscan_memcg_reclaim_begin"]),
    ("memcg_reclaim_end", &["mm_vmscan_memcg_reclaim_end"]),
    ("compaction_begin", &["mm_compaction_begin"]),
    ("compaction_end", &["mm_compaction_end"]),
    ("kswapd_wake", &["mm_vmscan_kswapd_wake"]),
    ("kswapd_sleep", &["mm_vmscan_kswapd_sleep"]),
    ("lru_isolate", &["mm_vmscan_lru_isolate"]),
    ("lru_shrink_inactive", &["mm_vmscan_lru_shrink_inactive"]),
    ("lru_shrink_active", &["mm_vmscan_lru_shrink_active"]),
    // The second in Linux 5.10, the first in 6.1.
    ("write_folio", &["mm_vmscan_write_folio", "mm_vmscan_writepage"]),
    // Since Linux 5.16.
    ("throttled", &["mm_vmscan_throttled"]),
];
const NEEDED: usize = 2;

/// What the kernel half has counted of the search for memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReclaimCounters {
    /// By what was done; what was not done is missing.
    pub efforts: BTreeMap<ReclaimKind, ReclaimActivity>,
    /// The kernel's own threads.
    pub threads: Vec<KernelThread>,
}

/// A key and a value as the map takes them.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PlainThread(wire::KernelThread);
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PlainBook(KernelThreadTotals);

// SAFETY: `KernelThread` is `repr(C)`, made of integers only, and its asserted size leaves no padding.
unsafe impl aya::Pod for PlainThread {}
// SAFETY: as above.
unsafe impl aya::Pod for PlainBook {}

/// Has the search for memory told of from now on; names the tracepoints that the kernel does not have.
///
/// # Errors
///
/// What the kernel said where it tells of no direct reclaim, or a program is refused.
pub(super) fn follow(kernel: &mut Kernel) -> Result<Vec<&'static str>, KernelError> {
    let mut missing = Vec::new();
    for (index, (program, names)) in TRACEPOINTS.iter().enumerate() {
        let mut outcome = Ok(());
        for (attempt, name) in names.iter().enumerate() {
            outcome = match attempt {
                0 => kernel.follow_tracepoint(program, name),
                _ => kernel.attach_tracepoint(program, name),
            };
            if outcome.is_ok() {
                break;
            }
        }
        match outcome {
            Ok(()) => {}
            Err(error) if index < NEEDED => return Err(error),
            Err(error) => {
                log::info!("{error}");
                missing.extend(names.first());
            }
        }
    }
    Ok(missing)
}

impl Kernel {
    /// What has been counted of the search for memory so far, by everybody. Counters of one processor may be a little older
    /// than those of another.
    #[must_use]
    pub fn reclaim_counters(&self) -> ReclaimCounters {
        ReclaimCounters { efforts: self.efforts(), threads: self.kernel_threads() }
    }

    /// The control groups in which anybody has waited so far, and how many inactive pages were looked at for the limit of
    /// each. Where there are too many of them, those of which it is longest ago are missing.
    #[must_use]
    pub fn scanned_for_groups(&self) -> BTreeMap<CgroupId, u64> {
        let map = self.map("MEMCG_SCANNED").and_then(|map| HashMap::<_, u64, u64>::try_from(map).ok());
        let all = map.iter().flat_map(HashMap::iter).filter_map(Result::ok);
        all.filter_map(|(group, pages)| Some((CgroupId::of(group)?, pages))).collect()
    }

    fn efforts(&self) -> BTreeMap<ReclaimKind, ReclaimActivity> {
        let map = self.map("RECLAIM").and_then(|map| PerCpuArray::<_, u64>::try_from(map).ok());
        let Some(map) = map else { return BTreeMap::new() };
        let effort = |work: u32| {
            let total =
                |what: u32| map.get(&(work * reclaim_counter::COUNT + what), 0).map_or(0, |each| each.iter().sum());
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
        let all = (0..reclaim_kind::COUNT).filter_map(|work| Some((decode::work(work)?, effort(work))));
        all.filter(|(_, effort)| *effort != ReclaimActivity::default()).collect()
    }

    fn kernel_threads(&self) -> Vec<KernelThread> {
        let map = self.map("KERNEL_THREADS").and_then(|map| HashMap::<_, PlainThread, PlainBook>::try_from(map).ok());
        let thread = |(PlainThread(key), PlainBook(book)): (PlainThread, PlainBook)| {
            Some(KernelThread {
                name: decode::comm(&key.comm),
                work: decode::work(key.kind)?,
                effort: ReclaimActivity {
                    times: book.times,
                    time: Nanoseconds(book.time),
                    scanned: book.scanned,
                    reclaimed: book.reclaimed,
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
}

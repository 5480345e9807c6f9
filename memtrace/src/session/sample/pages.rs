//! What is resident of the traced processes, read when tracing begins and when it ends.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::model::{EventClass, GroupBy, Pid, ResidentRange, Rusage, Snapshot, Snapshots, Tick};
use crate::procfs;
use crate::reconcile::counts;
use crate::reconcile::counts::Known;
use crate::reconcile::residence;
use crate::reconcile::residence::Pages;
use crate::session::config::Config;
use crate::session::track::Followed;

/// What was resident of the processes that ran when tracing began, and how their pages are followed.
#[derive(Debug)]
pub(in crate::session) struct PageReader {
    before: Resident,
    /// What the kernel had counted of them.
    counted: BTreeMap<Pid, Rusage>,
    one_in: NonZeroU32,
    by_kind: bool,
}

impl PageReader {
    /// Reads what `pids` have resident; whoever touches a page from now on has it in the books too. `None` where neither
    /// page faults nor mappings are followed.
    pub(in crate::session) fn begin(config: &Config, pids: impl IntoIterator<Item = Pid>) -> Option<Self> {
        // Who has ended meanwhile had nothing that is still there.
        let read = |&pid: &Pid| Some((pid, procfs::resident(pid).ok()?));
        let follows_pages = config.follows(EventClass::counts_pages);
        let pids: Vec<_> = pids.into_iter().filter(|_| follows_pages).collect();
        // First, since it takes the least time: what happens meanwhile is in the books.
        let counted = pids.iter().filter_map(|&pid| Some((pid, procfs::kernel_counts(pid)?))).collect();
        (follows_pages || config.follows(EventClass::holds_mappings)).then(|| Self {
            before: pids.iter().filter_map(read).collect(),
            counted,
            one_in: config.page_sample,
            by_kind: config.by == GroupBy::Memory,
        })
    }

    /// What was resident of a process when tracing began, or else of the one that it is a copy of.
    fn before(&self, mut pid: Pid, copies: &BTreeMap<Pid, Pid>) -> &[ResidentRange] {
        for _ in 0..=copies.len() {
            match (self.before.get(&pid), copies.get(&pid)) {
                (Some(before), _) => return before,
                (None, Some(&parent)) => pid = parent,
                (None, None) => break,
            }
        }
        &[]
    }

    /// Holds the books of pages, and those of mappings, against what is resident now and what the kernel has counted since
    /// `began`. Of the processes that are `followed`, `is_traced` says whether one is traced.
    pub(in crate::session) fn settle(
        &self,
        snapshots: &mut Snapshots,
        followed: &Followed,
        began: Tick,
        is_traced: &dyn Fn(Pid) -> bool,
    ) {
        let mut resident = BTreeMap::new();
        if let Some(snapshot) = snapshots.0.get_mut(&EventClass::Fault) {
            let is_traced = |pid| followed.is_traced(pid) && is_traced(pid);
            let now = |pid| procfs::kernel_counts(pid);
            let known =
                Known { images: followed.images(), before: &self.counted, began, now: &now, is_traced: &is_traced };
            counts::settle(snapshot, &known);
            self.settle_pages(snapshot, &mut resident);
        }
        if let Some(snapshot) = snapshots.0.get_mut(&EventClass::Map) {
            for (id, usage) in snapshot.images.iter_mut().filter(|(_, usage)| usage.ended.is_none()) {
                residence::note_resident(usage, now(id.pid, &mut resident));
            }
        }
    }

    fn settle_pages(&self, snapshot: &mut Snapshot, resident: &mut Resident) {
        let copies: BTreeMap<Pid, Pid> =
            snapshot.images.iter().filter_map(|(id, usage)| Some((id.pid, usage.copy_of?))).collect();
        for (id, usage) in &mut snapshot.images {
            let now = if usage.ended.is_none() { Some(now(id.pid, resident)) } else { None };
            let before = if id.ordinal == 0 { self.before(id.pid, &copies) } else { &[] };
            let one_in = self.one_in.get();
            let pages = now.map(|now| Pages { now, before, one_in, by_kind: self.by_kind });
            residence::settle(usage, pages, one_in);
        }
    }
}

/// What is resident of the processes that were asked about, each read once.
type Resident = BTreeMap<Pid, Vec<ResidentRange>>;

/// What is resident of `pid`; nothing of a process that ends at this moment.
fn now(pid: Pid, resident: &mut Resident) -> &[ResidentRange] {
    resident.entry(pid).or_insert_with(|| procfs::resident(pid).unwrap_or_default())
}

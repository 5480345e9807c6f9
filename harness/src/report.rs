//! memtrace's JSON report, and its comparison with the truth.

pub mod doctor;
pub mod explain;
mod place;
mod reclaim;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use memtrace_common::vocabulary::LossReason;
use serde::Deserialize;
use serde::de::Error as _;

use crate::books::{Books, Numbers, Site};
pub use explain::Page;
pub use place::Place;
pub use reclaim::{CgroupWaits, GroupMemory, Kill, Machine, Order, Waits};

/// The report.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Report {
    /// The version of the report's form.
    pub schema_version: u32,
    /// How long was traced, in seconds.
    pub duration_s: f64,
    /// All processes together.
    pub totals: Numbers,
    /// Frees of unknown blocks, all processes together.
    pub unmatched_frees: u64,
    /// What the size filter kept out.
    pub filtered: Amount,
    /// One a program run by a process.
    pub processes: Vec<ProcessReport>,
    /// What stacks are put together under.
    pub roots: Vec<Root>,
    /// The control groups in which something waited for memory; of reclaim alone.
    pub cgroups: Option<Vec<CgroupWaits>>,
    /// What the whole machine has done to find memory; of reclaim alone.
    pub reclaim: Option<Machine>,
    /// Whom the kernel has killed for want of memory.
    pub oom_kills: Vec<Kill>,
    /// What was lost, by reason.
    pub losses: BTreeMap<String, u64>,
    /// What was there and could not be traced.
    pub notes: Vec<String>,
    /// How stacks ended, as shares.
    pub stack_quality: BTreeMap<String, f64>,
    /// The stacks.
    pub stacks: Vec<Stack>,
    /// What tracing has cost.
    pub cost: Cost,
    /// The frames, until each stack has its own.
    frames: Vec<Frame>,
}

/// What tracing has cost.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Cost {
    /// memtrace's own processor time, in seconds.
    pub cpu_s: f64,
    /// memtrace's own memory at its highest.
    pub peak_rss_bytes: u64,
}

/// So many blocks of so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Amount {
    /// The bytes.
    pub bytes: u64,
    /// The blocks.
    pub count: u64,
}

/// One program run by one process.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ProcessReport {
    /// The process.
    pub pid: u32,
    /// Its short name.
    pub comm: String,
    /// The program's path.
    pub exe: Option<String>,
    /// How it ended.
    pub ended: Option<String>,
    /// Its six numbers.
    pub totals: Numbers,
    /// Frees of unknown blocks.
    pub unmatched_frees: u64,
    /// What was live when it was replaced.
    pub discarded: Amount,
    /// Its highest live bytes, where kept.
    pub peak_bytes: Option<u64>,
    /// Frees of blocks that it had from its parent.
    pub inherited_frees: u64,
    /// The user that it runs as.
    pub uid: Option<u32>,
    /// The user's name.
    pub user: Option<String>,
    /// Its control group.
    pub cgroup: Option<String>,
    /// How many threads it has.
    pub threads: Option<u32>,
    /// How long it was traced.
    pub traced_s: f64,
    /// Allocations a second.
    pub allocs_per_s: Option<f64>,
    /// Its waits for memory, by what was done meanwhile; of reclaim alone.
    pub stalls: Option<BTreeMap<String, Waits>>,
    /// All that is resident, of page faults.
    pub resident_bytes: Option<u64>,
    /// The most that was ever resident, of page faults.
    pub peak_resident_bytes: Option<u64>,
    /// Page faults that needed no device, as the kernel counts them.
    pub minor_faults: Option<u64>,
    /// Page faults that waited for a device, as the kernel counts them.
    pub major_faults: Option<u64>,
    /// What is resident, by kind of memory, of page faults.
    #[serde(default)]
    pub resident: BTreeMap<String, Resident>,
}

/// What is resident of one kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Resident {
    /// All of it.
    pub total_bytes: u64,
    /// What has a stack.
    pub with_stack_bytes: u64,
    /// What was there when tracing began.
    pub before_bytes: u64,
}

/// What stacks are put together under.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Root {
    /// Its name.
    pub name: String,
    /// The six numbers.
    #[serde(flatten)]
    pub numbers: Numbers,
}

/// One stack.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Stack {
    /// The process.
    pub pid: u32,
    /// The program: an index into the report's processes.
    pub process: usize,
    /// What it is put together with others under: an index into the report's roots.
    pub root: usize,
    /// The thread that allocated, where that is told.
    pub thread: Option<u32>,
    /// How the walk ended.
    pub end: String,
    /// Root to leaf.
    #[serde(skip)]
    pub frames: Vec<Arc<Frame>>,
    /// The same, as they are written.
    #[serde(rename = "frames")]
    indices: Vec<usize>,
    /// The six numbers.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// Its live bytes at the process' peak, where kept.
    pub peak_bytes: Option<u64>,
    /// How often it waited for memory; of reclaim alone.
    pub stall_count: Option<u64>,
    /// Touches of pages that waited for a device, of page faults.
    pub major_faults: Option<u64>,
    /// How far the live bytes may be off, where they are estimated.
    pub live_error_bytes: Option<u64>,
    /// How far the bytes in all may be off, where they are estimated.
    pub alloc_error_bytes: Option<u64>,
    /// What is resident, of mappings.
    pub resident_bytes: Option<u64>,
    /// Whether it is within an allocator, of mappings.
    pub by_allocator: Option<bool>,
    /// The kind of memory, where that is told.
    pub memory: Option<String>,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Frame {
    /// The function, where it has a name.
    pub name: Option<String>,
    /// The object's path.
    pub object: Option<String>,
    /// Where in the object the call is.
    pub offset: Option<u64>,
    /// Where in the process the call is, where there is no object.
    pub address: Option<u64>,
    /// The source file.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// Whether the compiler put it into its caller.
    #[serde(default)]
    pub inlined: bool,
}

impl Report {
    /// Reads a report, and gives each stack its frames.
    ///
    /// # Errors
    ///
    /// Where it is no report.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        let mut report: Self = serde_json::from_str(text)?;
        let frames: Vec<_> = std::mem::take(&mut report.frames).into_iter().map(Arc::new).collect();
        for stack in &mut report.stacks {
            let own = std::mem::take(&mut stack.indices).into_iter().map(|index| frames.get(index).cloned());
            stack.frames =
                own.collect::<Option<_>>().ok_or_else(|| serde_json::Error::custom("a frame that is not there"))?;
        }
        Ok(report)
    }

    /// Asserts that one process was traced, that every number is the victim's own, and that nothing was lost.
    ///
    /// # Panics
    ///
    /// Where the report and the truth differ.
    pub fn assert_equals(&self, truth: &Books) {
        let [process] = &self.processes[..] else { panic!("not one process: {:#?}", self.processes) };
        process.assert_equals(truth);
        assert_eq!(self.filtered, Amount { bytes: truth.filtered_bytes, count: truth.filtered_count }, "filtered");
        self.assert_consistent();
        self.assert_nothing_lost();
    }

    /// The entries of one process, a program each, in the order in which it ran them.
    pub fn programs_of(&self, pid: u32) -> Vec<&ProcessReport> {
        self.processes.iter().filter(|process| process.pid == pid).collect()
    }

    /// Asserts that the report's parts add up: stacks to processes, processes to totals, and what was allocated to what
    /// was freed, is live and was discarded.
    ///
    /// # Panics
    ///
    /// Where they don't.
    pub fn assert_consistent(&self) {
        assert_eq!(self.totals, self.processes.iter().map(|process| process.totals).sum(), "processes and totals");
        let unmatched: u64 = self.processes.iter().map(|process| process.unmatched_frees).sum();
        assert_eq!(self.unmatched_frees, unmatched, "unmatched frees");
        let mut of_processes = vec![Numbers::default(); self.processes.len()];
        let mut of_roots = vec![Numbers::default(); self.roots.len()];
        for stack in &self.stacks {
            of_processes[stack.process] += stack.numbers;
            of_roots[stack.root] += stack.numbers;
        }
        for (process, stacks) in self.processes.iter().zip(of_processes) {
            let Numbers { live_bytes, live_count, alloc_bytes, alloc_count, free_bytes, free_count } = process.totals;
            assert_eq!(alloc_bytes, free_bytes + live_bytes + process.discarded.bytes, "bytes of {}", process.pid);
            assert_eq!(alloc_count, free_count + live_count + process.discarded.count, "blocks of {}", process.pid);
            assert_eq!(stacks, process.totals, "stacks of {}", process.pid);
        }
        assert_eq!(self.totals, self.roots.iter().map(|root| root.numbers).sum(), "roots and totals");
        for (root, stacks) in self.roots.iter().zip(of_roots) {
            assert_eq!(stacks, root.numbers, "stacks of {}", root.name);
        }
    }

    /// Asserts that every reason for a loss is listed, and none applied.
    ///
    /// # Panics
    ///
    /// Otherwise.
    pub fn assert_nothing_lost(&self) {
        let none: BTreeMap<String, u64> = LossReason::ALL.iter().map(|reason| (reason.name().to_owned(), 0)).collect();
        assert_eq!(self.losses, none);
    }

    /// Asserts that `reason` applied so often, and no other did.
    ///
    /// # Panics
    ///
    /// Otherwise.
    pub fn assert_only_lost(&self, reason: LossReason, count: u64) {
        let lost: BTreeMap<_, _> = self.losses.iter().filter(|(_, count)| **count > 0).collect();
        assert_eq!(lost, BTreeMap::from([(&reason.name().to_owned(), &count)]));
    }

    /// How often `reason` applied.
    ///
    /// # Panics
    ///
    /// If the report doesn't list it.
    #[must_use]
    pub fn lost(&self, reason: LossReason) -> u64 {
        *self.losses.get(reason.name()).unwrap_or_else(|| panic!("{} is not listed", reason.name()))
    }

    /// The stacks whose leaf is `name`.
    pub fn stacks_at<'report>(&'report self, name: &str) -> impl Iterator<Item = &'report Stack> {
        self.stacks.iter().filter(move |stack| stack.leaf().is_some_and(|leaf| leaf.name.as_deref() == Some(name)))
    }

    /// Asserts that the stacks that end in the victim's site have the site's numbers, its file and its line.
    ///
    /// # Panics
    ///
    /// Otherwise.
    pub fn assert_site(&self, source: &str, site: &Site) {
        let numbers: Numbers = self.stacks_at(&site.name).map(|stack| stack.numbers).sum();
        assert_eq!(numbers, site.numbers, "{}; leaves are {:?}", site.name, self.leaves());
        for stack in self.stacks_at(&site.name) {
            let leaf = stack.leaf().expect("it was found by its leaf");
            let file = leaf.file.as_deref().unwrap_or_default();
            assert!(file == source || file.ends_with(&format!("/{source}")), "{leaf:?} is not of {source}");
            assert_eq!(leaf.line, Some(site.line), "{leaf:?}");
        }
    }

    /// The stacks by the functions of `object` in them, from root to leaf, and how often was allocated there.
    #[must_use]
    pub fn chains(&self, object: &Path) -> BTreeMap<Vec<&str>, u64> {
        let mut chains = BTreeMap::new();
        for stack in &self.stacks {
            *chains.entry(stack.names_in(object)).or_default() += stack.numbers.alloc_count;
        }
        chains
    }

    /// Asserts that all stacks ended like `end`.
    ///
    /// # Panics
    ///
    /// Otherwise.
    pub fn assert_all_end(&self, end: &str) {
        for stack in self.stacks.iter().filter(|stack| stack.numbers.alloc_count > 0) {
            assert_eq!(stack.end, end, "{:?}", stack.names());
        }
        assert!((self.stack_quality[end] - 1.0).abs() < f64::EPSILON, "{:?}", self.stack_quality);
    }

    /// The names of all leaves.
    #[must_use]
    pub fn leaves(&self) -> Vec<Option<&str>> {
        self.stacks.iter().map(|stack| stack.leaf().and_then(|leaf| leaf.name.as_deref())).collect()
    }
}

impl ProcessReport {
    /// Asserts that the six numbers and the unmatched frees are the victim's own.
    ///
    /// # Panics
    ///
    /// Otherwise.
    pub fn assert_equals(&self, truth: &Books) {
        assert_eq!(self.totals, truth.numbers, "the numbers of {self:?}");
        assert_eq!(self.unmatched_frees, truth.unmatched_frees, "the unmatched frees of {self:?}");
    }
}

impl Stack {
    /// The frame that called the allocator.
    #[must_use]
    pub fn leaf(&self) -> Option<&Frame> {
        self.frames.last().map(AsRef::as_ref)
    }

    /// The names of the functions of `object`, from root to leaf, `?` where there is none.
    #[must_use]
    pub fn names_in(&self, object: &Path) -> Vec<&str> {
        let own = self.frames.iter().filter(|frame| frame.object.as_deref() == object.to_str());
        own.map(|frame| frame.name.as_deref().unwrap_or("?")).collect()
    }

    /// The names from root to leaf, `?` where there is none.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.frames.iter().map(|frame| frame.name.as_deref().unwrap_or("?")).collect()
    }
}

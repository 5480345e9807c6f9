//! memtrace's JSON reports, as typed values.

mod assertions;
mod call_site;
pub mod doctor;
pub mod explain;
mod histograms;
mod process;
mod reclaim;
mod stack;
mod untraced;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::Error as _;

use crate::totals::Totals;
pub use call_site::CallSite;
pub use explain::Explanation;
pub use histograms::Histograms;
pub use process::{Amount, EndedRun, ProcessReport, Resident};
pub use reclaim::{CgroupMemory, CgroupStalls, MachineReclaim, OomKill, OrderCount, StallTotals};
pub use stack::{Frame, Stack};
pub use untraced::{ProcessMemory, Untraced, UntracedProcess};

/// Returns the text of a report in any format. Compressed formats are decompressed, and bytes that are no text are replaced.
#[must_use]
pub fn text(bytes: Vec<u8>) -> String {
    let mut decompressed = Vec::new();
    match bytes.as_slice() {
        [0x1f, 0x8b, ..] => flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut decompressed),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd::stream::copy_decode(bytes.as_slice(), &mut decompressed).map(|()| 0),
        // The first packet of a trace for Perfetto.
        [0x0a, ..] => return String::from_utf8_lossy(&bytes).into_owned(),
        _ => return String::from_utf8(bytes).expect("reports are UTF-8"),
    }
    .expect("the compressed report is complete");
    String::from_utf8_lossy(&decompressed).into_owned()
}

/// The report of one event class.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Report {
    pub schema_version: u32,
    /// The metric by which stacks are sorted, and which pictures show.
    pub metric: String,
    pub duration_s: f64,
    pub totals: Totals,
    pub unmatched_frees: u64,
    pub repeated_frees: u64,
    /// Blocks that the size filter excludes.
    pub filtered: Amount,
    /// With `--lifetimes` only.
    pub histograms: Option<Histograms>,
    pub processes: Vec<ProcessReport>,
    /// Parts of the trace with known changes of live memory; recorded runs only.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// The groups of `--by`.
    pub roots: Vec<StackGroup>,
    /// Memory cgroups with stalls; reclaim only.
    pub cgroups: Option<Vec<CgroupStalls>>,
    /// Reclaim of the whole machine; reclaim only.
    pub reclaim: Option<MachineReclaim>,
    pub oom_kills: Vec<OomKill>,
    /// Number of lost events by loss reason.
    pub losses: BTreeMap<String, u64>,
    /// Processes in scope that are not traced.
    pub untraced: Untraced,
    pub notes: Vec<String>,
    /// Number of objects without debug information, by outcome of the search for it, and the downloaded bytes.
    pub debug_files: Option<BTreeMap<String, u64>>,
    /// Share of the stacks by stack end.
    pub stack_quality: BTreeMap<String, f64>,
    pub stacks: Vec<Stack>,
    pub cost: Cost,
    /// The frame table; [`Report::read`] moves it into the stacks.
    #[serde(rename = "frames")]
    pub frame_table: Vec<Frame>,
}

/// Resources that memtrace itself used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Cost {
    pub cpu_s: f64,
    pub tracing_cpu_s: f64,
    pub peak_rss_bytes: u64,
}

/// Part of the trace, since its start.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Part {
    pub from_s: f64,
    pub to_s: f64,
}

/// One group of `--by`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StackGroup {
    pub name: String,
    #[serde(flatten)]
    pub totals: Totals,
}

impl Report {
    /// Reads a report and resolves the frames of its stacks.
    ///
    /// # Errors
    ///
    /// If `text` is not JSON, a required field is missing, or a stack refers to a frame that does not exist.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        let mut report: Self = serde_json::from_str(text)?;
        let frames: Vec<_> = std::mem::take(&mut report.frame_table).into_iter().map(Arc::new).collect();
        for stack in &mut report.stacks {
            let own = std::mem::take(&mut stack.frame_indices).into_iter().map(|index| frames.get(index).cloned());
            stack.frames = own
                .collect::<Option<_>>()
                .ok_or_else(|| serde_json::Error::custom("a stack refers to a frame that does not exist"))?;
        }
        Ok(report)
    }

    /// Returns the number of lost events.
    #[must_use]
    pub fn total_losses(&self) -> u64 {
        self.losses.values().sum()
    }

    /// Returns the entries of one process: one for each program that it executed, in their order.
    #[must_use]
    pub fn entries_of(&self, pid: u32) -> Vec<&ProcessReport> {
        self.processes.iter().filter(|process| process.pid == pid).collect()
    }

    /// Returns the stacks with the function `name` as leaf.
    pub fn stacks_with_leaf<'report>(&'report self, name: &str) -> impl Iterator<Item = &'report Stack> {
        self.stacks.iter().filter(move |stack| stack.leaf().is_some_and(|leaf| leaf.name.as_deref() == Some(name)))
    }

    /// Returns the number of allocations by call chain: the functions of `object` in a stack, from root to leaf.
    #[must_use]
    pub fn chains(&self, object: &Path) -> BTreeMap<Vec<&str>, u64> {
        let mut chains = BTreeMap::new();
        for stack in &self.stacks {
            *chains.entry(stack.names_in(object)).or_default() += stack.totals.alloc_count;
        }
        chains
    }

    /// Returns the leaf functions of all stacks.
    #[must_use]
    pub fn leaves(&self) -> Vec<Option<&str>> {
        self.stacks.iter().map(|stack| stack.leaf().and_then(|leaf| leaf.name.as_deref())).collect()
    }
}

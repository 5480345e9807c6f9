//! memtrace's JSON reports, as typed values.

mod assertions;
mod call_site;
pub mod doctor;
pub mod explain;
mod stack;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use serde::de::Error as _;

use crate::totals::Totals;
pub use call_site::CallSite;
pub use explain::Explanation;
pub use memtrace_json::{Blocks, HeapBlocks, Histograms, Numbers, OrderStalls, ResidentMemory, Sizes, Stalls};
pub use stack::Stack;

pub type Frame = memtrace_json::Frame<'static>;
pub type SelectionExplanation = memtrace_json::SelectionExplanation<'static>;
pub type UntracedProcess = memtrace_json::UntracedProcess<'static>;

/// Returns the text of a report in any format. Compressed formats are decompressed, and bytes that are not UTF-8 are
/// replaced.
#[must_use]
pub fn text(bytes: Vec<u8>) -> String {
    let mut decompressed = Vec::new();
    match bytes.as_slice() {
        [0x1f, 0x8b, ..] => flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut decompressed),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd::stream::copy_decode(bytes.as_slice(), &mut decompressed).map(|()| 0),
        // The first packet of a trace for Perfetto starts with this byte.
        [0x0a, ..] => return String::from_utf8_lossy(&bytes).into_owned(),
        _ => return String::from_utf8(bytes).expect("reports are UTF-8"),
    }
    .expect("the compressed report is complete");
    String::from_utf8_lossy(&decompressed).into_owned()
}

/// Report of one event class. The frames of its stacks are resolved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub totals: Totals,
    pub processes: Vec<ProcessReport>,
    pub roots: Vec<StackGroup>,
    pub stacks: Vec<Stack>,
    /// The rest of the report, without processes, groups, frames and stacks.
    pub content: memtrace_json::Report<'static>,
}

impl Deref for Report {
    type Target = memtrace_json::Report<'static>;

    fn deref(&self) -> &Self::Target {
        &self.content
    }
}

/// One image of a process, or a group of images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessReport {
    /// Pid of the process; 0 for a group.
    pub pid: u32,
    pub totals: Totals,
    pub content: memtrace_json::Process<'static>,
}

impl Deref for ProcessReport {
    type Target = memtrace_json::Process<'static>;

    fn deref(&self) -> &Self::Target {
        &self.content
    }
}

impl From<memtrace_json::Process<'static>> for ProcessReport {
    fn from(content: memtrace_json::Process<'static>) -> Self {
        Self { pid: content.pid.unwrap_or_default(), totals: content.totals.into(), content }
    }
}

impl ProcessReport {
    /// Returns the number of images in a group; 1 for a single image.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.group.as_ref().map_or(1, |group| group.runs)
    }
}

/// One group of `--by`, with its totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackGroup {
    pub name: String,
    pub totals: Totals,
}

impl Report {
    /// Reads a report and resolves the frames of its stacks.
    ///
    /// # Errors
    ///
    /// If `text` is not JSON, a required field is missing, or a stack refers to a frame that does not exist.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        let mut content: memtrace_json::Report<'static> = serde_json::from_str(text)?;
        let frames: Vec<_> = std::mem::take(&mut content.frames).into_iter().map(Arc::new).collect();
        let stacks = std::mem::take(&mut content.stacks).into_iter();
        let stacks = stacks.map(|stack| Stack::new(stack, &frames)).collect::<Option<_>>();
        let group =
            |group: memtrace_json::Group<'_>| StackGroup { name: group.name.into(), totals: group.totals.into() };
        Ok(Self {
            totals: content.totals.into(),
            processes: std::mem::take(&mut content.processes).into_iter().map(Into::into).collect(),
            roots: std::mem::take(&mut content.roots).into_iter().map(group).collect(),
            stacks: stacks.ok_or_else(|| serde_json::Error::custom("a stack refers to a frame that does not exist"))?,
            content,
        })
    }

    /// Returns the number of lost events.
    #[must_use]
    pub fn total_losses(&self) -> u64 {
        self.losses.values().sum()
    }

    /// Returns the notes, except those about other tracers: the tests of another lane can trace the same functions.
    #[must_use]
    pub fn notes_of_target(&self) -> Vec<&str> {
        self.notes.iter().map(AsRef::as_ref).filter(|note| !note.contains(" other tracer")).collect()
    }

    /// Returns the entries of one process: one for each of its images, in their order.
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

/// Returns three numbers of blocks: allocated, freed, and live or held at exit.
#[must_use]
pub fn block_counts(histograms: &Histograms) -> [u64; 3] {
    let Histograms { size_log2, lifetime_log2, age_log2 } = histograms;
    [size_log2, lifetime_log2, age_log2].map(|counts| counts.iter().map(|(_, count)| count).sum())
}

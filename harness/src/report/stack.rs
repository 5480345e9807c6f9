//! The stacks of a report.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::histograms::Histograms;
use super::process::pid;
use crate::totals::Totals;

/// One stack of one process.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Stack {
    /// 0 for a stack of a group.
    #[serde(deserialize_with = "pid")]
    pub pid: u32,
    /// Index into the processes of the report.
    pub process: usize,
    /// Index into the groups of `--by`.
    pub root: usize,
    /// The allocating thread, in reports that separate threads.
    pub thread: Option<u32>,
    /// The stack end: the reason why the walk stopped.
    pub end: String,
    /// Number of stacks, if they were merged.
    #[serde(default)]
    pub merged_stacks: u64,
    /// From root to leaf.
    #[serde(skip)]
    pub frames: Vec<Arc<Frame>>,
    /// Indices into the frame table; [`Report::read`](super::Report::read) replaces them with `frames`.
    #[serde(rename = "frames")]
    pub frame_indices: Vec<usize>,
    #[serde(flatten)]
    pub totals: Totals,
    /// If touches were measured.
    pub hot_bytes: Option<u64>,
    /// If touches were measured.
    pub cold_bytes: Option<u64>,
    /// Heap only.
    #[serde(default)]
    pub temporary_bytes: u64,
    /// Heap only.
    #[serde(default)]
    pub temporary_count: u64,
    /// Live bytes at the high-water mark of the process.
    pub peak_bytes: Option<u64>,
    /// Reclaim only.
    pub stall_count: Option<u64>,
    /// Page faults only.
    pub major_faults: Option<u64>,
    /// Standard error of `live_bytes`, if it is an estimate.
    pub live_error_bytes: Option<u64>,
    /// Standard error of `alloc_bytes`, if it is an estimate.
    pub alloc_error_bytes: Option<u64>,
    /// Mappings only.
    pub resident_bytes: Option<u64>,
    /// True if an allocator made the mapping; mappings only.
    pub by_allocator: Option<bool>,
    /// The kind of memory.
    pub memory: Option<String>,
    /// With `--lifetimes` only.
    pub histograms: Option<Histograms>,
    /// The change of the live bytes in each of the report's parts.
    #[serde(default)]
    pub live_changes: Vec<i64>,
    /// The allocated bytes in each of the report's parts.
    #[serde(default)]
    pub part_allocs: Vec<u64>,
    pub trend: Option<String>,
}

/// One frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Frame {
    pub name: Option<String>,
    /// The reason for a missing name.
    pub unnamed: Option<String>,
    /// Path of the object.
    pub object: Option<String>,
    /// Offset of the call in the object.
    pub offset: Option<u64>,
    /// Address of the call, if it is in no object.
    pub address: Option<u64>,
    /// Path of the source file.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// True if the compiler inlined the function into its caller.
    #[serde(default)]
    pub inlined: bool,
    /// True if the frame was found by frame pointer.
    #[serde(default)]
    pub by_frame_pointer: bool,
}

impl Stack {
    /// Returns the frame that called the allocator.
    #[must_use]
    pub fn leaf(&self) -> Option<&Frame> {
        self.frames.last().map(AsRef::as_ref)
    }

    /// Returns the number of frames without inlined functions.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.frames.iter().filter(|frame| !frame.inlined).count()
    }

    /// Returns the functions of `object` from root to leaf, `?` for a function without a name.
    #[must_use]
    pub fn names_in(&self, object: &Path) -> Vec<&str> {
        let frames = self.frames.iter().filter(|frame| frame.object.as_deref() == object.to_str());
        frames.map(|frame| frame.name.as_deref().unwrap_or("?")).collect()
    }

    /// Returns the functions from root to leaf, `?` for a function without a name.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.frames.iter().map(|frame| frame.name.as_deref().unwrap_or("?")).collect()
    }
}

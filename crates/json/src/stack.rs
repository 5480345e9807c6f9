//! Stacks and frames of a report.

use std::ops::Not;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Histograms, Numbers, Text, is_zero};

/// One call stack of one process. Grouped by thread or allocator, or by tag with rules for threads, it is one call stack
/// of one allocating thread or of one allocator.
///
/// ### Merged stacks
///
/// Without `--all-stacks`, a JSON file has at most 40 MiB, not counting `timeline` and `activity`. The largest stacks are
/// written. The size of a stack is the sum of its shares in the live bytes, bytes held at exit, allocated bytes and
/// allocations, or in the time and number of stalls. If the share of the stack in another number is larger, that share
/// is its size. The other stacks of a process with the same `end` (and the same thread or allocator, if `--by` has that
/// key) are one entry without frames, with the number of stacks in `merged_stacks` and the sums of their numbers. Folded
/// stacks and pictures show the entry as `[other: 12,345 stacks]`. All sums in the report are exact, and so are `roots`
/// and `stack_quality`. `by_allocator` of merged stacks is `false`.
///
/// ### Stack ends
///
/// | name | meaning |
/// |---|---|
/// | `complete` | The outermost frame was reached and recognized as such. |
/// | `truncated` | The stack has more frames than `--max-depth`; the outermost callers are missing. |
/// | `generated` | The outermost frame was reached, in part through frame pointers of code without unwind information: generated at run time, or written in assembly. |
/// | `generated_cut` | Cut: the frame pointers of generated code led nowhere, or the code may keep none, as compiled Java code does by default. |
/// | `no_mapping` | Cut at an address outside of all known executable mappings. |
/// | `table_pending` | Cut at an object without an unwind table so far; it was being built, and there was no space for a copy of the stack. |
/// | `no_table` | Cut at an object that has no unwind table, and the frame pointer led nowhere. |
/// | `no_row` | Cut at an address that the object's unwind table does not cover, and the frame pointer led nowhere. |
/// | `untabled` | Cut at an address with unwind information that cannot be expressed in a table. |
/// | `unreadable` | Cut because the stack memory could not be read. |
/// | `bad_frame` | Cut at a value that cannot be a frame. |
/// | `register_lost` | Cut because the caller's frame depends on a register with an unknown value. |
/// | `mappings_busy` | Cut because the process was changing its mappings at that moment (mostly before Linux 6.1). |
/// | `not_taken` | No stack was requested. |
/// | `failed` | The stack could not be taken, or there was no space for it; a loss has the reason. |
/// | `frames_lost` | The stack was taken, but its frames did not arrive. |
/// | `merged` | Sum of stacks that were merged to bound the memory of memtrace: small ones without live blocks, and any for which there was no room. |
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stack<'a> {
    /// Process id; `null` for a group.
    pub pid: Option<u32>,
    /// Index in `processes`; several entries can have the same pid.
    pub process: usize,
    /// Index in `roots`.
    pub root: usize,
    /// Only if threads are distinguished: id of the allocating thread in the root pid namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// Only if threads are distinguished, if known: last name of the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_name: Option<Text<'a>>,
    /// Only by allocator, if known: the allocator that returned the blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocator: Option<Text<'a>>,
    /// [Stack end](#stack-ends).
    pub end: Text<'a>,
    /// Only for a sum of [merged stacks](#merged-stacks): number of merged stacks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged_stacks: u64,
    /// Sums over the blocks, mappings, pages or stalls of the stack, by event class.
    #[serde(flatten)]
    pub totals: Numbers,
    /// Live bytes of the stack at the time of the peak of its process, if kept.
    pub peak_bytes: Option<u64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `peak_bytes`. The interval is rather too wide, because
    /// blocks at the peak can have been freed: it has the error of all allocated blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes_low: Option<u64>,
    /// Only with sampled blocks: upper end of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes_high: Option<u64>,
    /// Only with `fault` and `--by memory`: kind of the live pages of the stack: `heap`, `anonymous`, `file`,
    /// `stack`, `shmem`, `hugetlb` or `special`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Text<'a>>,
    /// Only with `fault`: number of touches by the stack that waited for a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major_faults: Option<u64>,
    /// Only with sampling: error of `major_faults`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major_faults_error: Option<u64>,
    /// Only with `map`: resident part of the bytes that the stack has mapped, unless the process has `resident_unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Only with `map`: `true` if the stack passes through an allocation function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_allocator: Option<bool>,
    /// Only with `--lifetimes`, if the stack has blocks: histograms of its blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histograms: Option<Histograms>,
    /// Only with `parts`, for a process that runs: the change of the live bytes in each part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live_changes: Vec<i64>,
    /// Only with `live_changes`: the bytes allocated in each part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub part_allocs: Vec<u64>,
    /// Only with `live_changes`: `steady_growth`, `single_growth`, `churn`, `recent`, `decrease`, `within_error` or
    /// `irregular`. The guide has [the rules](guide/recordings.md#trends).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trend: Option<Text<'a>>,
    /// Indices in the report's `frames`, from the outermost frame to the innermost. Empty for merged stacks, and if
    /// no stack is known; `end` has the reason.
    pub frames: Vec<usize>,
}

/// Frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Frame<'a> {
    /// Name of the function, demangled.
    pub name: Option<Text<'a>>,
    /// Only if `name` is `null`: the reason, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unnamed: Option<Text<'a>>,
    /// Path of the executable or library as the target sees it; `null` for code without a file.
    pub object: Option<Text<'a>>,
    /// Build ID of the object, in hexadecimal digits.
    pub build_id: Option<Text<'a>>,
    /// Address of the call in the object, in the address space of the object's symbols.
    pub offset: Option<u64>,
    /// Address of the call in the process; only without an object.
    pub address: Option<u64>,
    /// Source file of the call, with the path that the compiler stored. For JIT code: of the function, from its perf
    /// map.
    pub file: Option<Text<'a>>,
    /// Line of the call, from 1. For JIT code: of the function.
    pub line: Option<u32>,
    /// `true` if the compiler inlined the function into its caller, which is the preceding frame of the stack.
    pub inlined: bool,
    /// Only if the frame was found by frame pointer: `true`. The next frame, which it calls, has no unwind
    /// information. If the function of the next frame keeps no frame pointer, functions between the two can be
    /// missing.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub by_frame_pointer: bool,
}

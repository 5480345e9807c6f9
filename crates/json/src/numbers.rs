//! Numbers of blocks and bytes, with their errors, and the kernel's counters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::nullable;

/// Defines a struct of numbers, and access to them by key.
macro_rules! numbers_by_key {
    ($(#[$attribute:meta])* pub struct $name:ident {
        $($(#[$field_attribute:meta])* pub $field:ident: $number:ty,)*
    }) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[$field_attribute])* pub $field: $number,)*
        }

        impl $name {
            /// Returns the number with this key; `None` if the key does not exist.
            pub fn number_mut(&mut self, key: &str) -> Option<NumberMut<'_>> {
                match key {
                    $(stringify!($field) => Some((&mut self.$field).into()),)*
                    _ => None,
                }
            }
        }
    };
}

numbers_by_key! {
/// Sums over the blocks of a stack, a group, a process or the report.
///
/// The numbers of all stacks of a process add up to the process' `totals`, and those of all processes to the report's.
/// The numbers of all groups also add up to the report's, because every stack is in exactly one group. Without an age
/// filter (`older_s`), allocated = freed + live + held at exit + discarded for each process. One of the last three at
/// most is not zero: the first for a process that runs, the second after an exit, the third after an `exec`.
///
/// With `reclaim`, the first eight are zero.
///
/// With sampling, the numbers are estimates, each with its error. Three in a thousand estimates are off by more. The
/// error of a sum is smaller than the sum of the errors, so groups, processes and totals have errors of their own. For
/// other sums, such as a frame or a line of folded stacks, the error grows with the square root of the number: a quarter
/// of a number has half of its error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Numbers {
    /// Allocated and not yet freed, by processes that run when tracing ends. With `window`, the change, which can be
    /// negative.
    pub live_bytes: i64,
    /// Blocks of `live_bytes`.
    pub live_count: i64,
    /// Allocated and not freed when the process exited or was killed. The kernel freed them with the process.
    pub exit_bytes: u64,
    /// Blocks of `exit_bytes`.
    pub exit_count: u64,
    /// Allocated since tracing began.
    pub alloc_bytes: u64,
    /// Blocks of `alloc_bytes`. A successful `realloc` is one free and one allocation.
    pub alloc_count: u64,
    /// Freed, of those allocated since tracing began.
    pub free_bytes: u64,
    /// Blocks of `free_bytes`.
    pub free_count: u64,
    /// Only with `heap`: freed by the allocating thread before its next allocation; included in `free_bytes`. A
    /// `realloc` frees its old block and then allocates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temporary_bytes: Option<u64>,
    /// Only with `heap`: blocks of `temporary_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temporary_count: Option<u64>,
    /// Only with `--cold-after`: live bytes on pages that were touched within `touches.duration_s`, or that the kernel
    /// does not track.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot_bytes: Option<u64>,
    /// Only with `--cold-after`: live bytes on resident pages that were not touched within that time; with the method
    /// `written`, not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold_bytes: Option<u64>,
    /// Only with sampling: error of `live_bytes`. A process that has ended has no resident memory, with certainty; and
    /// the resident memory of a process' stacks is at most the process' own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_error_bytes: Option<u64>,
    /// Only with sampling: error of `live_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_error_count: Option<u64>,
    /// Only with sampling: error of `alloc_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_error_bytes: Option<u64>,
    /// Only with sampling: error of `alloc_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_error_count: Option<u64>,
    /// Only with sampling: error of `free_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_error_bytes: Option<u64>,
    /// Only with sampling: error of `free_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_error_count: Option<u64>,
    /// Only with `reclaim`: time stalled while the kernel looked for pages to free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_ns: Option<u64>,
    /// Only with `reclaim`: number of stalls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_count: Option<u64>,
}
}

/// Reference to one of the [`Numbers`].
#[derive(Debug, PartialEq, Eq)]
pub enum NumberMut<'a> {
    /// A total, or its change, which can be negative.
    Signed(&'a mut i64),
    /// A total.
    Unsigned(&'a mut u64),
    /// A total that only some reports have.
    Optional(&'a mut Option<u64>),
}

impl<'a> From<&'a mut i64> for NumberMut<'a> {
    fn from(number: &'a mut i64) -> Self {
        Self::Signed(number)
    }
}

impl<'a> From<&'a mut u64> for NumberMut<'a> {
    fn from(number: &'a mut u64) -> Self {
        Self::Unsigned(number)
    }
}

impl<'a> From<&'a mut Option<u64>> for NumberMut<'a> {
    fn from(number: &'a mut Option<u64>) -> Self {
        Self::Optional(number)
    }
}

/// A number of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blocks {
    /// Number of blocks.
    pub count: u64,
    /// Sum of their sizes.
    pub bytes: u64,
}

/// The kernel's own counts. They are exact, with or without sampling.
///
/// A group has their sums if it consists of whole processes (`process`, `cgroup`, `user`, `comm`). Grouped by `memory`,
/// it has `resident_bytes`. Processes without a page in the sample are included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelCounts {
    /// Only with `fault`: all resident memory when tracing ends. For a process, it is the sum of `total_bytes` of
    /// `resident`. `null` if the process has ended.
    #[serde(deserialize_with = "nullable")]
    pub resident_bytes: Option<u64>,
    /// Only with `fault`: page faults during the trace that needed no device. `null` if the count at the start is
    /// unknown, or if many threads exited with the process at one moment.
    #[serde(deserialize_with = "nullable")]
    pub minor_faults: Option<u64>,
    /// Only with `fault`: page faults during the trace that waited for a device, with the same exceptions.
    #[serde(deserialize_with = "nullable")]
    pub major_faults: Option<u64>,
}

/// Resident memory of a process of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResidentMemory {
    /// Resident according to the page tables, for pages that count as its own.
    pub total_bytes: u64,
    /// The part that has a stack; an estimate with sampling.
    pub with_stack_bytes: u64,
    /// Only with sampling: error of that estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_stack_error_bytes: Option<u64>,
    /// The part that was resident when tracing began and has not been touched again. With sampling, pages outside of
    /// the sample count here if they were resident then.
    pub before_bytes: u64,
}

/// Numbers of blocks by the binary logarithm of a quantity.
///
/// Each histogram is a list of pairs in the order of *n*: a logarithm *n*, and the number of blocks with a value from
/// 2^*n* to below 2^(*n*+1). Empty buckets are left out.
///
/// In a window of a recording, histograms of stacks can have a few blocks more: if the frames of a stack arrived within
/// the window, or if stacks were merged in it, their blocks from before it count as well.
///
/// Times are measured in units of 2^20 ns (1.05 ms): the pair with the logarithm 19 counts all shorter times, and the
/// error of a longer time is at most one unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histograms {
    /// Allocated blocks by size in bytes; 0 counts as 1. Their sum is `alloc_count`.
    pub size_log2: Vec<(u32, u64)>,
    /// Freed blocks by lifetime in nanoseconds. Their sum is `free_count` if no age filter applies. A block whose free
    /// was lost lives until its address is allocated again.
    pub lifetime_log2: Vec<(u32, u64)>,
    /// Blocks that are live when tracing ends, or were held when their process ended, by age in nanoseconds. Their sum
    /// is `live_count` + `exit_count` if no age filter applies.
    pub age_log2: Vec<(u32, u64)>,
}

//! Numbers of blocks and bytes, errors of these numbers, and counters of the kernel.

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
/// The numbers of all stacks of a process add up to the `totals` of the process, and the `totals` of all processes
/// add up to the `totals` of the report. The numbers of all groups also add up to the `totals` of the report, because
/// every stack is in exactly one group. Without an age filter (`older_s`), allocated = freed + live + held at exit +
/// discarded for each process. At most one of the last three numbers is not zero: live for a process that runs, held
/// at exit after an exit, discarded after an `exec`.
///
/// With `reclaim`, the first eight numbers are zero.
///
/// With sampled pages, the numbers are estimates, each with its error. Five in a hundred estimates are off by more than
/// their error. Huge pages are counted and not estimated, so they do not increase the error. The error of a sum is
/// smaller than the sum of the errors, so groups, processes and totals have errors of their own. For other sums, such as
/// a frame or a line of folded stacks, the error grows with the square root of the number: a quarter of a number has
/// half of its error.
///
/// With sampled blocks, the numbers are estimates, each with the ends of its 95 % interval. Exact stacks have none. A sum
/// with exact and sampled blocks has the interval of its sampled part around the sum of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Numbers {
    /// Bytes allocated and not yet freed by processes that run when tracing ends. With `window`, it is the change,
    /// which can be negative.
    pub live_bytes: i64,
    /// Blocks of `live_bytes`.
    pub live_count: i64,
    /// Bytes allocated and not freed when the process exited or was killed. The kernel freed them with the process.
    pub exit_bytes: u64,
    /// Blocks of `exit_bytes`.
    pub exit_count: u64,
    /// Bytes allocated since tracing began. Of a heap profile of Go, also those that were live then.
    pub alloc_bytes: u64,
    /// Blocks of `alloc_bytes`. A successful `realloc` is one free and one allocation.
    pub alloc_count: u64,
    /// Bytes freed of blocks that were allocated since tracing began.
    pub free_bytes: u64,
    /// Blocks of `free_bytes`.
    pub free_count: u64,
    /// Only with `heap`: bytes of temporary blocks, which the allocating thread freed before its next allocation.
    /// They are included in `free_bytes`. A `realloc` frees its old block and then allocates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temporary_bytes: Option<u64>,
    /// Only with `heap`: blocks of `temporary_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temporary_count: Option<u64>,
    /// Only with `--cold-after`: live bytes on pages that were touched within `touches.duration_s`, or that the kernel
    /// does not track.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot_bytes: Option<u64>,
    /// Only with `--cold-after`: live bytes on resident pages that were not touched within `touches.duration_s`. With
    /// the method `written`, only writes count as touches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold_bytes: Option<u64>,
    /// Only with sampled blocks, and not with `window`: number of samples in the numbers of memory that is live or held at
    /// exit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Only with sampled blocks: number of samples in `alloc_bytes` and `alloc_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_samples: Option<u64>,
    /// Only with sampled blocks: number of samples in `free_bytes` and `free_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_samples: Option<u64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `live_bytes`. With `window`, it can be
    /// negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_bytes_low: Option<i64>,
    /// Only with sampled blocks: upper end of the 95 % interval of `live_bytes`. With `window`, it can be
    /// negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_bytes_high: Option<i64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `live_count`. With `window`, it can be
    /// negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_count_low: Option<i64>,
    /// Only with sampled blocks: upper end of the 95 % interval of `live_count`. With `window`, it can be
    /// negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_count_high: Option<i64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `exit_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_bytes_low: Option<u64>,
    /// Only with sampled blocks: upper end of the 95 % interval of `exit_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_bytes_high: Option<u64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `exit_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_count_low: Option<u64>,
    /// Only with sampled blocks: upper end of the 95 % interval of `exit_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_count_high: Option<u64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `alloc_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_bytes_low: Option<u64>,
    /// Only with sampled blocks: upper end of the 95 % interval of `alloc_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_bytes_high: Option<u64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `alloc_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_count_low: Option<u64>,
    /// Only with sampled blocks: upper end of the 95 % interval of `alloc_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_count_high: Option<u64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `free_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes_low: Option<u64>,
    /// Only with sampled blocks: upper end of the 95 % interval of `free_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes_high: Option<u64>,
    /// Only with sampled blocks: lower end of the 95 % interval of `free_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_count_low: Option<u64>,
    /// Only with sampled blocks: upper end of the 95 % interval of `free_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_count_high: Option<u64>,
    /// Only with sampling: error of `live_bytes`. It is limited by the kernel's counts: a process that has ended has
    /// no resident memory, and the stacks of a process have at most the resident memory of the process.
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
    /// A total, or its change, that only some reports have.
    OptionalSigned(&'a mut Option<i64>),
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

impl<'a> From<&'a mut Option<i64>> for NumberMut<'a> {
    fn from(number: &'a mut Option<i64>) -> Self {
        Self::OptionalSigned(number)
    }
}

/// Blocks and their sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Blocks {
    /// Number of blocks.
    pub count: u64,
    /// Sum of the sizes of the blocks.
    pub bytes: u64,
}

/// The kernel's own counts, which are exact even with sampling.
///
/// A group has the sums of its processes if it consists of whole processes (`process`, `cgroup`, `user`, `comm`). A
/// group by `memory` has only `resident_bytes`. Processes without a page in the sample are included.
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
    /// Only with `fault`: page faults during the trace that waited for a device. `null` under the same conditions as
    /// `minor_faults`.
    #[serde(deserialize_with = "nullable")]
    pub major_faults: Option<u64>,
}

/// Resident memory of one kind in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResidentMemory {
    /// Bytes of the pages that count in the RSS of the process, according to the page tables.
    pub total_bytes: u64,
    /// Part of `total_bytes` that has a stack. It is an estimate with sampling.
    pub with_stack_bytes: u64,
    /// Only with sampling: error of `with_stack_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_stack_error_bytes: Option<u64>,
    /// Part of `total_bytes` that was resident when tracing began and has not been touched again. With sampling,
    /// pages outside of the sample count here if they were resident when tracing began.
    pub before_bytes: u64,
}

/// Numbers of blocks by the binary logarithm of a quantity.
///
/// Each histogram is a list of pairs in the order of *n*: a logarithm *n*, and the number of blocks with a value from
/// 2^*n* to below 2^(*n*+1). Empty buckets are left out.
///
/// In a window of a recording, the histograms of a stack also have blocks from before the window if the frames of the
/// stack arrived within the window, or if stacks were merged within the window.
///
/// Times are measured in units of 2^20 ns (1.05 ms): the pair with the logarithm 19 counts all shorter times, and the
/// error of a longer time is at most one unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histograms {
    /// Allocated blocks by size in bytes; 0 counts as 1. The sum of the counts is `alloc_count`.
    pub size_log2: Vec<(u32, u64)>,
    /// Freed blocks by lifetime in nanoseconds. The sum of the counts is `free_count` if no age filter applies. If
    /// the free of a block was lost, the block lives until its address is allocated again.
    pub lifetime_log2: Vec<(u32, u64)>,
    /// Blocks that are live when tracing ends, or were held when their process ended, by age in nanoseconds. The sum
    /// of the counts is `live_count` + `exit_count` if no age filter applies.
    pub age_log2: Vec<(u32, u64)>,
}

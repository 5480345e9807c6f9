//! Totals of Go's runtime.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Totals that Go's runtime keeps, resident or not. They equal the totals in `runtime.MemStats` at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GoTotals {
    /// Bytes of objects that were not freed yet (`HeapAlloc`), without those that were allocated in the caches of processors since
    /// these caches were last filled. The function `runtime.ReadMemStats` empties the caches before it counts.
    pub heap_alloc_bytes: u64,
    /// Bytes of spans with objects (`HeapInuse`).
    pub heap_in_use_bytes: u64,
    /// Bytes of idle spans (`HeapIdle`).
    pub heap_idle_bytes: u64,
    /// Part of `heap_idle_bytes` that the runtime has returned to the kernel, or never used (`HeapReleased`).
    pub heap_released_bytes: u64,
    /// `heap_in_use_bytes` + `heap_idle_bytes` (`HeapSys`).
    pub heap_sys_bytes: u64,
    /// Bytes of spans with stacks of goroutines (`StackInuse`).
    pub stack_in_use_bytes: u64,
    /// `stack_in_use_bytes`, and stacks of threads that the runtime has mapped (`StackSys`).
    pub stack_sys_bytes: u64,
    /// Bytes for the structures of spans (`MSpanSys`).
    pub mspan_sys_bytes: u64,
    /// Bytes for the structures of caches (`MCacheSys`).
    pub mcache_sys_bytes: u64,
    /// Bytes for the tables of profiles (`BuckHashSys`).
    pub buck_hash_sys_bytes: u64,
    /// Bytes for the data of the collector (`GCSys`).
    pub gc_sys_bytes: u64,
    /// Bytes for other data of the runtime (`OtherSys`).
    pub other_sys_bytes: u64,
    /// Sum of `heap_sys_bytes`, `stack_sys_bytes` and the numbers after them (`Sys`).
    pub sys_bytes: u64,
}

//! Totals that the runtime of a Go program keeps of its memory.

use crate::Bytes;

/// Totals that the runtime of a Go program keeps. `runtime.MemStats` has the same numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoTotals {
    /// Bytes of objects that were allocated and not swept since (`HeapAlloc`). The number lacks the objects that a processor
    /// of the runtime has allocated in the spans of its cache.
    pub objects: Bytes,
    /// Bytes of the spans with objects (`HeapInuse`).
    pub in_use: Bytes,
    /// Bytes of idle spans that have not been released (`HeapIdle` - `HeapReleased`).
    pub idle: Bytes,
    /// Bytes of the arenas that have been released, or were never used (`HeapReleased`).
    pub released: Bytes,
    /// Bytes of the spans with stacks of goroutines (`StackInuse`).
    pub stacks: Bytes,
    /// Bytes of the thread stacks that the runtime has mapped (`StackSys` - `StackInuse`).
    pub thread_stacks: Bytes,
    /// Bytes of the spans with buffers of the collector. They are a part of `GCSys`.
    pub work_buffers: Bytes,
    /// Bytes of the structures of spans (`MSpanSys`).
    pub spans: Bytes,
    /// Bytes of the structures of caches (`MCacheSys`).
    pub caches: Bytes,
    /// Bytes of the tables of the profiles (`BuckHashSys`).
    pub profile_tables: Bytes,
    /// Bytes of the collector's data outside of the arenas. They are a part of `GCSys`.
    pub collector: Bytes,
    /// Bytes of all other data of the runtime (`OtherSys`).
    pub other: Bytes,
}

impl GoTotals {
    /// Returns the mapped bytes of the arenas.
    #[must_use]
    pub const fn arenas(&self) -> Bytes {
        Bytes(self.heap().0 + self.stacks.0 + self.work_buffers.0)
    }

    /// Returns the bytes of the heap, released or not (`HeapSys`).
    #[must_use]
    pub const fn heap(&self) -> Bytes {
        Bytes(self.in_use.0 + self.idle_or_released().0)
    }

    /// Returns the bytes of idle spans, released or not (`HeapIdle`).
    #[must_use]
    pub const fn idle_or_released(&self) -> Bytes {
        Bytes(self.idle.0 + self.released.0)
    }

    /// Returns the bytes of the spans in use that contain no object. Objects in the caches of processors count as free.
    #[must_use]
    pub const fn free_in_spans(&self) -> Bytes {
        Bytes(self.in_use.0.saturating_sub(self.objects.0))
    }

    /// Returns the bytes of stacks (`StackSys`).
    #[must_use]
    pub const fn all_stacks(&self) -> Bytes {
        Bytes(self.stacks.0 + self.thread_stacks.0)
    }

    /// Returns the bytes of the collector's data (`GCSys`).
    #[must_use]
    pub const fn all_of_collector(&self) -> Bytes {
        Bytes(self.collector.0 + self.work_buffers.0)
    }

    /// Returns the bytes that the runtime has mapped for itself outside of the arenas.
    #[must_use]
    pub const fn outside_arenas(&self) -> Bytes {
        Bytes(
            self.thread_stacks.0
                + self.spans.0
                + self.caches.0
                + self.profile_tables.0
                + self.collector.0
                + self.other.0,
        )
    }

    /// Returns all bytes that the runtime has taken from the kernel (`Sys`).
    #[must_use]
    pub const fn sys(&self) -> Bytes {
        Bytes(self.arenas().0 + self.outside_arenas().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_memstats() {
        let totals = GoTotals {
            objects: Bytes(1),
            in_use: Bytes(10),
            idle: Bytes(100),
            released: Bytes(1000),
            stacks: Bytes(10_000),
            thread_stacks: Bytes(100_000),
            work_buffers: Bytes(1_000_000),
            spans: Bytes(10_000_000),
            caches: Bytes(20_000_000),
            profile_tables: Bytes(30_000_000),
            collector: Bytes(100_000_000),
            other: Bytes(1_000_000_000),
        };
        assert_eq!(totals.heap(), Bytes(1110), "HeapSys is HeapInuse + HeapIdle");
        assert_eq!(totals.idle_or_released(), Bytes(1100));
        assert_eq!(totals.free_in_spans(), Bytes(9));
        assert_eq!(totals.all_stacks(), Bytes(110_000));
        assert_eq!(totals.all_of_collector(), Bytes(101_000_000));
        assert_eq!(totals.arenas(), Bytes(1_011_110));
        assert_eq!(totals.outside_arenas(), Bytes(1_160_100_000));
        assert_eq!(totals.sys(), Bytes(1_161_111_110));
    }

    #[test]
    fn more_objects_than_spans_leave_nothing_free() {
        // The runtime does not update both numbers at once, so `objects` can exceed `in_use`.
        let totals = GoTotals { objects: Bytes(8193), in_use: Bytes(8192), ..GoTotals::default() };
        assert_eq!(totals.free_in_spans(), Bytes(0));
    }
}

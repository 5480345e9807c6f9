//! Location of the counters of a thread in the memory of a process.

use memtrace_model::{AbsAddr, VirtOffset};

/// Bound on the distance of a variable from the thread pointer, in bytes. The thread-local blocks of programs are
/// smaller than 1 MB.
const MAX_DISTANCE: i64 = 1 << 30;

/// Distance of a thread-local variable from the thread pointer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TpOffset {
    /// The distance is the same in each process, because the object is an executable.
    Fixed(i64),
    /// The distance is the content of a GOT slot, which the dynamic linker fills, plus `addend`.
    GotSlot {
        /// Address of the slot in the object.
        slot: VirtOffset,
        /// Addend to the content of the slot.
        addend: i64,
    },
}

impl TpOffset {
    /// Returns the address of the GOT slot in the object.
    pub const fn slot(self) -> Option<VirtOffset> {
        match self {
            Self::Fixed(_) => None,
            Self::GotSlot { slot, .. } => Some(slot),
        }
    }

    /// Returns the distance in a process. `content` is the content of the GOT slot; a fixed distance ignores it.
    /// Returns `None` if the dynamic linker has not filled the slot yet: on x86-64, a valid distance is negative.
    pub fn resolve(self, content: u64) -> Option<i64> {
        let is_below = |distance: &i64| (-MAX_DISTANCE..0).contains(distance);
        let distance = match self {
            Self::Fixed(distance) => distance,
            Self::GotSlot { addend, .. } => {
                Some(content.cast_signed()).filter(is_below).and_then(|content| content.checked_add(addend))?
            }
        };
        Some(distance).filter(is_below)
    }
}

/// Location of jemalloc's counters of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JemallocCounters {
    /// Distance of jemalloc's thread state (`tsd_tls`) from the thread pointer.
    pub location: TpOffset,
    /// Offset in the thread state of the counter of allocated bytes, which has 64 bits.
    pub allocated: u32,
    /// Offset in the thread state of the counter of deallocated bytes, which has 64 bits.
    pub deallocated: u32,
}

impl JemallocCounters {
    /// Returns the addresses of both counters of a thread, allocated bytes first. `tp_offset` is the result of
    /// [`TpOffset::resolve`].
    pub fn addresses(&self, thread_pointer: u64, tp_offset: i64) -> [AbsAddr; 2] {
        let state = thread_pointer.wrapping_add_signed(tp_offset);
        [self.allocated, self.deallocated].map(|field| AbsAddr(state.wrapping_add(field.into())))
    }
}

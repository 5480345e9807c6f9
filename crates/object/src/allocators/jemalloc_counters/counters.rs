//! Location of the counters of a thread in the memory of a process.

use memtrace_model::{AbsAddr, VirtOffset};

/// Bound on the distance of a variable from the thread pointer. Thread-local blocks of programs are smaller than 1 MB.
const MAX_DISTANCE: i64 = 1 << 30;

/// Distance of a variable from the thread pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TpOffset {
    /// The same distance in each process: the object is an executable.
    Fixed(i64),
    /// The dynamic linker stores a distance in a GOT slot.
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

    /// Returns the distance for the content of the GOT slot, which is ignored for a fixed distance. Returns `None` for a content
    /// that the dynamic linker has not stored yet. On x86-64, thread-local blocks are below the thread pointer.
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

/// Location of the counters of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JemallocCounters {
    /// Distance of jemalloc's state of a thread from the thread pointer.
    pub location: TpOffset,
    /// Offset in the state of the allocated bytes, a 64-bit number.
    pub allocated: u32,
    /// Offset in the state of the deallocated bytes, a 64-bit number.
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

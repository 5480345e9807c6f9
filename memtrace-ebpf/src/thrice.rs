//! What is done once by three programs, so that it is done if any of them is run.
//!
//! Since Linux 7.0 a program at a tracepoint can be preempted ("tracing: Guard __DECLARE_TRACE() use of
//! __DO_TRACE_CALL() with SRCU-fast"), and the kernel does not run a program while another run of it is in progress on
//! the same processor (`__bpf_trace_run`, kernel/trace/bpf_trace.c): an exec or exit would be missed whenever a thread
//! was preempted in the middle of its own. So there are three programs for each, which the kernel runs one after the other.
//! Who does it leaves a note; where there is none, the second and the third stand in for the first and count that they
//! did. What none was run for is then what the first has missed without another having stood in.
//!
//! Of system calls most do not matter, and of those the first program leaves no note. What none was run for is then no more
//! than what any of them has missed.

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;

use crate::loss;
use crate::thread::Thread;

/// Something that the current thread does.
#[repr(C)]
pub struct Deed {
    thread: u32,
    kind: u32,
    /// What tells it from another one of its kind.
    what: u64,
}

#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Kind {
    Exec,
    Exit,
    Fork,
    Enter,
    Return,
}

/// From one program to the next. A note that the third was not run for stays, until it is forgotten.
#[btf_map]
static NOTES: LruHashMap<Deed, u32, 4096> = LruHashMap::new();

impl Deed {
    #[inline(always)]
    pub fn new(kind: Kind, what: u64) -> Self {
        Self { thread: Thread::current().tid, kind: kind as u32, what }
    }

    /// For the first program, which has done it, and for the second.
    #[inline(always)]
    pub fn note(&self) {
        // Where there is no room it is done twice.
        let _ = NOTES.insert(self, &1, 0);
    }

    /// Whether the second program has to do it.
    #[inline(always)]
    pub fn is_to_do(&self) -> bool {
        stands_in(!self.is_noted())
    }

    /// Whether the third program has to do it.
    #[inline(always)]
    pub fn is_still_to_do(&self) -> bool {
        stands_in(!self.forget())
    }

    /// Whether it was done.
    #[inline(always)]
    pub fn is_noted(&self) -> bool {
        // SAFETY: only the presence is asked for.
        unsafe { NOTES.get(self) }.is_some()
    }

    /// As above; it may come again then.
    #[inline(always)]
    pub fn forget(&self) -> bool {
        NOTES.remove(self).is_ok()
    }
}

#[inline(always)]
fn stands_in(missed: bool) -> bool {
    if missed {
        loss::stood_in();
    }
    missed
}

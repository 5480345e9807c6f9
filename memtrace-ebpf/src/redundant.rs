//! What is done once by three programs, so that it is done if any of them is run.
//!
//! Since Linux 7.0 a program at a tracepoint can be preempted ("tracing: Guard __DECLARE_TRACE() use of
//! __DO_TRACE_CALL() with SRCU-fast"), and the kernel does not run a program while another run of it is in progress on
//! the same processor (`__bpf_trace_run`, kernel/trace/bpf_trace.c): an exec or exit would be missed whenever a thread
//! was preempted in the middle of its own. So there are three programs for each, which the kernel runs one after the other.
//! Who does it leaves a note; where there is none, the second and the third stand in for the first and count that they
//! did. What none was run for is then what the first has missed without another having stood in.
//!
//! Of system calls most do not matter, and of those the first program leaves no note. But a call is missed by all three hardly
//! ever but while each is in progress on that processor, in three threads that were preempted. So each program says when it
//! begins and ends, and whoever finds that all have begun counts it. It does not show where one of them was preempted within its
//! first or last few instructions, nor where the caller itself was preempted twice, each time between two programs, and the one
//! that was in progress went on to the next meanwhile. Where all were in progress, what none was run for is no more than what
//! any of them has missed.

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::btf_maps::{LruHashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::{CALLS, TURNS};

use crate::thread::Thread;
use crate::{loss, settings};

/// Something that the current thread does.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Deed {
    kind: u64,
    /// What tells it from another one of its kind.
    what: u64,
}

#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Kind {
    Exec,
    Exit,
    Fork,
    Enter,
    Return,
}

/// From one program to the next: what a thread does now, by its id. What the third was not run for stays until the thread does
/// something else. So none is taken for a later one: the same call with the same result comes again only after another.
#[btf_map]
static NOTES: LruHashMap<u32, Deed, 4096> = LruHashMap::new();

/// Which programs at a tracepoint of system calls are in progress on a processor: 1 or 0 each.
#[btf_map]
static BUSY: PerCpuArray<[u64; TURNS as usize], { CALLS as usize }> = PerCpuArray::new();

/// One of the three programs that follow the beginning, or the end, of system calls. Nobody else writes its word: the kernel runs
/// no program twice at once on one processor.
#[derive(Clone, Copy)]
pub struct Turn {
    tracepoint: u32,
    program: usize,
}

impl Turn {
    /// Those that follow the beginning, in the order in which they run.
    pub const ENTER: [Self; TURNS as usize] = Self::at(0);
    /// Those that follow the end.
    pub const EXIT: [Self; TURNS as usize] = Self::at(1);

    const fn at(tracepoint: u32) -> [Self; TURNS as usize] {
        [Self { tracepoint, program: 0 }, Self { tracepoint, program: 1 }, Self { tracepoint, program: 2 }]
    }

    /// The program begins.
    #[inline(always)]
    pub fn begin(self) {
        let Some(busy) = self.words() else { return };
        // SAFETY: the pointer is a map value's, and the words are aligned.
        unsafe { write_volatile(&raw mut (*busy)[self.program], 1) };
        // SAFETY: as above.
        let [first, second, third] = unsafe { read_volatile(busy) };
        if first & second & third != 0 {
            loss::all_busy(self.tracepoint);
        }
    }

    /// The program ends.
    #[inline(always)]
    pub fn end(self) {
        if let Some(busy) = self.words() {
            // SAFETY: as above.
            unsafe { write_volatile(&raw mut (*busy)[self.program], 0) };
        }
    }

    #[inline(always)]
    fn words(self) -> Option<*mut [u64; TURNS as usize]> {
        if settings::calls_take_turns() { BUSY.get_ptr_mut(self.tracepoint) } else { None }
    }
}

impl Deed {
    #[inline(always)]
    pub fn new(kind: Kind, what: u64) -> Self {
        Self { kind: kind as u64, what }
    }

    /// For the first program, which has done it, and for the second.
    #[inline(always)]
    pub fn note(&self) {
        // Where there is no room it is done twice.
        let _ = NOTES.insert(&Thread::current().tid, self, 0);
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
        // SAFETY: whatever is read is compared only.
        unsafe { NOTES.get(Thread::current().tid) }
            .is_some_and(|noted| noted.kind == self.kind && noted.what == self.what)
    }

    /// As above; it may come again then.
    #[inline(always)]
    pub fn forget(&self) -> bool {
        let noted = self.is_noted();
        if noted {
            let _ = NOTES.remove(Thread::current().tid);
        }
        noted
    }
}

#[inline(always)]
fn stands_in(missed: bool) -> bool {
    if missed {
        loss::stood_in();
    }
    missed
}

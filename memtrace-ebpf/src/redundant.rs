//! Redundant programs: three programs at one tracepoint, so that nearly every event is handled by one of them.
//!
//! Since Linux 7.0 a raw program at a tracepoint can be preempted ("tracing: Guard __DECLARE_TRACE() use of
//! __DO_TRACE_CALL() with SRCU-fast"), and the kernel does not run a program while another run of it is in progress on
//! the same CPU (`__bpf_trace_run`, kernel/trace/bpf_trace.c). So an exec would be missed if another thread was
//! preempted on this CPU inside the program for its own exec. Therefore each event has three programs, which the kernel
//! runs one after the other. The program that handles an event leaves a note. If there is no note, the second or the
//! third program handles the event in place of the first, and increments a counter. The number of missed events is the
//! number of misses of the first program minus this counter.
//!
//! If many processes call exec at once, all three programs can be in progress on one CPU. At exec and exit, the first program is
//! therefore an [`unpreempted`](crate::unpreempted) one on these kernels, if tracefs permits it. The second and third program
//! stay raw: whenever the kernel skips one program of type tracepoint, it skips all of them. The unpreempted program is attached
//! before them, so it always runs first: the callbacks of a tracepoint run in the order of their registration (`func_add`,
//! kernel/tracepoint.c), and perf registers one callback for all its users (`perf_trace_event_reg`,
//! kernel/trace/trace_event_perf.c). If another user of perf has registered it earlier, the unpreempted program also runs
//! earlier. At fork, all programs are raw, because the record of that tracepoint does not have the child's task.
//!
//! Most system calls are irrelevant, and no program leaves a note for them, so for system calls the difference above is not
//! the number of missed events. If all three programs miss a call, each of them is nearly always in progress on that CPU, in
//! three preempted threads. So each program marks itself busy while it runs, and a program that finds all three busy
//! increments a counter. The counter omits two cases:
//!
//! - a program is preempted within its first or last few instructions;
//! - the caller is preempted twice, each time between two programs, while the busy program moves on to the next one.
//!
//! If the counter is not 0, the smallest miss count of the three programs is an upper bound of the missed calls.

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{LruHashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::wire::{REDUNDANT_PROGRAMS, SYSCALL_TRACEPOINTS};

use crate::thread::Thread;
use crate::{loss, settings};

const PROGRAMS: usize = REDUNDANT_PROGRAMS as usize;

/// An event that redundant programs handle. `C`: context of the programs that can handle it.
pub trait Event<C: EbpfContext = RawTracePointContext> {
    /// Slots of the programs at a system call tracepoint; `None` for other events. Events with slots are not counted by
    /// `stood_in`.
    const SLOTS: Option<[Slot; PROGRAMS]> = None;

    /// Returns true if the event is handled.
    #[inline(always)]
    fn is_relevant(_context: &C) -> bool {
        true
    }

    /// Identifies the event to the next program.
    fn occurrence(context: &C) -> Occurrence;

    fn handle(context: &C);

    /// Runs after [`Self::handle`] if the system call tracepoint has a single program.
    #[inline(always)]
    fn handle_alone(_context: &C) {}
}

/// Declares the three programs of an [`Event`].
macro_rules! programs {
    ($event:ident at $tracepoint:tt: $first:ident $second:ident $third:ident) => {
        $crate::redundant::programs!(@ $event $tracepoint $first run_first);
        $crate::redundant::programs!(@ $event $tracepoint $second run_second);
        $crate::redundant::programs!(@ $event $tracepoint $third run_third);
    };
    (@ $event:ident $tracepoint:tt $program:ident $run:ident) => {
        #[raw_tracepoint(tracepoint = $tracepoint)]
        fn $program(context: RawTracePointContext) -> i32 {
            $crate::redundant::$run::<$event, _>(&context);
            0
        }
    };
}
pub(crate) use programs;

/// Body of the first program.
#[inline(always)]
pub fn run_first<E: Event<C>, C: EbpfContext>(context: &C) {
    begin(E::SLOTS, 0);
    if E::is_relevant(context) {
        E::handle(context);
        if E::SLOTS.is_none() || settings::has_redundant_syscall_programs() {
            E::occurrence(context).note();
        } else {
            E::handle_alone(context);
        }
    }
    end(E::SLOTS, 0);
}

/// Body of the second program.
#[inline(always)]
pub fn run_second<E: Event<C>, C: EbpfContext>(context: &C) {
    begin(E::SLOTS, 1);
    if E::is_relevant(context) {
        let occurrence = E::occurrence(context);
        if !occurrence.is_noted() {
            stand_in::<E, C>(context);
            occurrence.note();
        }
    }
    end(E::SLOTS, 1);
}

/// Body of the third program.
#[inline(always)]
pub fn run_third<E: Event<C>, C: EbpfContext>(context: &C) {
    begin(E::SLOTS, 2);
    if E::is_relevant(context) && !E::occurrence(context).forget() {
        stand_in::<E, C>(context);
    }
    end(E::SLOTS, 2);
}

#[inline(always)]
fn stand_in<E: Event<C>, C: EbpfContext>(context: &C) {
    if E::SLOTS.is_none() {
        loss::stood_in();
    }
    E::handle(context);
}

#[inline(always)]
fn begin(slots: Option<[Slot; PROGRAMS]>, program: usize) {
    if let Some(slots) = slots {
        slots[program].begin();
    }
}

#[inline(always)]
fn end(slots: Option<[Slot; PROGRAMS]>, program: usize) {
    if let Some(slots) = slots {
        slots[program].end();
    }
}

/// An event of the current thread.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Occurrence {
    kind: u64,
    /// Distinguishes occurrences of one kind.
    detail: u64,
}

#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Kind {
    Exec,
    Exit,
    Fork,
    Rename,
    SyscallEnter,
    SyscallExit,
}

/// Notes by thread. A note that the third program did not remove stays until the next event of the thread. A later
/// event does not match the note by mistake: the same call with the same result recurs only after another call, and a
/// new executable gets its memory before the kernel frees the earlier one.
#[btf_map]
static NOTES: LruHashMap<u32, Occurrence, 4096> = LruHashMap::new();

impl Occurrence {
    #[inline(always)]
    pub fn new(kind: Kind, detail: u64) -> Self {
        Self { kind: kind as u64, detail }
    }

    /// Leaves a note that the event was handled. If the note is not stored or is evicted, the event is handled twice.
    #[inline(always)]
    fn note(&self) {
        let _ = NOTES.insert(&Thread::current().tid, self, 0);
    }

    /// Returns true if the event was handled.
    #[inline(always)]
    fn is_noted(&self) -> bool {
        // SAFETY: the values are only compared.
        unsafe { NOTES.get(Thread::current().tid) }
            .is_some_and(|noted| noted.kind == self.kind && noted.detail == self.detail)
    }

    /// Returns true if the event was handled, and removes its note.
    #[inline(always)]
    fn forget(&self) -> bool {
        let noted = self.is_noted();
        if noted {
            let _ = NOTES.remove(Thread::current().tid);
        }
        noted
    }
}

/// A word for each program at a system call tracepoint: 1 while the program is in progress on the CPU, else 0.
#[btf_map]
static BUSY: PerCpuArray<[u64; PROGRAMS], { SYSCALL_TRACEPOINTS as usize }> = PerCpuArray::new();

/// Word in [`BUSY`] of a program at a system call tracepoint. Only the program itself writes its word, because the
/// kernel does not run a program twice at once on one CPU.
#[derive(Clone, Copy)]
pub struct Slot {
    tracepoint: u32,
    program: usize,
}

impl Slot {
    /// Slots of `sys_enter`. The programs run in this order.
    pub const ENTER: [Self; PROGRAMS] = Self::at(0);
    /// Slots of `sys_exit`.
    pub const EXIT: [Self; PROGRAMS] = Self::at(1);

    const fn at(tracepoint: u32) -> [Self; PROGRAMS] {
        [Self { tracepoint, program: 0 }, Self { tracepoint, program: 1 }, Self { tracepoint, program: 2 }]
    }

    /// Marks the program busy. If all programs of the tracepoint are busy, increments a counter.
    #[inline(always)]
    fn begin(self) {
        let Some(busy) = self.words() else { return };
        // SAFETY: the pointer refers to a map value, and the words are aligned.
        unsafe { write_volatile(&raw mut (*busy)[self.program], 1) };
        // SAFETY: as above.
        let [first, second, third] = unsafe { read_volatile(busy) };
        if first & second & third != 0 {
            loss::all_busy(self.tracepoint);
        }
    }

    #[inline(always)]
    fn end(self) {
        if let Some(busy) = self.words() {
            // SAFETY: as above.
            unsafe { write_volatile(&raw mut (*busy)[self.program], 0) };
        }
    }

    #[inline(always)]
    fn words(self) -> Option<*mut [u64; PROGRAMS]> {
        if settings::has_redundant_syscall_programs() { BUSY.get_ptr_mut(self.tracepoint) } else { None }
    }
}

//! Starts, execs, renames and exits of processes, exits of threads, and changes of cgroups. Raw programs need no
//! tracefs.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::{RawTracePointContext, TracePointContext};
use memtrace_common::wire::RecordKind;

use crate::limits::BPF_NOEXIST;
use crate::redundant::{self, Event, Occurrence};
use crate::settings::field;
use crate::thread::Thread;
use crate::usage::allocator_counters;
use crate::{
    address_space, cgroup, demotion, emit, gate, kernel, late_tags, owner, pending, process_filter, rusage,
    sampled_processes, settings, tags, thread, unpreempted, unwind,
};

redundant::programs!(Exec at "sched_process_exec": process_exec process_exec_2 process_exec_3);
redundant::programs!(Exit at "sched_process_exit": process_exit process_exit_2 process_exit_3);
unpreempted::program!(
    process_exec_unpreempted at "tracepoint/sched/sched_process_exec": redundant::run_first::<Exec, _>
);
unpreempted::program!(
    process_exit_unpreempted at "tracepoint/sched/sched_process_exit": redundant::run_first::<Exit, _>
);
redundant::programs!(Fork at "sched_process_fork": process_fork process_fork_2 process_fork_3);

/// `TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`, include/trace/events/sched.h. The
/// program runs in the task, which has the new executable already.
struct Exec;

/// Context of a program at an exec.
trait ExecContext: EbpfContext {
    /// Returns the id of the thread before the exec.
    fn old_pid(&self) -> u32;
}

impl ExecContext for RawTracePointContext {
    #[inline(always)]
    fn old_pid(&self) -> u32 {
        self.arg::<u64>(1) as u32
    }
}

impl ExecContext for TracePointContext {
    #[inline(always)]
    fn old_pid(&self) -> u32 {
        let record = self.as_ptr().cast::<ExecRecord>();
        // SAFETY: the context is the program's own. The kernel attaches the program only if the record has the field
        // (`perf_event_set_bpf_prog`, kernel/events/core.c).
        unsafe { (*record).old_pid }
    }
}

/// Record of the tracepoint `sched_process_exec` (include/trace/events/sched.h).
#[repr(C)]
struct ExecRecord {
    _header: unpreempted::Header,
    /// Position of the file name in the record.
    _filename: u32,
    _pid: u32,
    old_pid: u32,
}

impl<C: ExecContext> Event<C> for Exec {
    #[inline(always)]
    fn occurrence(_context: &C) -> Occurrence {
        Occurrence::new(redundant::Kind::Exec, kernel::read_word(kernel::current_task(), field!(vma.task_mm)))
    }

    #[inline(always)]
    fn handle(context: &C) {
        let thread = Thread::current();
        let task = kernel::current_task();
        // If a thread other than the leader calls exec, it takes the leader's id. `old_pid` is its previous id.
        forget_thread(context, context.old_pid());
        forget_thread(context, thread.tid);
        tags::forget_process(thread.pid);
        unwind::forget_process(thread.pid);
        allocator_counters::forget(thread.pid);
        demotion::leave_memory(context, thread.pid);
        if gate::is_open() && process_filter::may_be_traced(thread.pid) {
            let was_traced = process_filter::was_traced_before_exec(thread.pid);
            rusage::emit(context, thread, task, was_traced);
            owner::emit(context, thread, task, RecordKind::Exec);
            demotion::emit(context, thread);
            emit::process(context, thread, RecordKind::Exec);
        } else {
            emit_end_of_sharer(context, thread);
        }
        address_space::forget(thread.pid);
        // Other processes may still share its earlier memory. They must not delay the end of its demotion at its exit.
        address_space::forget_sharers(thread.pid);
        process_filter::exec(thread.pid);
        sampled_processes::forget(thread.pid);
    }
}

/// Requests the unwind table of a new executable, in a program of its own: the request wakes user space, which can
/// preempt the program at once. If the kernel skips this program, no event is missed.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn process_exec_prefetch(context: RawTracePointContext) -> i32 {
    let thread = Thread::current();
    if gate::is_open() && process_filter::may_be_traced(thread.pid) {
        unwind::prefetch_executable(thread.pid, context.arg(2));
        // A dynamic executable starts in the dynamic linker.
        unwind::add_exec_vma(thread, unwind::next_instruction(), 1);
    }
    0
}

/// `TP_PROTO(struct task_struct *p, …)`, include/trace/events/sched.h. The program runs in each thread that exits;
/// the process ends with its last thread.
struct Exit;

impl<C: EbpfContext> Event<C> for Exit {
    #[inline(always)]
    fn occurrence(_context: &C) -> Occurrence {
        Occurrence::new(redundant::Kind::Exit, 0)
    }

    #[inline(always)]
    fn handle(context: &C) {
        let thread = Thread::current();
        let task = kernel::current_task();
        forget_thread(context, thread.tid);
        if thread::is_last(task) && begin_exit(thread.pid, task) {
            tags::forget_process(thread.pid);
            unwind::forget_process(thread.pid);
            demotion::leave_memory(context, thread.pid);
            let is_shared = address_space::exit(thread.pid);
            let is_recorded = if gate::is_open() && process_filter::may_be_traced(thread.pid) {
                rusage::emit(context, thread, task, process_filter::is_traced(thread.pid));
                owner::emit(context, thread, task, RecordKind::Exit);
                demotion::emit(context, thread);
                let is_recorded = emit::process(context, thread, RecordKind::Exit);
                // The sum is removed only while the gate is open. After the gate has closed, user space reads the sum.
                if !is_shared {
                    demotion::forget(thread.pid);
                }
                is_recorded
            } else {
                emit_end_of_sharer(context, thread)
            };
            if is_recorded {
                address_space::forget(thread.pid);
            } else {
                address_space::keep_ended(thread.pid);
            }
            process_filter::exit(thread.pid);
            sampled_processes::forget(thread.pid);
        } else if settings::records_thread_exits()
            && gate::is_open()
            && process_filter::has_records(thread.pid)
            // If the whole process exits, the exits of its threads need no records. A sharer needs them, because the blocks of
            // its threads remain in the shared memory.
            && (!is_process_exiting(task) || address_space::is_sharer(thread.pid))
        {
            emit::process(context, thread, RecordKind::ThreadExit);
        }
    }
}

/// Processes whose exit was handled lately: the address of the first thread's task, by process id.
#[btf_map]
static ENDED: LruHashMap<u32, u64, 1024> = LruHashMap::new();

/// Returns true if no thread has handled the exit of process `pid` yet. The kernel decrements `signal->live` before the
/// tracepoint, so at this point, several threads that exit at the same time can each seem to be the last one. `task`:
/// an exiting thread.
#[inline(always)]
fn begin_exit(pid: u32, task: u64) -> bool {
    let first_thread = kernel::read_word(task, field!(task.task_group_leader));
    if ENDED.insert(&pid, &first_thread, BPF_NOEXIST).is_ok() {
        return true;
    }
    // SAFETY: the value is one word, which is read as a whole.
    let handled = unsafe { ENDED.get(&pid) }.copied();
    // The entry may belong to an earlier process with this id, if the fork of the current process was missed.
    if handled != Some(first_thread) {
        let _ = ENDED.insert(&pid, &first_thread, 0);
    }
    handled != Some(first_thread)
}

/// `TP_PROTO(struct task_struct *parent, struct task_struct *child)`, include/trace/events/sched.h. The program runs
/// in the parent, before the child runs.
struct Fork;

impl Event for Fork {
    #[inline(always)]
    fn occurrence(context: &RawTracePointContext) -> Occurrence {
        Occurrence::new(redundant::Kind::Fork, context.arg(1))
    }

    #[inline(always)]
    fn handle(context: &RawTracePointContext) {
        let thread = Thread::current();
        let parent = thread.pid;
        match kernel::read(context.arg(1), field!(task.task_tgid)) {
            // A child with the same thread group id is a new thread, which shares the mappings of its process.
            Some(child) if child != parent => {
                demotion::start(context, child);
                let _ = ENDED.remove(&child);
                // The exit of an earlier process with this pid may have been missed, or its record may be missing in a ring.
                if address_space::forget(child) && gate::is_open() {
                    emit::process(context, Thread { pid: child, tid: child }, RecordKind::Unshare);
                }
                allocator_counters::forget(child);
                unwind::copy_process(parent, child);
                tags::copy(thread, child);
                let shares_memory = shares_memory(context);
                if shares_memory && gate::is_open() && share(context, thread, child) {
                    return;
                }
                process_filter::fork(parent, child, context.arg(1));
                sampled_processes::fork(parent, child);
                let is_recorded = settings::records_forks() && gate::is_open() && process_filter::may_be_traced(child);
                if is_recorded && !shares_memory {
                    emit::fork(context, thread, child);
                }
            }
            _ => {}
        }
    }
}

redundant::programs!(Rename at "task_rename": task_rename task_rename_2 task_rename_3);

/// `TP_PROTO(struct task_struct *task, const char *comm)`, include/trace/events/task.h. The program runs before the
/// name changes.
struct Rename;

impl Event for Rename {
    #[inline(always)]
    fn is_relevant(context: &RawTracePointContext) -> bool {
        // The name of the first thread is the name of the process.
        kernel::read(context.arg(0), field!(task.task_group_leader)) == Some(context.arg::<u64>(0))
    }

    #[inline(always)]
    fn occurrence(context: &RawTracePointContext) -> Occurrence {
        Occurrence::new(redundant::Kind::Rename, context.arg(1))
    }

    #[inline(always)]
    fn handle(context: &RawTracePointContext) {
        if let Some(pid) = kernel::read(context.arg(0), field!(task.task_tgid)) {
            process_filter::rename(pid, context.arg(1));
        }
    }
}

/// `TP_PROTO(struct cgroup *dst_cgrp, const char *path, struct task_struct *task, bool threadgroup)`,
/// include/trace/events/cgroup.h. The program runs after the task or process has moved. The kernel holds a mutex
/// (`cgroup_attach_task`, kernel/cgroup/cgroup.c), so no move is missed.
#[raw_tracepoint(tracepoint = "cgroup_attach_task")]
fn cgroup_attach_task(_context: RawTracePointContext) -> i32 {
    process_filter::change();
    0
}

/// Does the same as [`cgroup_attach_task`], for tasks that the kernel moves out of an empty cpuset.
#[raw_tracepoint(tracepoint = "cgroup_transfer_tasks")]
fn cgroup_transfer_tasks(_context: RawTracePointContext) -> i32 {
    process_filter::change();
    0
}

/// `TP_PROTO(struct cgroup *cgrp, const char *path)`, include/trace/events/cgroup.h. The kernel holds the same mutex as
/// at `cgroup_attach_task`.
#[raw_tracepoint(tracepoint = "cgroup_rmdir")]
fn cgroup_rmdir(context: RawTracePointContext) -> i32 {
    let group: u64 = context.arg(0);
    let hierarchy = cgroup::hierarchy_of(group);
    if cgroup::is_recorded(hierarchy) {
        emit::removed_cgroup(&context, cgroup::id(group), hierarchy, context.arg(1));
    }
    0
}

/// Removes the state of a thread that exits or has called exec.
#[inline(always)]
fn forget_thread(context: &impl EbpfContext, tid: u32) {
    late_tags::forget(context, tid);
    tags::forget(tid);
    pending::forget(tid);
}

/// Records that `child` shares the memory of the current process. Returns false if this memory is not recorded, or if
/// too many processes share memory.
#[inline(always)]
fn share(context: &RawTracePointContext, parent: Thread, child: u32) -> bool {
    let flags = process_filter::memory_flags(parent.pid);
    if flags == 0 || !address_space::share(context, parent.pid, child) {
        return false;
    }
    process_filter::share(child, flags);
    emit::share(context, parent, child, process_filter::may_be_traced(child));
    true
}

/// Records that the current process, which is not selected, no longer shares memory. Returns false if a ring is full.
#[inline(always)]
fn emit_end_of_sharer(context: &impl EbpfContext, thread: Thread) -> bool {
    !gate::is_open() || !address_space::is_sharer(thread.pid) || emit::process(context, thread, RecordKind::Unshare)
}

/// Returns true if the child of a fork shares its parent's memory, as after vfork. Kernel threads have no memory.
#[inline(always)]
fn shares_memory(context: &RawTracePointContext) -> bool {
    let mm = |task| kernel::read_word(task, field!(vma.task_mm));
    let of_parent = mm(context.arg(0));
    of_parent != 0 && of_parent == mm(context.arg(1))
}

/// `SIGNAL_GROUP_EXIT`, include/linux/sched/signal.h.
const SIGNAL_GROUP_EXIT: u32 = 4;

/// Returns true if all threads of the task's process are about to exit. `exit_group` and fatal signals set the flag
/// before they end the other threads (`do_group_exit`, kernel/exit.c; `complete_signal`, kernel/signal.c).
#[inline(always)]
fn is_process_exiting(task: u64) -> bool {
    let flags =
        kernel::read(task, field!(task.task_signal)).and_then(|signal| kernel::read(signal, field!(task.signal_flags)));
    flags.is_some_and(|flags: u32| flags & SIGNAL_GROUP_EXIT != 0)
}

//! Page faults and peak RSS of a process, from the kernel's own counters.
//!
//! `signal_struct` has the sums of exited threads; the counts of a running thread are in its `task_struct`. While the
//! last thread exits, other threads may be moving their counts to `signal_struct` (`__exit_signal`, kernel/exit.c),
//! which changes a sequence number. If this number changes during a read, both structures are read again, as for
//! `/proc/PID/stat` (`do_task_stat`, fs/proc/array.c).

use aya_ebpf::EbpfContext;
use memtrace_common::wire::{RecordKind, RusageRecord, UNKNOWN_COUNT};

use crate::kernel::read_word;
use crate::settings::field;
use crate::thread::Thread;
use crate::{emit, settings};

/// Maximum number of list elements that are read, including repetitions. When the last thread exits or a thread calls
/// exec, few other threads are left. If too many are exiting at that moment, the sum is not known.
const MAX_STEPS: u32 = 64;

/// Records the rusage of the current process, `task`, at an exec or at the exit of its last thread. `is_traced` is
/// true if the image that ends was traced.
#[inline(always)]
pub fn emit(context: &impl EbpfContext, thread: Thread, task: u64, is_traced: bool) {
    if !settings::has_rusage() {
        return;
    }
    let signal = read_word(task, field!(task.task_signal));
    let record = RusageRecord {
        header: thread.header(RecordKind::Rusage),
        minor_faults: rusage_faults(task, 0),
        major_faults: rusage_faults(task, 1),
        peak_pages: read_word(signal, field!(rusage.signal_maxrss)),
        traced: is_traced as u64,
    };
    emit::rusage(context, thread, record);
}

/// Returns the page faults of all threads of the task's process: the major ones if `major` is not 0, else the minor
/// ones. The function is global, so that the verifier checks it once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn rusage_faults(task: u64, major: u32) -> u64 {
    // The settings are constants, so the verifier skips the rest of the function.
    if !settings::has_rusage() {
        return UNKNOWN_COUNT;
    }
    let (in_task, in_signal) = if major != 0 {
        (field!(rusage.task_maj_flt), field!(rusage.signal_maj_flt))
    } else {
        (field!(rusage.task_min_flt), field!(rusage.signal_min_flt))
    };
    let signal = read_word(task, field!(task.task_signal));
    let head = signal + field!(rusage.signal_thread_head) as u64;
    let mut sequence = read_sequence(signal);
    let mut sum = read_word(signal, in_signal);
    let mut node = read_word(head, 0);
    // `read_word` returns 0 for memory that cannot be read. After such a read, the walk never reaches the head of the list, and
    // the sum is not known.
    for _ in 0..MAX_STEPS {
        if node != head {
            sum += read_word(node - field!(rusage.task_thread_node) as u64, in_task);
            node = read_word(node, 0);
            continue;
        }
        let now = read_sequence(signal);
        if now == sequence && now & 1 == 0 {
            return sum;
        }
        sequence = now;
        sum = read_word(signal, in_signal);
        node = read_word(head, 0);
    }
    UNKNOWN_COUNT
}

#[inline(always)]
fn read_sequence(signal: u64) -> u32 {
    read_word(signal, field!(rusage.signal_stats_sequence)) as u32
}

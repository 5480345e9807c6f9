//! What the kernel itself has counted of the current process.
//!
//! Of a thread that is gone, the process' `signal_struct` has the numbers; of one that is there, its own task. When the last
//! one ends, others may be about to go over from the one to the other (`__exit_signal`, kernel/exit.c), which a sequence
//! number tells of; then both are read again, as `/proc/PID/stat` does (`do_task_stat`, fs/proc/array.c).

use aya_ebpf::EbpfContext;
use memtrace_common::wire::{CountsRecord, Kind, UNCOUNTED};

use crate::kernel::word;
use crate::thread::Thread;
use crate::{emit, settings};

/// So many threads are looked at, some of them again: when the last one ends, or runs another program, the others are gone, but for
/// those that are about to go over. Where too many do at that moment, the sum is not known.
const MAX_STEPS: u32 = 64;

/// Tells what was counted of the process of `task`, which runs: it is about to end, or has a new program, and what it was until now
/// is traced or not.
#[inline(always)]
pub fn emit(context: &impl EbpfContext, thread: Thread, task: u64, is_traced: bool) {
    if !settings::counts::told() {
        return;
    }
    let signal = word(task, settings::task_signal());
    let record = CountsRecord {
        header: thread.header(Kind::Counts),
        minor_faults: counts_sum(task, 0),
        major_faults: counts_sum(task, 1),
        peak_pages: word(signal, settings::counts::signal_peak()),
        traced: is_traced as u64,
    };
    emit::counts(context, thread, record);
}

/// The page faults of all threads of the task's process, the major ones or the minor ones. Is verified by itself.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn counts_sum(task: u64, major: u32) -> u64 {
    use settings::counts::{signal_major, signal_minor, task_major, task_minor, task_node};
    // Where it is not told, the verifier need not walk through the rest.
    if !settings::counts::told() {
        return UNCOUNTED;
    }
    let (in_task, in_signal) = if major != 0 { (task_major(), signal_major()) } else { (task_minor(), signal_minor()) };
    let signal = word(task, settings::task_signal());
    let head = signal + settings::counts::signal_threads() as u64;
    let mut sequence = sequence(signal);
    let mut sum = word(signal, in_signal);
    let mut node = word(head, 0);
    // What cannot be read is zero, and no list leads to zero and back.
    for _ in 0..MAX_STEPS {
        if node != head {
            sum += word(node - task_node() as u64, in_task);
            node = word(node, 0);
            continue;
        }
        let now = self::sequence(signal);
        if now == sequence && now & 1 == 0 {
            return sum;
        }
        sequence = now;
        sum = word(signal, in_signal);
        node = word(head, 0);
    }
    UNCOUNTED
}

#[inline(always)]
fn sequence(signal: u64) -> u32 {
    word(signal, settings::counts::signal_sequence()) as u32
}

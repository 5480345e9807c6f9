//! The ring buffer for the activity of threads.

use core::ptr::from_ref;

use aya_ebpf::btf_maps::RingBuf;
use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_probe_read_user_str};
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{
    ACTIVITY_TEXT, ActivityRecord, ActivityStep, ActivityText, COMM, MAX_RINGS, RecordKind, STACK_NOT_TAKEN,
    UNKNOWN_USAGE,
};

use super::flags::NO_WAKEUP;
use crate::activity::{self, StepState};
use crate::loss;
use crate::thread::{Thread, since_start};

/// Index that stands for the activity ring, which is not in `RINGS`.
pub const ACTIVITY_RING: u32 = MAX_RINGS + 1;

/// User space polls this ring.
#[btf_map]
static ACTIVITY: RingBuf<u64, { 8 << 20 }> = RingBuf::new();

/// A step in the activity of a thread. The fields are the same as in [`ActivityRecord`], without its time, usage and
/// sequence number.
#[derive(Clone, Copy)]
pub struct Step {
    /// Value of an [`ActivityStep`].
    pub step: u32,
    pub site: u32,
    pub value: u64,
    pub duration: u64,
    /// CPU time of the thread at the begin of a wait, stall or call, in nanoseconds.
    pub cpu_before: u64,
    pub stack: u64,
    pub holder: u32,
    pub waker: u32,
    /// Addresses of two C strings in the process, the name and the text; 0 if there is no string.
    pub name: u64,
    pub text: u64,
}

impl Step {
    #[inline(always)]
    pub const fn new(step: ActivityStep) -> Self {
        let (name, text) = (0, 0);
        Self {
            step: step as u32,
            site: 0,
            value: 0,
            duration: 0,
            cpu_before: 0,
            stack: STACK_NOT_TAKEN,
            holder: 0,
            waker: 0,
            name,
            text,
        }
    }
}

/// Records a step of the current thread.
#[inline(always)]
pub fn activity(thread: Thread, step: Step) {
    let time = since_start();
    let state = activity::take_step(thread, time, step.step);
    activity::count_step(step.step, step.site);
    let cpu = if state.cpu == UNKNOWN_USAGE { state.cpu } else { state.cpu.saturating_sub(step.cpu_before) };
    send(thread, time, StepState { cpu, ..state }, step, false);
}

/// Records the start of a thread, or the exit of the current one. The record has the name of the current thread.
/// `sequence` is the sequence number of the step.
#[inline(always)]
pub fn lifetime(thread: Thread, step: ActivityStep, sequence: u32) {
    send(thread, since_start(), StepState { cpu: 0, allocated: 0, sequence }, Step::new(step), true);
}

/// Records the end of the thread id that the current thread had before its exec. The record has no name, because the current
/// thread already has the name of the new executable.
#[inline(always)]
pub fn end_at_exec(thread: Thread, sequence: u32) {
    send(thread, since_start(), StepState { cpu: 0, allocated: 0, sequence }, Step::new(ActivityStep::Exit), false);
}

#[inline(always)]
fn send(thread: Thread, time: u64, state: StepState, step: Step, has_comm: bool) {
    let Some(mut entry) = ACTIVITY.reserve_untyped::<ActivityRecord>(0) else {
        loss::count_without_log(LossReason::RingFullActivity);
        return;
    };
    let record = entry.as_mut_ptr();
    let Step { step, site, value, duration, stack, holder, waker, name, text, .. } = step;
    // SAFETY: the entry is memory for a record, and every field is written. Texts are written up to their zero.
    unsafe {
        (*record).header = thread.header(RecordKind::Activity);
        (*record).time = time;
        (*record).cpu = state.cpu;
        (*record).allocated = state.allocated;
        (*record).value = value;
        (*record).duration = duration;
        (*record).stack = stack;
        (*record).step = step;
        (*record).site = site;
        (*record).holder = holder;
        (*record).waker = waker;
        (*record).sequence = state.sequence;
        (*record).reserved = 0;
        read_text(&raw mut (*record).name, name);
        read_text(&raw mut (*record).text, text);
        if has_comm {
            bpf_get_current_comm((&raw mut (*record).name.bytes).cast(), COMM as u32);
        }
    }
    entry.submit(NO_WAKEUP);
}

/// Copies the C string at `address` of the process. If the string cannot be read, stores its address in `into`.
///
/// # Safety
///
/// `into` must point to memory for an [`ActivityText`].
#[inline(always)]
unsafe fn read_text(into: *mut ActivityText, address: u64) {
    // SAFETY: the caller vouches for `into`. The helper checks the address, and writes at most the size of the text.
    unsafe {
        (*into).unread = 0;
        (*into).bytes[0] = 0;
        if address != 0 {
            let bytes = (&raw mut (*into).bytes).cast();
            if bpf_probe_read_user_str(bytes, ACTIVITY_TEXT as u32, address as *const _) < 0 {
                (*into).unread = address;
            }
        }
    }
}

/// Returns the activity ring. [`super::stack`] also writes frames to it.
#[inline(always)]
pub(super) fn ring() -> *mut core::ffi::c_void {
    from_ref(&ACTIVITY).cast_mut().cast()
}

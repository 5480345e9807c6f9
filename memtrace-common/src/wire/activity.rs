//! Records of the activity of threads: begins and ends of spans, waits and events.

use core::mem::{offset_of, size_of};

use super::Header;

/// Maximum size in bytes of a text in an [`ActivityRecord`], with the terminating zero. Longer texts are cut.
pub const ACTIVITY_TEXT: usize = 64;

/// Maximum number of threads with a [`ThreadState`] at a time.
pub const MAX_ACTIVE_THREADS: usize = 1 << 14;

/// Number of sites with a counter of the spans that begin there. The last counter also counts the spans of all further sites.
pub const COUNTED_SITES: u32 = 1024;

/// CPU time or number of allocated bytes in the record of a thread without a [`ThreadState`].
pub const UNKNOWN_USAGE: u64 = u64::MAX;

/// Sequence number in the record of a thread without a [`ThreadState`].
pub const UNKNOWN_SEQUENCE: u32 = 0;

/// First sequence number of a thread.
pub const FIRST_SEQUENCE: u32 = 1;

/// Returns the sequence number after `sequence`. It is never [`UNKNOWN_SEQUENCE`].
#[inline(always)]
#[must_use]
pub const fn next_sequence(sequence: u32) -> u32 {
    if sequence == u32::MAX { FIRST_SEQUENCE } else { sequence + 1 }
}

/// A step in the activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ActivityRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
    /// Time of the step, in nanoseconds since [`super::Settings::start_ns`].
    pub time: u64,
    /// CPU time of the thread in nanoseconds, or [`UNKNOWN_USAGE`]. For a wait, stall or allocator call, it is the CPU
    /// time within `duration`. For other steps, it is the CPU time since the thread's first activity.
    pub cpu: u64,
    /// Bytes that the thread has allocated since its first activity; or [`UNKNOWN_USAGE`].
    pub allocated: u64,
    /// Argument of a function, address of a lock or futex, value of an event, or size of an allocation.
    pub value: u64,
    /// Nanoseconds from the begin of a wait, stall or call to `time`.
    pub duration: u64,
    /// Id of the stack of a futex wait, as in a [`super::AllocRecord`]. In the begin and end of a call, the stack
    /// pointer at the entry of the function.
    pub stack: u64,
    /// The step: an [`ActivityStep`].
    pub step: u32,
    /// Id that user space gave the function or user probe. In a stall, a constant of [`super::reclaim_kind`]. In a
    /// futex wait, a constant of [`futex_use`].
    pub site: u32,
    /// Thread that may hold the futex, in the pid namespace of the process; 0 if it is not known.
    pub holder: u32,
    /// Id of the thread that ended the futex wait, in the root pid namespace; 0 if it is not known. It belongs to the
    /// same process.
    pub waker: u32,
    /// Sequence number of the step, or [`UNKNOWN_SEQUENCE`]. If the step is [counted](ActivityStep::is_counted), the thread's
    /// next record has the next number, else the same number. Any other number means that records in between were lost.
    pub sequence: u32,
    /// Padding: zero.
    pub reserved: u32,
    /// Name of a task, lock, event or thread, or label of a call.
    pub name: ActivityText,
    /// Text of an event.
    pub text: ActivityText,
}

/// A text in an [`ActivityRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ActivityText {
    /// Address of the text in the process, if BPF could not read it because its page is not present yet; else 0.
    pub unread: u64,
    /// Bytes of the text, which ends at the first zero.
    pub bytes: [u8; ACTIVITY_TEXT],
}

/// Step in the activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ActivityStep {
    /// A task or the call of a function begins.
    Begin = 0,
    /// A task or the call of a function ends.
    End = 1,
    /// A wait for a lock begins.
    LockWait = 2,
    /// The thread has acquired the lock.
    LockAcquire = 3,
    /// The thread has released the lock.
    LockRelease = 4,
    /// An event with a numeric value.
    Number = 5,
    /// An event with a text.
    Text = 6,
    /// An event: the thread has entered a function.
    Call = 7,
    /// A wait for a futex has ended.
    FutexWait = 8,
    /// A stall for memory has ended.
    Stall = 9,
    /// A call of an allocator function has ended.
    AllocatorCall = 10,
    /// The thread has started.
    Start = 11,
    /// The thread has exited.
    Exit = 12,
    /// The call of a function ends: the function jumps to another one.
    TailCall = 13,
}

impl ActivityStep {
    /// All steps, by number.
    pub const ALL: [Self; 14] = [
        Self::Begin,
        Self::End,
        Self::LockWait,
        Self::LockAcquire,
        Self::LockRelease,
        Self::Number,
        Self::Text,
        Self::Call,
        Self::FutexWait,
        Self::Stall,
        Self::AllocatorCall,
        Self::Start,
        Self::Exit,
        Self::TailCall,
    ];

    /// Steps that begin or end spans: a bit for the number of each.
    const COUNTED: u32 = 1 << Self::Begin as u32
        | 1 << Self::End as u32
        | 1 << Self::LockWait as u32
        | 1 << Self::LockAcquire as u32
        | 1 << Self::LockRelease as u32
        | 1 << Self::TailCall as u32;

    /// Returns true if sequence numbers count the step with the number `step`, because it begins or ends a span. The
    /// loss of any other step does not change the spans of other records.
    #[inline(always)]
    #[must_use]
    pub const fn is_counted(step: u32) -> bool {
        step < u32::BITS && Self::COUNTED >> step & 1 != 0
    }
}

/// State of a thread since its first activity. Points in time are in nanoseconds since tick 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadState {
    /// CPU time up to the last switch to another thread, in nanoseconds.
    pub ran: u64,
    /// Begin of the current time on a CPU: the switch to the thread, or its first activity; 0 if it is not on a CPU.
    pub since: u64,
    /// Bytes that the thread has allocated.
    pub allocated: u64,
    /// Pending wait for a futex.
    pub wait: FutexWait,
    /// CPU time at the begin of the last stall, in nanoseconds.
    pub stall_cpu: u64,
    /// Pending call of an allocator.
    pub call: TimedCall,
    /// Process of the thread.
    pub pid: u32,
    /// Sequence number of the next step.
    pub sequence: u32,
}

/// A wait for a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FutexWait {
    /// Begin of the wait; 0 if the thread does not wait.
    pub begin: u64,
    /// CPU time of the thread at the begin, in nanoseconds.
    pub cpu: u64,
    /// Address of the futex.
    pub address: u64,
    /// Thread that may hold the futex, in the pid namespace of the process; 0 if it is not known.
    pub holder: u32,
    /// Id of the thread that last woke the waiting thread, in the root pid namespace; 0 if there is none. It belongs to
    /// the same process.
    pub waker: u32,
    /// Use of the futex: a constant of [`futex_use`].
    pub usage: u32,
    /// Padding: zero.
    pub reserved: u32,
}

/// Uses of a futex, as far as the arguments of the system call and the waker show them.
pub mod futex_use {
    /// The use is not known.
    pub const UNKNOWN: u32 = 0;

    /// The futex is not private to the process, and its expected value may be a thread id. glibc waits in this way for the exit
    /// of a thread: the kernel clears the futex word at the exit.
    pub const MAYBE_JOIN: u32 = 1;

    /// As [`MAYBE_JOIN`], and an exiting thread has woken the waiting thread.
    pub const JOIN: u32 = 2;

    /// The thread waits until the futex word is not 0, as in a wait for a semaphore. The futex is no lock: the word of
    /// a held lock is not 0.
    pub const EVENT: u32 = 3;
}

/// A call of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TimedCall {
    /// Begin of the call; 0 if no call is pending.
    pub begin: u64,
    /// CPU time of the thread at the begin, in nanoseconds.
    pub cpu: u64,
    /// Index of the function in [`crate::vocabulary::FUNCTIONS`].
    pub function: u64,
}

/// Counters of the durations of calls of allocators.
pub mod call_time {
    /// Number of functions with counters. The last counters also count the calls of all further functions.
    pub const FUNCTIONS: u32 = 256;

    /// Number of counters of a function: one for each binary logarithm of the duration in nanoseconds, and one for the
    /// sum of the durations.
    pub const OF_FUNCTION: u32 = BUCKETS + 1;

    /// Number of binary logarithms. The last one also counts all longer calls: 2^39 ns are nine minutes.
    pub const BUCKETS: u32 = 40;

    /// Number of counters of all functions.
    pub const COUNT: u32 = FUNCTIONS * OF_FUNCTION;

    /// Returns the index of the counter for calls of `function` that last `duration` nanoseconds.
    #[inline(always)]
    #[must_use]
    pub const fn bucket(function: u32, duration: u64) -> u32 {
        let log2 = 63 - (duration | 1).leading_zeros();
        first(function) + if log2 < BUCKETS { log2 } else { BUCKETS - 1 }
    }

    /// Returns the index of the counter with the sum of the durations of the calls of a function.
    #[inline(always)]
    #[must_use]
    pub const fn sum(function: u32) -> u32 {
        first(function) + BUCKETS
    }

    const fn first(function: u32) -> u32 {
        (if function < FUNCTIONS { function } else { FUNCTIONS - 1 }) * OF_FUNCTION
    }
}

/// Counters of the steps of all threads, including steps whose records were lost.
pub mod step_count {
    use super::{ActivityStep, COUNTED_SITES};

    /// Number of counters: one for each site, and one for each step.
    pub const COUNT: u32 = COUNTED_SITES + 16;

    /// Returns the index of the counter of a step. `step`: number of the [`ActivityStep`].
    #[inline(always)]
    #[must_use]
    pub const fn index(step: u32, site: u32) -> u32 {
        if step != ActivityStep::Begin as u32 {
            COUNTED_SITES + (step & 0xf)
        } else if site < COUNTED_SITES {
            site
        } else {
            COUNTED_SITES - 1
        }
    }
}

/// BPF cookie of a probe that records activity. The lower bits are as in [`crate::vocabulary::Cookie`]: the three
/// places have the indices of the arguments with the value, the name and the text. Name and text are addresses of C
/// strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActivityCookie(pub u64);

impl ActivityCookie {
    const STEP_SHIFT: u32 = 12;
    const IS_HALF: u64 = 1 << 16;
    const IS_CONDITIONAL: u64 = 1 << 17;
    const CONDITION_SHIFT: u32 = 18;
    const SITE_SHIFT: u32 = 32;

    /// Encodes a step of the function or user probe with the id `site`. `arguments` are the indices of the arguments
    /// with the value, the name and the text.
    #[must_use]
    pub const fn new(step: ActivityStep, site: u32, arguments: [Option<u8>; 3]) -> Self {
        const NONE: u64 = crate::vocabulary::COOKIE_NONE;
        const fn bits(argument: Option<u8>) -> u64 {
            match argument {
                Some(argument) => argument as u64 & NONE,
                None => NONE,
            }
        }
        let [value, name, text] = arguments;
        let places = bits(value) | bits(name) << 4 | bits(text) << 8;
        Self(places | (step as u64) << Self::STEP_SHIFT | (site as u64) << Self::SITE_SHIFT)
    }

    /// Returns the cookie for a value of 32 bits.
    #[must_use]
    pub const fn with_half(self) -> Self {
        Self(self.0 | Self::IS_HALF)
    }

    /// Returns the cookie for a step that takes place only if a conditional jump is taken. `condition`: condition of
    /// the jump, as its opcode contains it. The lowest four bits count.
    #[must_use]
    pub const fn with_condition(self, condition: u8) -> Self {
        Self(self.0 | Self::IS_CONDITIONAL | (condition as u64 & 0xf) << Self::CONDITION_SHIFT)
    }

    /// Returns the condition of the step; `None` if the step always takes place.
    #[inline(always)]
    #[must_use]
    pub const fn condition(self) -> Option<u32> {
        if self.0 & Self::IS_CONDITIONAL == 0 { None } else { Some((self.0 >> Self::CONDITION_SHIFT & 0xf) as u32) }
    }

    /// Returns the step: an [`ActivityStep`].
    #[inline(always)]
    #[must_use]
    pub const fn step(self) -> u32 {
        (self.0 >> Self::STEP_SHIFT & 0xf) as u32
    }

    /// Returns the id of the function or user probe.
    #[inline(always)]
    #[must_use]
    pub const fn site(self) -> u32 {
        (self.0 >> Self::SITE_SHIFT) as u32
    }

    /// Returns the value without an undefined upper half.
    #[inline(always)]
    #[must_use]
    pub const fn cut(self, value: u64) -> u64 {
        if self.0 & Self::IS_HALF != 0 { value & u32::MAX as u64 } else { value }
    }
}

const _: () = {
    assert!(size_of::<ActivityRecord>() == 232);
    assert!(offset_of!(ActivityRecord, time) == 16);
    assert!(offset_of!(ActivityRecord, step) == 64);
    assert!(offset_of!(ActivityRecord, sequence) == 80);
    assert!(offset_of!(ActivityRecord, name) == 88);
    assert!(ActivityStep::ALL.len() <= 16);
    assert!(size_of::<ThreadState>() == 104);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::{COOKIE_NONE, Cookie};

    #[test]
    fn calls_are_counted_by_the_logarithm_of_their_duration() {
        let buckets = [0, 1, 2, 3, 4, 1 << 38, 1 << 39, u64::MAX].map(|duration| call_time::bucket(0, duration));
        assert_eq!(buckets, [0, 0, 1, 1, 2, 38, 39, 39]);
        assert_eq!((call_time::sum(1), call_time::bucket(2, 0)), (81, 82));
        assert_eq!(call_time::sum(u32::MAX), call_time::COUNT - 1);
    }

    #[test]
    fn sequences_count_begins_and_ends_of_spans() {
        use ActivityStep::{Begin, End, LockAcquire, LockRelease, LockWait, TailCall};
        let counted = ActivityStep::ALL.into_iter().filter(|step| ActivityStep::is_counted(*step as u32));
        assert!(counted.eq([Begin, End, LockWait, LockAcquire, LockRelease, TailCall]));
        assert!(!ActivityStep::is_counted(32) && !ActivityStep::is_counted(u32::MAX));
        let after = [FIRST_SEQUENCE, 7, u32::MAX - 1, u32::MAX].map(next_sequence);
        assert_eq!(after, [2, 8, u32::MAX, FIRST_SEQUENCE]);
    }

    #[test]
    fn begins_are_counted_by_site_and_other_steps_by_kind() {
        let begins = [0, 7, 1023, u32::MAX].map(|site| step_count::index(ActivityStep::Begin as u32, site));
        assert_eq!(begins, [0, 7, 1023, 1023]);
        let others = ActivityStep::ALL[1..].iter().map(|step| step_count::index(*step as u32, 7));
        assert!(others.eq(1025..1038));
        assert!(step_count::index(u32::MAX, 0) < step_count::COUNT);
    }

    #[test]
    fn cookies_encode_steps_sites_and_arguments() {
        for (number, step) in (0..).zip(ActivityStep::ALL) {
            let cookie = ActivityCookie::new(step, 70_000, [Some(2), None, Some(1)]);
            assert_eq!((step as u32, cookie.step(), cookie.site()), (number, number, 70_000));
            assert_eq!([0, 1, 2].map(|place| Cookie(cookie.0).argument(place)), [2, COOKIE_NONE, 1]);
            assert_eq!(cookie.cut(u64::MAX), u64::MAX);
            assert_eq!(cookie.with_half().cut(u64::MAX), u64::from(u32::MAX));
            let conditional = cookie.with_condition(0xf);
            assert_eq!((cookie.condition(), conditional.condition()), (None, Some(0xf)));
            assert_eq!((conditional.step(), conditional.site()), (number, 70_000));
            assert_eq!(conditional.cut(u64::MAX), u64::MAX);
        }
    }
}

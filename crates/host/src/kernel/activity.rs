//! Activity of threads: attaches the BPF programs that record it, and reads their records.

use std::collections::BTreeMap;

use aya::maps::{HashMap, PerCpuArray};
use memtrace_common::wire::{
    ACTIVITY_TEXT, ActivityCookie, ActivityRecord, ActivityStep, ActivityText, COUNTED_SITES, Header, RecordKind,
    ThreadState, UNKNOWN_SEQUENCE, UNKNOWN_USAGE, call_time, futex_use, next_sequence, step_count,
};
use memtrace_model::{
    AbsAddr, Bytes, CallSums, Comm, EventKind, FileOffset, FutexUse, JumpCondition, Log2, Nanoseconds, Pid, SpanCounts,
    SpanKind, Stack, StackId, StepAction, StepKind, StepProbe, StepSequence, ThreadStep, Tid,
};

use super::attach_point::AttachPoint;
use super::bpf::Bpf;
use super::counters::total;
use super::decode::{self, reclaim_kind};
use super::error::KernelError;
use super::mapped_ring::MappedRing;
use super::settings::ActivityOptions;
use super::wire_type::{self, MapEntry};
use crate::target_files::read_memory;

/// Programs of every run with activity, and their tracepoints. `activity_thread_exit` and `activity_exec` are attached before the
/// programs that forget an exited process, or decide again whether a process is traced.
const TRACEPOINTS: [(&str, &str); 4] = [
    ("activity_switch", "sched_switch"),
    ("activity_thread_start", "sched_process_fork"),
    ("activity_thread_exit", "sched_process_exit"),
    ("activity_exec", "sched_process_exec"),
];

/// Programs of runs that record futex waits, and their tracepoints.
const FUTEX_TRACEPOINTS: [(&str, &str); 3] =
    [("futex_enter", "sys_enter"), ("futex_waking", "sched_waking"), ("futex_exit", "sys_exit")];

/// Attaches the programs at tracepoints. The probes in targets are attached later.
pub(super) fn attach(bpf: &mut Bpf, options: &ActivityOptions) -> Result<(), KernelError> {
    TRACEPOINTS.iter().try_for_each(|(program, tracepoint)| bpf.attach_tracepoint(program, tracepoint))?;
    if options.min_wait.is_some() {
        FUTEX_TRACEPOINTS.iter().try_for_each(|(program, tracepoint)| bpf.attach_tracepoint(program, tracepoint))?;
    }
    Ok(())
}

/// Instruction of a target that a thread executes at a step of its activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSite {
    /// File offset of the probed instruction.
    pub offset: FileOffset,
    /// File offset of the probe's semaphore: a counter of its users. The target computes the arguments only if the counter is
    /// not 0.
    pub semaphore: Option<FileOffset>,
    /// Step that the probe records.
    pub step: StepProbe,
}

/// Returns the BPF program for a site, and its attach point.
pub(super) fn point(site: &StepSite) -> (&'static str, AttachPoint) {
    let StepProbe { action, site: number, value, is_half, name, text } = site.step;
    let (program, step) = match action {
        StepAction::Begin => ("activity_entry", ActivityStep::Begin),
        StepAction::End => ("activity_entry", ActivityStep::End),
        StepAction::EndAtReturn => ("activity_return", ActivityStep::End),
        StepAction::TailCall(_) => ("activity_entry", ActivityStep::TailCall),
        StepAction::LockWait => ("activity_entry", ActivityStep::LockWait),
        StepAction::LockAcquire => ("activity_entry", ActivityStep::LockAcquire),
        StepAction::LockRelease => ("activity_entry", ActivityStep::LockRelease),
        StepAction::Number => ("activity_entry", ActivityStep::Number),
        StepAction::Text => ("activity_entry", ActivityStep::Text),
        StepAction::Call => ("activity_entry", ActivityStep::Call),
    };
    let cookie = ActivityCookie::new(step, number, [value, name, text]);
    let cookie = if is_half { cookie.with_half() } else { cookie };
    let ActivityCookie(cookie) = match action {
        StepAction::TailCall(Some(JumpCondition(condition))) => cookie.with_condition(condition),
        _ => cookie,
    };
    (program, AttachPoint { offset: site.offset, cookie: Some(cookie), semaphore: site.semaphore })
}

/// Record of the activity of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadActivity {
    /// Step of a thread.
    Step(ThreadStep),
    /// Stack of a futex wait. The record precedes the step that refers to the stack by its id.
    Stack(Pid, StackId, Box<Stack>),
}

/// Reader of the ring with the activity of threads.
pub struct ActivityReader {
    ring: MappedRing,
    /// Number of records that could not be decoded.
    bad: u64,
}

impl ActivityReader {
    pub(super) fn take(bpf: &mut Bpf) -> Result<Self, KernelError> {
        Ok(Self { ring: bpf.take_ring("ACTIVITY", "read the activity of threads")?, bad: 0 })
    }

    /// Passes at most `limit` unread records to `sink`, in order. The next call of `drain` continues after them.
    pub fn drain(&mut self, limit: usize, mut sink: impl FnMut(ThreadActivity)) {
        for _ in 0..limit {
            let Some(record) = self.ring.next_record() else { return };
            match parse(&record) {
                Some(activity) => sink(activity),
                None => self.bad += 1,
            }
        }
    }

    /// Returns the number of records that could not be decoded.
    #[must_use]
    pub const fn bad_records(&self) -> u64 {
        self.bad
    }
}

fn parse(record: &[u8]) -> Option<ThreadActivity> {
    let header: Header = wire_type::read(record)?;
    if header.kind == RecordKind::Stack as u32 {
        let event = decode::decode(record).ok()?;
        let EventKind::Stack { id, stack } = event.kind else { return None };
        return Some(ThreadActivity::Stack(event.pid, id, stack));
    }
    if header.kind != RecordKind::Activity as u32 {
        return None;
    }
    let record: ActivityRecord = wire_type::read(record)?;
    let step = ActivityStep::ALL.get(record.step as usize)?;
    let known = |value| (value != UNKNOWN_USAGE).then_some(value);
    let (pid, duration) = (Pid(header.pid), Nanoseconds(record.duration));
    let (site, value, lock) = (record.site, record.value, AbsAddr(record.value));
    let frame = AbsAddr(record.stack);
    let kind = match step {
        ActivityStep::Begin => StepKind::Begin { site, value, text: text(pid, &record.name), frame },
        ActivityStep::End => StepKind::End { site, frame },
        ActivityStep::TailCall => StepKind::TailCall { site, frame },
        ActivityStep::LockWait => StepKind::LockWait { lock, name: text(pid, &record.name) },
        ActivityStep::LockAcquire => StepKind::LockAcquire { lock },
        ActivityStep::LockRelease => StepKind::LockRelease { lock },
        ActivityStep::Number => StepKind::Number { name: text(pid, &record.name), value: value.cast_signed() },
        ActivityStep::Text => StepKind::Text { name: text(pid, &record.name), text: text(pid, &record.text) },
        ActivityStep::Call => StepKind::Call { site, value },
        ActivityStep::FutexWait => StepKind::FutexWait {
            address: lock,
            duration,
            holder: (record.holder != 0).then_some(Tid(record.holder)),
            waker: (record.waker != 0).then_some(Tid(record.waker)),
            usage: usage(site)?,
            is_open: false,
            stack: StackId(record.stack),
        },
        ActivityStep::Stall => StepKind::Stall { work: reclaim_kind(site)?, duration },
        ActivityStep::AllocatorCall => StepKind::AllocatorCall { function: site, size: Bytes(value), duration },
        ActivityStep::Start => StepKind::Start,
        ActivityStep::Exit => StepKind::Exit { name: Comm::from(text(pid, &record.name)) },
    };
    Some(ThreadActivity::Step(ThreadStep {
        pid,
        tid: Tid(header.tid),
        at: Nanoseconds(record.time),
        cpu: known(record.cpu).map(Nanoseconds),
        allocated: known(record.allocated).map(Bytes),
        sequence: sequence(&record),
        kind,
    }))
}

fn sequence(record: &ActivityRecord) -> Option<StepSequence> {
    let number = record.sequence;
    let next = if ActivityStep::is_counted(record.step) { next_sequence(number) } else { number };
    (number != UNKNOWN_SEQUENCE).then_some(StepSequence { number, next })
}

fn usage(number: u32) -> Option<FutexUse> {
    match number {
        futex_use::UNKNOWN => Some(FutexUse::Unknown),
        futex_use::MAYBE_JOIN => Some(FutexUse::MaybeJoin),
        futex_use::JOIN => Some(FutexUse::Join),
        futex_use::EVENT => Some(FutexUse::Event),
        _ => None,
    }
}

/// Returns the text of a record. BPF cannot read a page of constants that the process has not touched yet. Such a text
/// is read from the process now: constants do not change.
fn text(pid: Pid, text: &ActivityText) -> String {
    let read = (text.unread != 0).then(|| read_memory(pid, AbsAddr(text.unread), ACTIVITY_TEXT));
    let bytes = match &read {
        None => &text.bytes[..],
        Some(read) => read.as_deref().unwrap_or_default(),
    };
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// State of a thread that has taken steps and has not exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveThreadState {
    /// Begin of the pending futex wait, as the time since tick 0; `None` if the thread does not wait.
    pub wait_begin: Option<Nanoseconds>,
    /// Sequence number of the thread's next step.
    pub next_sequence: u32,
}

/// Returns the states of the threads.
pub(super) fn active_threads(bpf: &Bpf) -> BTreeMap<(Pid, Tid), ActiveThreadState> {
    type Entries<M> = HashMap<M, u32, MapEntry<ThreadState>>;
    let map = bpf.map("ACTIVE_THREADS").and_then(|map| Entries::try_from(map).ok());
    let all = map.iter().flat_map(HashMap::iter).filter_map(Result::ok);
    all.map(|(tid, MapEntry(state))| {
        let wait_begin = (state.wait.begin != 0).then_some(Nanoseconds(state.wait.begin));
        ((Pid(state.pid), Tid(tid)), ActiveThreadState { wait_begin, next_sequence: state.sequence })
    })
    .collect()
}

/// Returns the function that reads a counter of the map `name`, summed over all CPUs. Without the map, the function returns 0.
fn counters_of(bpf: &Bpf, name: &str) -> impl Fn(u32) -> u64 {
    let map = bpf.map(name).and_then(|map| PerCpuArray::try_from(map).ok());
    move |index| map.as_ref().map_or(0, |map| total(map, index))
}

/// Returns the numbers of spans that have begun, including those with lost records.
pub(super) fn begun_spans(bpf: &Bpf) -> SpanCounts {
    let count = counters_of(bpf, "STEP_COUNTS");
    let kinds = [
        (SpanKind::LockWait, ActivityStep::LockWait),
        (SpanKind::LockHold, ActivityStep::LockAcquire),
        (SpanKind::FutexWait, ActivityStep::FutexWait),
        (SpanKind::Stall, ActivityStep::Stall),
        (SpanKind::AllocatorCall, ActivityStep::AllocatorCall),
    ];
    SpanCounts {
        by_site: (0..COUNTED_SITES).map(|site| (site, count(site))).filter(|(_, number)| *number > 0).collect(),
        by_kind: kinds.map(|(kind, step)| (kind, count(step_count::index(step as u32, 0)))).into(),
    }
}

/// Returns the count, the total time and the histogram of the timed allocator calls, by the number of the function.
/// Functions without a call are absent.
pub(super) fn call_times(bpf: &Bpf) -> BTreeMap<u32, CallSums> {
    let count = counters_of(bpf, "CALL_TIMES");
    let of_function = |function| {
        let time = Nanoseconds(count(call_time::sum(function)));
        if time.0 == 0 {
            return None;
        }
        let bucket = |log2: u32| Some((Log2::from_number(log2)?, count(call_time::bucket(function, 1 << log2))));
        let histogram: Vec<_> = (0..call_time::BUCKETS).filter_map(bucket).filter(|(_, count)| *count > 0).collect();
        let calls = histogram.iter().map(|(_, count)| count).sum();
        Some((function, CallSums { count: calls, time, histogram }))
    };
    (0..call_time::FUNCTIONS).filter_map(of_function).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(record: &ActivityRecord) -> Vec<u8> {
        let words = [
            u64::from(record.header.kind) | u64::from(record.header.tid) << 32,
            u64::from(record.header.pid) | u64::from(record.header.tick) << 32,
            record.time,
            record.cpu,
            record.allocated,
            record.value,
            record.duration,
            record.stack,
            u64::from(record.step) | u64::from(record.site) << 32,
            u64::from(record.holder) | u64::from(record.waker) << 32,
            u64::from(record.sequence) | u64::from(record.reserved) << 32,
        ];
        let text = |text: ActivityText| text.unread.to_ne_bytes().into_iter().chain(text.bytes);
        words.iter().flat_map(|word| word.to_ne_bytes()).chain(text(record.name)).chain(text(record.text)).collect()
    }

    fn record(step: ActivityStep) -> ActivityRecord {
        let header = Header { kind: RecordKind::Activity as u32, tid: 8, pid: 7, tick: 0 };
        let mut name = ActivityText { unread: 0, bytes: [0; _] };
        name.bytes[..5].copy_from_slice(b"a\xffb\0c");
        ActivityRecord {
            header,
            time: 100,
            cpu: 20,
            allocated: UNKNOWN_USAGE,
            value: 300,
            duration: 40,
            stack: 500,
            step: step as u32,
            site: 2,
            holder: 9,
            waker: 10,
            sequence: 6,
            reserved: 0,
            name,
            text: name,
        }
    }

    #[test]
    fn steps_are_decoded() {
        let kind = |step| match parse(&bytes(&record(step))) {
            Some(ThreadActivity::Step(step)) => step,
            other => panic!("{other:?}"),
        };
        let text = String::from("a\u{fffd}b");
        let begin = kind(ActivityStep::Begin);
        assert_eq!((begin.pid, begin.tid, begin.at), (Pid(7), Tid(8), Nanoseconds(100)));
        assert_eq!((begin.cpu, begin.allocated), (Some(Nanoseconds(20)), None));
        assert_eq!(begin.kind, StepKind::Begin { site: 2, value: 300, text: text.clone(), frame: AbsAddr(500) });
        let (address, duration) = (AbsAddr(300), Nanoseconds(40));
        let (holder, waker, usage) = (Some(Tid(9)), Some(Tid(10)), FutexUse::Join);
        let wait = StepKind::FutexWait { address, duration, holder, waker, usage, is_open: false, stack: StackId(500) };
        assert_eq!(kind(ActivityStep::FutexWait).kind, wait);
        let sequences = [begin, kind(ActivityStep::FutexWait)].map(|step| step.sequence);
        assert_eq!(sequences, [7, 6].map(|next| Some(StepSequence { number: 6, next })));
        let unknown = ActivityRecord { sequence: UNKNOWN_SEQUENCE, ..record(ActivityStep::End) };
        assert!(matches!(parse(&bytes(&unknown)), Some(ThreadActivity::Step(ThreadStep { sequence: None, .. }))));
        assert_eq!(kind(ActivityStep::Text).kind, StepKind::Text { name: text.clone(), text: text.clone() });
        assert_eq!(kind(ActivityStep::Exit).kind, StepKind::Exit { name: Comm::from(text) });
        assert_eq!(ActivityStep::ALL.map(|step| kind(step).kind).len(), ActivityStep::ALL.len());
    }

    #[test]
    fn unread_texts_are_read_from_the_process() {
        static NAME: &std::ffi::CStr = c"a name that the program has not touched";
        let unread = |address| ActivityText { unread: address, bytes: [b'x'; _] };
        let this = Pid(std::process::id());
        assert_eq!(text(this, &unread(NAME.as_ptr().addr() as u64)), NAME.to_str().unwrap());
        assert_eq!(text(this, &unread(8)), "");
    }

    #[test]
    fn damaged_records_are_refused() {
        let whole = bytes(&record(ActivityStep::Begin));
        assert!((0..whole.len()).all(|length| parse(&whole[..length]).is_none()));
        assert_eq!(parse(&bytes(&ActivityRecord { step: 14, ..record(ActivityStep::Begin) })), None);
        assert_eq!(parse(&bytes(&ActivityRecord { site: 99, ..record(ActivityStep::Stall) })), None);
        assert_eq!(parse(&bytes(&ActivityRecord { site: 4, ..record(ActivityStep::FutexWait) })), None);
    }

    #[test]
    fn sites_have_programs_and_cookies() {
        let step = StepProbe {
            action: StepAction::EndAtReturn,
            site: 3,
            value: Some(1),
            is_half: true,
            name: None,
            text: None,
        };
        let (program, point) = point(&StepSite { offset: FileOffset(7), semaphore: Some(FileOffset(9)), step });
        let cookie = ActivityCookie(point.cookie.unwrap());
        assert_eq!((program, cookie.step(), cookie.site()), ("activity_return", ActivityStep::End as u32, 3));
        assert_eq!(cookie.condition(), None);
        assert_eq!(
            (point.offset, point.semaphore, cookie.cut(u64::MAX)),
            (FileOffset(7), Some(FileOffset(9)), u64::from(u32::MAX))
        );
        let jump = |condition| {
            let action = StepAction::TailCall(condition);
            let step = StepProbe { action, site: 3, value: None, is_half: false, name: None, text: None };
            let (program, point) = super::point(&StepSite { offset: FileOffset(7), semaphore: None, step });
            let cookie = ActivityCookie(point.cookie.unwrap());
            (program, cookie.step(), cookie.condition())
        };
        let step = ActivityStep::TailCall as u32;
        assert_eq!(jump(None), ("activity_entry", step, None));
        assert_eq!(jump(Some(JumpCondition(5))), ("activity_entry", step, Some(5)));
    }
}

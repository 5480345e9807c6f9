//! Longest waits for locks with their stacks, and deadlocks in words.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use memtrace_model::format as number;
use memtrace_model::{Activity, LockRow, Span, WaitClass};

use super::text_writer::TextWriter;
use crate::activity_names::ActivityNames;
use crate::{escape, format};

/// Maximum number of frames of a wait. The other frames are counted.
const MAX_FRAMES: usize = 12;

/// Maximum number of deadlocks, and of threads in a deadlock.
const MAX_DEADLOCKS: usize = 10;

/// Maximum length of the name of a lock in characters.
const NAME_CHARACTERS: usize = 90;

/// Writes a sentence about each deadlock.
pub(super) fn deadlocks(activity: &Activity, names: &ActivityNames<'_>, out: &mut TextWriter<'_>) -> io::Result<()> {
    let cycles = activity.deadlocks();
    for cycle in cycles.iter().take(MAX_DEADLOCKS) {
        writeln!(out, "\n{}", out.wrapped(&deadlock(activity, names, cycle), 0))?;
    }
    match cycles.len().saturating_sub(MAX_DEADLOCKS) {
        0 => Ok(()),
        others => writeln!(out, "\n{}.", number::counted(others as u64, "more deadlock", "more deadlocks")),
    }
}

/// Returns `Deadlock: worker-1 (4720) waits for table, held by worker-2 (4721), which waits for index, held by worker-1
/// (4720).`
fn deadlock(activity: &Activity, names: &ActivityNames<'_>, cycle: &[usize]) -> String {
    let wait = |&wait: &usize| waits_for(activity, names, &activity.spans[wait], "waits");
    let waits: Vec<String> = cycle.iter().take(MAX_DEADLOCKS).map(wait).collect();
    let first = cycle.first().map_or_else(String::new, |&wait| waiter(activity, names, &activity.spans[wait]));
    let rest = match cycle.len().saturating_sub(MAX_DEADLOCKS) {
        0 => String::new(),
        others => format!(", and so on, with {}", number::counted(others as u64, "more thread", "more threads")),
    };
    format!("Deadlock: {first} {}{rest}.", waits.join(", which "))
}

/// Writes the longest wait for each of the `top` locks with the longest waits.
pub(super) fn longest(
    activity: &Activity,
    names: &ActivityNames<'_>,
    top: usize,
    out: &mut TextWriter<'_>,
) -> io::Result<()> {
    let mut longest: BTreeMap<u32, &Span> = BTreeMap::new();
    for span in activity.spans.iter().filter(|span| span.kind.is_lock_wait()) {
        let Some(lock) = span.lock.filter(|_| activity.wait_class(span) == WaitClass::Lock) else { continue };
        let known = longest.entry(lock).or_insert(span);
        if span.duration() > known.duration() {
            *known = span;
        }
    }
    let mut longest: Vec<_> = longest.into_iter().collect();
    longest.sort_by_key(|(lock, span)| (Reverse(span.duration()), *lock));
    if longest.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nLongest wait for each lock\n")?;
    for (_, span) in longest.into_iter().take(top) {
        let verb = if span.is_open { "waits" } else { "waited" };
        let waiter = waiter(activity, names, span);
        let bound = if span.is_end_lost { "at least " } else { "" };
        let text = format!("{bound}{}: {waiter} {}", span.duration(), waits_for(activity, names, span, verb));
        writeln!(out, "{}", out.wrapped(&text, 2))?;
        stack(activity, span, out)?;
    }
    Ok(())
}

fn stack(activity: &Activity, span: &Span, out: &mut TextWriter<'_>) -> io::Result<()> {
    let frames = span.stack.and_then(|stack| activity.stacks.get(stack as usize)).map_or(&[][..], Vec::as_slice);
    let room = out.columns().saturating_sub(4);
    for frame in frames.iter().take(MAX_FRAMES) {
        writeln!(out, "    {}", format::shortened_name(&escape::visible(frame), room))?;
    }
    match frames.len().saturating_sub(MAX_FRAMES) {
        0 => Ok(()),
        others => writeln!(out, "    {}", number::counted(others as u64, "more frame", "more frames")),
    }
}

fn waiter(activity: &Activity, names: &ActivityNames<'_>, span: &Span) -> String {
    let thread = &activity.threads[span.thread as usize];
    names.any_thread(thread.pid, thread.tid)
}

/// Returns `waits for table, held by worker-2 (4721)`. Without a holder, names the thread that ended the wait.
fn waits_for(activity: &Activity, names: &ActivityNames<'_>, span: &Span, verb: &str) -> String {
    let pid = activity.threads[span.thread as usize].pid;
    if let Some(joined) = span.holder.filter(|_| activity.wait_class(span) == WaitClass::Join) {
        return format!("{verb} for the exit of {}", names.any_thread(pid, joined));
    }
    let lock: Option<&LockRow> = span.lock.and_then(|lock| activity.locks.get(lock as usize));
    let lock = lock.map_or_else(|| String::from("a lock"), |lock| names.any_lock(lock));
    let lock = format::shortened(&lock, NAME_CHARACTERS);
    match (span.holder, span.waker) {
        (Some(holder), _) => format!("{verb} for {lock}, held by {}", names.any_thread(pid, holder)),
        (None, Some(waker)) => format!("{verb} for {lock}, released by {}", names.any_thread(pid, waker)),
        (None, None) => format!("{verb} for {lock}"),
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{AbsAddr, ActiveThread, Comm, LockSums, Nanoseconds, Pid, SpanKind, Tid};

    use super::*;
    use crate::table::COLUMNS;

    const PID: Pid = Pid(7);

    fn thread(tid: u32) -> ActiveThread {
        let name = Comm::from(format!("worker-{tid}"));
        ActiveThread { pid: PID, tid: Tid(tid), process: Comm::from("server"), name, start: None, end: None }
    }

    fn lock(address: u64, place: Option<u32>, class: WaitClass) -> LockRow {
        let (name, joined, sums) = (None, None, LockSums::default());
        LockRow { pid: PID, address: AbsAddr(address), name, place, class, joined, sums }
    }

    /// Returns a wait of the thread with this index for the lock of the same index.
    fn wait(thread: u32, holder: Option<u32>, end: u64) -> Span {
        let (begin, end) = (Nanoseconds(0), Nanoseconds(end));
        let (lock, holder) = (Some(thread), holder.map(Tid));
        Span { thread, kind: SpanKind::FutexWait, begin, end, is_open: true, lock, holder, ..Span::default() }
    }

    fn activity(spans: Vec<Span>) -> Activity {
        Activity {
            names: ["futex", "join", "server:table"].map(String::from).to_vec(),
            threads: (1..=3).map(thread).collect(),
            locks: vec![
                lock(0x10, Some(2), WaitClass::Lock),
                lock(0x20, None, WaitClass::Join),
                lock(0x30, None, WaitClass::Idle),
            ],
            stacks: vec![vec![String::from("pthread_mutex_lock"), String::from("main")]],
            spans,
            ..Activity::default()
        }
    }

    fn written(
        write: impl FnOnce(&ActivityNames<'_>, &mut TextWriter<'_>) -> io::Result<()>,
        activity: &Activity,
    ) -> String {
        let mut out = Vec::new();
        write(&ActivityNames::new(activity), &mut TextWriter::new(&mut out, COLUMNS)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn deadlocks_name_each_thread_and_lock() {
        let join = Span { name: 1, ..wait(1, Some(1), 50) };
        let activity = activity(vec![wait(0, Some(2), 50), join, wait(2, Some(9), 50)]);
        let text = written(|names, out| deadlocks(&activity, names, out), &activity);
        let expected = "\nDeadlock: worker-1 (1) waits for server:table, held by worker-2 (2), which waits for \
                        the exit of\nworker-1 (1).\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn longest_waits_name_the_holder_or_the_waker() {
        let ended = Span { is_open: false, waker: Some(Tid(9)), stack: Some(0), ..wait(0, None, 70) };
        let idle = wait(2, None, 90);
        let activity = activity(vec![wait(0, Some(2), 50), ended, idle]);
        let text = written(|names, out| longest(&activity, names, 5, out), &activity);
        let expected = "\nLongest wait for each lock\n\n  70 ns: worker-1 (1) waited for server:table, released by \
                        thread 9\n    pthread_mutex_lock\n    main\n";
        assert_eq!(text, expected);
    }
}

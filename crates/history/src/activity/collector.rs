//! Sum of the activity of a run, in bounded memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use memtrace_model::{
    ActiveThread, Activity, ActivityChanges, ActivityEvent, CallSums, Comm, LeftOut, LockIdentity, LockRow, LockSums,
    Nanoseconds, Pid, Span, SpanKind, SpanRow, SpanSums, Tid, WaitClass,
};
use rustc_hash::FxHashSet;

/// Adds up changes of activity. If there are too many spans, the longest are kept. So each span that contains a kept
/// span is kept too.
#[derive(Clone, Debug, Default)]
pub struct ActivityCollector {
    names: BTreeMap<u32, String>,
    threads: BTreeMap<u32, ActiveThread>,
    locks: BTreeMap<u32, LockIdentity>,
    spans: Vec<Span>,
    events: Vec<ActivityEvent>,
    totals: BTreeMap<(SpanKind, u32), SpanSums>,
    lock_totals: BTreeMap<u32, LockSums>,
    /// Spans shorter than this are left out when they are added.
    shortest: Nanoseconds,
    left_out: LeftOut,
}

impl ActivityCollector {
    /// Maximum number of spans.
    pub(crate) const MAX_SPANS: usize = 200_000;

    /// If there are more spans than this, the shortest are left out until [`Self::MAX_SPANS`] remain. The limit is
    /// higher than that number, because the selection reads all spans and must be rare.
    const FULL: usize = Self::MAX_SPANS / 8 * 9;

    /// Maximum number of events. Later events are left out.
    pub(crate) const MAX_EVENTS: usize = 50_000;

    /// Adds changes.
    pub fn add(&mut self, changes: ActivityChanges) {
        let ActivityChanges { names, threads, locks, stacks: _, spans, events, totals, lock_totals } = changes;
        self.names.extend(names);
        self.threads.extend(threads);
        self.locks.extend(locks);
        for (key, sums) in totals {
            *self.totals.entry(key).or_default() += sums;
        }
        for (lock, sums) in lock_totals {
            *self.lock_totals.entry(lock).or_default() += sums;
        }
        let mut has_left_out = false;
        for span in spans {
            if self.is_left_out(&span) {
                self.left_out.spans += 1;
            } else {
                self.spans.push(span);
            }
            if self.spans.len() > Self::FULL {
                has_left_out |= self.leave_out_shortest();
            }
        }
        let free = Self::MAX_EVENTS - self.events.len();
        self.left_out.events += events.len().saturating_sub(free) as u64;
        self.events.extend(events.into_iter().take(free));
        // Threads are forgotten only here, because later spans and the events of these changes refer to threads too.
        if has_left_out {
            self.forget_threads();
        }
    }

    /// Adds the numbers of spans and events that were left out before.
    pub(crate) fn add_left_out(&mut self, left_out: LeftOut) {
        self.left_out += left_out;
    }

    /// Returns the activity. `calls`: calls of allocator functions, by the id of the function's name. `stacks`:
    /// names of the functions in each stack, by the id of the stack. `counts_bytes`: true if the bytes that threads
    /// allocate are known.
    #[must_use]
    pub fn finish(
        mut self,
        calls: BTreeMap<u32, CallSums>,
        stacks: BTreeMap<u32, Vec<String>>,
        counts_bytes: bool,
    ) -> Activity {
        if self.leave_out_shortest() {
            self.forget_threads();
        }
        let Self { mut names, threads, locks, spans, events, totals, lock_totals, left_out, .. } = self;
        let stacks = list(stacks);
        let futexes = FutexFacts::of(&spans, &names, &stacks);
        let arena = names.keys().next_back().map_or(0, |last| last + 1);
        if !futexes.arenas.is_empty() {
            names.insert(arena, WaitClass::ARENA.to_owned());
        }
        // The name of a process is the name of its first thread. An exec changes this name.
        let first = threads.values().filter(|thread| thread.tid.0 == thread.pid.0 && thread.name != Comm::default());
        let processes: BTreeMap<Pid, Comm> = first.map(|thread| (thread.pid, thread.name.clone())).collect();
        let named = |(number, thread): (u32, ActiveThread)| {
            let known = processes.get(&thread.pid).cloned().unwrap_or(thread.process);
            let process = if known == Comm::default() { thread.name.clone() } else { known };
            (number, ActiveThread { process, ..thread })
        };
        let mut rows: Vec<(u32, ActiveThread)> = threads.into_iter().map(named).collect();
        rows.sort_by_key(|(_, thread)| (thread.pid, thread.start, thread.tid));
        let numbers = places(rows.iter().map(|(number, _)| *number));
        let place = |number: u32| numbers.get(&number).copied().unwrap_or_default();
        let mut of_locks: Vec<(u32, LockRow)> = locks
            .into_iter()
            .map(|(number, lock)| {
                let LockIdentity { pid, address, name, place } = lock;
                let place = place.or_else(|| futexes.arenas.contains(&number).then_some(arena));
                let (class, joined) = (futexes.class(number), futexes.joined(number));
                let sums = lock_totals.get(&number).copied().unwrap_or_default();
                (number, LockRow { pid, address, name, place, class, joined, sums })
            })
            .collect();
        add_waiters_of_futexes(&mut of_locks, &spans);
        of_locks.sort_by_key(|(number, lock)| (Reverse(lock.sums.wait_time), *number));
        let lock_places = places(of_locks.iter().map(|(number, _)| *number));
        // The frames of a stack can be lost.
        let has_frames = |stack: &u32| stacks.get(*stack as usize).is_some_and(|frames| !frames.is_empty());
        // If nested spans have the same begin and end, the outer span was added last.
        let mut spans: Vec<(usize, Span)> = spans
            .into_iter()
            .map(|span| Span {
                thread: place(span.thread),
                lock: span.lock.and_then(|lock| lock_places.get(&lock).copied()),
                stack: span.stack.filter(has_frames),
                ..span
            })
            .enumerate()
            .collect();
        spans.sort_by_key(|(order, span)| (span.thread, span.begin, Reverse(span.end), Reverse(*order)));
        let mut events: Vec<_> =
            events.into_iter().map(|event| ActivityEvent { thread: place(event.thread), ..event }).collect();
        events.sort_by_key(|event| event.at);
        let mut totals: Vec<_> = totals.into_iter().map(|((kind, name), sums)| SpanRow { kind, name, sums }).collect();
        totals.sort_by_key(|row| (row.kind, Reverse(row.sums.time), row.name));
        let mut calls: Vec<_> = calls.into_iter().collect();
        calls.sort_by_key(|(name, sums)| (Reverse(sums.time), *name));
        Activity {
            names: list(names),
            threads: rows.into_iter().map(|(_, thread)| thread).collect(),
            spans: spans.into_iter().map(|(_, span)| span).collect(),
            events,
            locks: of_locks.into_iter().map(|(_, lock)| lock).collect(),
            totals,
            calls,
            stacks,
            left_out,
            counts_bytes,
        }
    }

    fn is_left_out(&self, span: &Span) -> bool {
        !span.is_open && span.duration() < self.shortest
    }

    /// Leaves out the shortest spans, so that at most [`Self::MAX_SPANS`] remain. Open spans remain: the numbers of threads
    /// and of nested spans bound their number. Returns true if it leaves out any.
    fn leave_out_shortest(&mut self) -> bool {
        let mut durations: Vec<_> = self.spans.iter().filter(|span| !span.is_open).map(Span::duration).collect();
        let most = Self::MAX_SPANS.saturating_sub(self.spans.len() - durations.len());
        let excess = durations.len().saturating_sub(most);
        let Some(last) = excess.checked_sub(1) else { return false };
        let (shorter, &mut longest, _) = durations.select_nth_unstable(last);
        // If spans have equal durations, the first ones are left out, because an inner span precedes the outer one.
        let mut equal = excess - shorter.iter().filter(|duration| **duration < longest).count();
        self.spans.retain(|span| {
            let is_equal = !span.is_open && span.duration() == longest && equal > 0;
            equal -= usize::from(is_equal);
            !is_equal && (span.is_open || span.duration() >= longest)
        });
        self.shortest = longest;
        self.left_out.spans += excess as u64;
        self.left_out.shorter_than = self.left_out.shorter_than.max(Nanoseconds(longest.0.saturating_add(1)));
        true
    }

    /// Removes the ended threads without spans and events.
    fn forget_threads(&mut self) {
        let spans = self.spans.iter().map(|span| span.thread);
        let used: FxHashSet<u32> = spans.chain(self.events.iter().map(|event| event.thread)).collect();
        self.threads.retain(|number, thread| thread.end.is_none() || used.contains(number));
    }
}

/// Facts about each futex, by its number. They are derived from the kept waits.
#[derive(Default)]
struct FutexFacts {
    /// Waiting time by class.
    times: BTreeMap<u32, BTreeMap<WaitClass, u64>>,
    /// Joined threads.
    joined: BTreeMap<u32, BTreeSet<Tid>>,
    /// Futexes of glibc's allocator.
    arenas: BTreeSet<u32>,
}

impl FutexFacts {
    fn of(spans: &[Span], names: &BTreeMap<u32, String>, stacks: &[Vec<String>]) -> Self {
        let mut facts = Self::default();
        for span in spans.iter().filter(|span| span.kind == SpanKind::FutexWait) {
            let Some(lock) = span.lock else { continue };
            let name = names.get(&span.name).map_or("", String::as_str);
            let stack = span.stack.and_then(|stack| stacks.get(stack as usize)).map_or(&[][..], Vec::as_slice);
            let class = WaitClass::of_futex_wait(name, stack).unwrap_or_default();
            // A wait without a duration counts too.
            *facts.times.entry(lock).or_default().entry(class).or_default() += span.duration().0.max(1);
            if class == WaitClass::Join {
                facts.joined.entry(lock).or_default().extend(span.holder.or(span.waker));
            }
            if WaitClass::is_of_arena(stack) {
                facts.arenas.insert(lock);
            }
        }
        facts
    }

    /// Returns the class with the most waiting time.
    fn class(&self, lock: u32) -> WaitClass {
        let times = self.times.get(&lock).into_iter().flatten();
        times.max_by_key(|(class, time)| (**time, Reverse(**class))).map_or(WaitClass::default(), |(class, _)| *class)
    }

    /// Returns the joined thread, if there is only one.
    fn joined(&self, lock: u32) -> Option<Tid> {
        let joined = self.joined.get(&lock)?;
        joined.first().copied().filter(|_| joined.len() == 1)
    }
}

/// Returns the position of each row number in `numbers`.
fn places(numbers: impl Iterator<Item = u32>) -> BTreeMap<u32, u32> {
    numbers.zip(0..).collect()
}

/// Returns the rows ordered by number. Missing rows have the default value.
fn list<T: Clone + Default>(rows: BTreeMap<u32, T>) -> Vec<T> {
    let length = rows.keys().next_back().map_or(0, |last| *last as usize + 1);
    let mut all = vec![T::default(); length];
    rows.into_iter().for_each(|(number, row)| all[number as usize] = row);
    all
}

/// Sets the maximum number of threads that waited for each futex at a time, according to the kept spans. A wait
/// for a futex is known only when it has ended.
fn add_waiters_of_futexes(locks: &mut [(u32, LockRow)], spans: &[Span]) {
    let mut steps: BTreeMap<u32, Vec<(Nanoseconds, i64)>> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.kind == SpanKind::FutexWait) {
        if let Some(lock) = span.lock {
            steps.entry(lock).or_default().extend([(span.begin, 1), (span.end, -1)]);
        }
    }
    for (number, lock) in locks.iter_mut() {
        let Some(mut steps) = steps.remove(number) else { continue };
        // If ends and begins have the same time, the ends come first.
        steps.sort_unstable();
        let mut waiters = 0;
        for (_, step) in steps {
            waiters += step;
            lock.sums.most_waiters = lock.sums.most_waiters.max(u64::try_from(waiters).unwrap_or_default());
        }
    }
}

//! Combines the steps of threads, such as the begin and the end of a call, into spans.

use std::collections::BTreeMap;

use memtrace_model::{
    AbsAddr, ActivityChanges, ActivityEvent, Bytes, COUNTED_SITES, Comm, EventValue, FutexUse, LockSums, LossReason,
    Losses, Nanoseconds, Pid, Span, SpanCounts, SpanKind, SpanLabel, SpanSums, StackId, StepKind, StepSequence,
    ThreadStep, Tid, UNTIL_TAIL_CALL, WaitClass,
};
use rustc_hash::FxHashMap;

use super::locks::{Hold, Locks};
use super::names::Names;
use super::threads::{NO_FRAME, OpenKey, OpenSpan, ThreadState, Threads};

/// Maximum number of distinct stacks of waits.
const MAX_STACKS: usize = 1 << 13;

/// Name that reports show instead of an unreadable name.
const UNREADABLE: &str = "[unreadable]";

/// Name of the totals of spans with unknown names: the names are in lost records.
const LOST: &str = "[lost record]";

/// A function or user probe that begins spans or records events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanSite {
    /// Name of the function; `None` for tasks, which have names of their own.
    pub name: Option<String>,
    /// Label of the spans of this site.
    pub label: SiteLabel,
}

/// Label of the spans of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SiteLabel {
    /// The spans have no label.
    #[default]
    None,
    /// The value of an argument.
    Number,
    /// The string at the address in an argument.
    Text,
}

/// Combines the steps of threads into spans. The steps of one thread must be in order.
#[derive(Debug)]
pub struct ActivityBuilder {
    /// Start of tracing, by the clock of the steps.
    start: Nanoseconds,
    sites: Vec<SpanSite>,
    /// Names of allocator functions.
    functions: Vec<String>,
    names: Names,
    threads: Threads,
    locks: Locks,
    stacks: FxHashMap<StackId, u32>,
    changes: ActivityChanges,
    /// Spans with a record of their begin.
    begun: SpanCounts,
    losses: Losses,
}

/// A step without its kind.
#[derive(Clone, Copy)]
struct Moment {
    pid: Pid,
    tid: Tid,
    at: Nanoseconds,
    cpu: Option<Nanoseconds>,
    allocated: Option<Bytes>,
}

impl Moment {
    /// Returns a moment of a thread with unknown usage.
    const fn without_usage(pid: Pid, tid: Tid, at: Nanoseconds) -> Self {
        Self { pid, tid, at, cpu: None, allocated: None }
    }
}

/// End of a span.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// A step shows the end.
    Known,
    /// The span had not ended at the end of the trace.
    Open,
    /// The record of the end may be lost. The end is a lower bound.
    Lost,
    /// The function jumped to another function, which returned to the caller. The span excludes that function.
    TailCall,
}

impl ActivityBuilder {
    /// Returns a builder. The site of a step is an index of `sites`.
    #[must_use]
    pub fn new(sites: Vec<SpanSite>) -> Self {
        Self {
            start: Nanoseconds(0),
            sites,
            functions: Vec::new(),
            names: Names::default(),
            threads: Threads::default(),
            locks: Locks::default(),
            stacks: FxHashMap::default(),
            changes: ActivityChanges::default(),
            begun: SpanCounts::default(),
            losses: Losses::default(),
        }
    }

    /// Sets the start of tracing, by the clock of the steps.
    pub const fn set_start(&mut self, start: Nanoseconds) {
        self.start = start;
    }

    /// Sets the names of allocator functions. A step of an allocator call has the index of its function.
    pub fn set_functions(&mut self, functions: Vec<String>) {
        self.functions = functions;
    }

    /// Returns the id of the name of an allocator function. `function`: index in the list of
    /// [`Self::set_functions`].
    pub fn name_of_function(&mut self, function: u32) -> u32 {
        let name = self.functions.get(function as usize).map_or("[other functions]", String::as_str);
        self.names.number(name)
    }

    /// Adds a step.
    pub fn add(&mut self, step: ThreadStep) {
        let ThreadStep { pid, tid, at, cpu, allocated, sequence, kind } = step;
        let moment = Moment { pid, tid, at: self.since_start(at), cpu, allocated };
        self.count_begin(&kind);
        if matches!(kind, StepKind::Start) {
            self.end_predecessor(pid, tid);
        }
        if self.threads.get(pid, tid).is_none() {
            self.losses.add(LossReason::ActiveThreadsFull, 1);
            return;
        }
        self.check_sequence(moment, sequence, &kind);
        match kind {
            StepKind::Begin { site, value, text, frame } => {
                let key = self.key(site, frame);
                self.begin(moment, key, self.site(site), value, &text);
            }
            StepKind::End { site, frame } => self.end(moment, self.key(site, frame), End::Known),
            StepKind::TailCall { site, frame } => self.end(moment, self.key(site, frame), End::TailCall),
            StepKind::LockWait { lock, name } => self.wait(moment, lock, &name),
            StepKind::LockAcquire { lock } => self.acquire(moment, lock),
            StepKind::LockRelease { lock } => self.release(moment, lock, End::Known),
            StepKind::Number { name, value } => self.event(moment, &name, EventValue::Number(value)),
            StepKind::Text { name, text } => {
                let text = self.names.number(&text);
                self.event(moment, &name, EventValue::Text(text));
            }
            StepKind::Call { site, value } => self.call(moment, site, value),
            StepKind::FutexWait { address, duration, holder, waker, usage, is_open, stack } => {
                let name = match usage {
                    FutexUse::Join => WaitClass::JOIN,
                    FutexUse::Event => WaitClass::EVENT,
                    FutexUse::Unknown | FutexUse::MaybeJoin => "futex",
                };
                let lock = self.locks.futex(pid, address);
                let (name, stack) = (self.names.number(name), self.stack(pid, stack));
                let span = Span { name, lock, holder, waker, stack, is_open, ..Span::default() };
                self.complete(moment, SpanKind::FutexWait, duration, span);
            }
            StepKind::Stall { work, duration } => {
                let name = self.names.number(work.name());
                self.complete(moment, SpanKind::Stall, duration, Span { name, ..Span::default() });
            }
            StepKind::AllocatorCall { function, size, duration } => {
                let (name, label) = (self.name_of_function(function), Some(SpanLabel::Number(size.0)));
                let moment = Moment { allocated: None, ..moment };
                self.complete(moment, SpanKind::AllocatorCall, duration, Span { name, label, ..Span::default() });
            }
            StepKind::Start => self.threads.change(pid, tid, |row| row.start = Some(moment.at)),
            StepKind::Exit { name } => self.exit(moment, name),
        }
    }

    /// Removes and returns the new threads, which have no names yet: row number, pid and tid.
    pub fn take_unnamed(&mut self) -> Vec<(u32, Pid, Tid)> {
        self.threads.take_unnamed()
    }

    /// Returns the running threads with spans or events: row number, pid and tid.
    #[must_use]
    pub fn running(&self) -> Vec<(u32, Pid, Tid)> {
        self.threads.running()
    }

    /// Names a thread of [`Self::take_unnamed`] or [`Self::running`].
    pub fn name_thread(&mut self, (number, pid, tid): (u32, Pid, Tid), process: &Comm, name: &Comm) {
        self.threads.name(number, pid, tid, process, name);
    }

    /// Sets the place of a futex: the name of the variable that contains it.
    pub fn set_place(&mut self, pid: Pid, address: AbsAddr, place: &str) {
        let place = self.names.number(place);
        self.locks.set_place(pid, address, place);
    }

    /// Returns the changes since the last call.
    pub fn take_changes(&mut self) -> ActivityChanges {
        let mut changes = std::mem::take(&mut self.changes);
        let spans = std::mem::take(&mut changes.spans);
        changes.count(&spans);
        changes.spans = spans;
        changes.names = self.names.take_new();
        changes.threads = self.threads.take_changed();
        changes.locks = self.locks.take_new();
        changes
    }

    /// Ends the spans of threads that have lost their last records. Call it after the last step, before [`Self::finish`].
    /// `next`: sequence number of the next step of each thread that has not exited. A thread that is not in `next` has
    /// exited. If the builder still has it, the record of its exit is lost.
    pub fn end_lost_threads(&mut self, next: &BTreeMap<(Pid, Tid), u32>) {
        for (pid, tid, last) in self.threads.last_steps() {
            if next.get(&(pid, tid)) != Some(&last.next) {
                self.end_lost(pid, tid, last.at, last.at);
            }
        }
    }

    /// Adds the spans with lost records to the totals. `begun`: numbers of all spans that have begun.
    pub fn count_missing(&mut self, begun: &SpanCounts) {
        for (&site, &count) in &begun.by_site {
            let missing = count.saturating_sub(self.begun.by_site.get(&site).copied().unwrap_or(0));
            let is_shared = site + 1 == COUNTED_SITES && self.sites.len() > COUNTED_SITES as usize;
            match self.site(site).and_then(|site| site.name) {
                Some(_) if is_shared => self.add_missing(SpanKind::Function, LOST, missing),
                Some(name) => self.add_missing(SpanKind::Function, &name, missing),
                None => self.add_missing(SpanKind::Task, LOST, missing),
            }
        }
        for (&kind, &count) in &begun.by_kind {
            let missing = count.saturating_sub(self.begun.by_kind.get(&kind).copied().unwrap_or(0));
            self.add_missing(kind, LOST, missing);
        }
    }

    fn add_missing(&mut self, kind: SpanKind, name: &str, missing: u64) {
        if missing > 0 {
            let key = (kind, self.names.number(name));
            *self.changes.totals.entry(key).or_default() += SpanSums { missing, ..SpanSums::default() };
        }
    }

    /// Counts a step that begins a span, or that is the only record of a span.
    fn count_begin(&mut self, kind: &StepKind) {
        let kind = match kind {
            StepKind::Begin { site, .. } => {
                *self.begun.by_site.entry((*site).min(COUNTED_SITES - 1)).or_default() += 1;
                return;
            }
            StepKind::LockWait { .. } => SpanKind::LockWait,
            StepKind::LockAcquire { .. } => SpanKind::LockHold,
            // A wait that has not ended has no record.
            StepKind::FutexWait { is_open: false, .. } => SpanKind::FutexWait,
            StepKind::Stall { .. } => SpanKind::Stall,
            StepKind::AllocatorCall { .. } => SpanKind::AllocatorCall,
            _ => return,
        };
        *self.begun.by_kind.entry(kind).or_default() += 1;
    }

    /// Ends all spans at the end of the trace.
    pub fn finish(&mut self, end: Nanoseconds) {
        let at = self.since_start(end);
        let moment = |pid, tid| Moment::without_usage(pid, tid, at);
        let mut open = Vec::new();
        for (pid, tid) in self.threads.with_open_spans() {
            for mut span in self.threads.get(pid, tid).map(ThreadState::end_all).unwrap_or_default() {
                // The lock may have changed hands since the begin of the wait.
                if let OpenKey::Lock(address) = span.key {
                    span.holder = self.locks.holder(pid, address, tid, span.holder);
                }
                open.push((moment(pid, tid), span));
            }
        }
        for (pid, address, tid) in self.locks.held() {
            self.release(moment(pid, tid), address, End::Open);
        }
        open.into_iter().for_each(|(moment, span)| self.close(moment, span, End::Open));
    }

    /// Returns the losses so far.
    #[must_use]
    pub const fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Compares the sequence number of a step with the last sequence number of the thread. If records between these steps
    /// were lost, the spans of the thread end.
    fn check_sequence(&mut self, moment: Moment, sequence: Option<StepSequence>, kind: &StepKind) {
        let Moment { pid, tid, at, .. } = moment;
        let lost_after = self.threads.get(pid, tid).zip(sequence).and_then(|(thread, step)| thread.take_step(at, step));
        let Some(last) = lost_after else { return };
        self.end_lost(pid, tid, last.at, Nanoseconds(at.0.saturating_sub(duration(kind).0)));
    }

    /// Ends the spans of an exited thread, because the record of its exit is lost: a new thread has the same TID.
    fn end_predecessor(&mut self, pid: Pid, tid: Tid) {
        if let Some(last) = self.threads.last_step(pid, tid) {
            self.end_lost(pid, tid, last.at, last.at);
            self.threads.remove(pid, tid);
        }
    }

    /// Ends the spans and holds of a thread, because the records of their ends may be lost. `last`: time of the last step
    /// before the loss. `next`: begin of the step after the loss, or `last` if there is none.
    fn end_lost(&mut self, pid: Pid, tid: Tid, last: Nanoseconds, next: Nanoseconds) {
        for span in self.threads.get(pid, tid).map(ThreadState::end_all).unwrap_or_default() {
            // The step after the loss can be a call of an allocator that contains the last step. A span that began
            // before this call ends at the begin of the call, so that the spans of the thread nest.
            let end = if span.begin <= next { last.min(next) } else { last };
            self.close(Moment::without_usage(pid, tid, end), span, End::Lost);
        }
        for address in self.locks.held_by(pid, tid) {
            self.release(Moment::without_usage(pid, tid, last), address, End::Lost);
        }
    }

    fn since_start(&self, at: Nanoseconds) -> Nanoseconds {
        Nanoseconds(at.0.saturating_sub(self.start.0))
    }

    fn site(&self, site: u32) -> Option<SpanSite> {
        self.sites.get(site as usize).cloned()
    }

    /// Returns the key of a span. The key of a task has no frame.
    fn key(&self, site: u32, frame: AbsAddr) -> OpenKey {
        let is_function = self.sites.get(site as usize).is_some_and(|site| site.name.is_some());
        OpenKey::Span(site, if is_function { frame } else { NO_FRAME })
    }

    fn begin(&mut self, moment: Moment, key: OpenKey, site: Option<SpanSite>, value: u64, text: &str) {
        let readable = if text.is_empty() { UNREADABLE } else { text };
        let (name, label) = match site {
            Some(SpanSite { name: Some(name), label }) => {
                let label = match label {
                    SiteLabel::None => None,
                    SiteLabel::Number => Some(SpanLabel::Number(value)),
                    SiteLabel::Text => Some(SpanLabel::Text(self.names.number(readable))),
                };
                (self.names.number(&name), label)
            }
            Some(SpanSite { name: None, .. }) | None => (self.names.number(readable), None),
        };
        let Moment { at: begin, cpu, allocated, .. } = moment;
        let span = OpenSpan { key, name, label, begin, cpu, allocated, lock: None, holder: None };
        self.open(moment, span);
    }

    fn open(&mut self, moment: Moment, span: OpenSpan) {
        let left = self.threads.get(moment.pid, moment.tid).map(|thread| thread.end_left(span.key));
        left.into_iter().flatten().for_each(|span| self.close(moment, span, End::Known));
        let thread = self.threads.get(moment.pid, moment.tid);
        if !thread.is_some_and(|thread| thread.begin(span)) {
            self.losses.add(LossReason::SpanTooDeep, 1);
        }
    }

    /// Ends the last span with this key, and the spans inside it. `end`: end of the span with this key.
    fn end(&mut self, moment: Moment, key: OpenKey, end: End) {
        let ended = self.threads.get(moment.pid, moment.tid).map(|thread| thread.end(key)).unwrap_or_default();
        for span in ended {
            // Functions that are connected by jumps end at the same exit. The order of their probes there is not known.
            let end = if span.key.has_frame_of(key) { end } else { End::Known };
            self.close(moment, span, end);
        }
    }

    fn wait(&mut self, moment: Moment, address: AbsAddr, name: &str) {
        let name = self.names.number(if name.is_empty() { UNREADABLE } else { name });
        let lock = self.locks.wait(moment.pid, address, name);
        if let Some(number) = lock.number {
            let sums = LockSums { most_waiters: lock.waiters, ..LockSums::default() };
            *self.changes.lock_totals.entry(number).or_default() += sums;
        }
        let Moment { at: begin, cpu, allocated, .. } = moment;
        let key = OpenKey::Lock(address);
        let holder = lock.holder.filter(|holder| *holder != moment.tid);
        let span = OpenSpan { key, name: lock.name, label: None, begin, cpu, allocated, lock: lock.number, holder };
        self.open(moment, span);
    }

    fn acquire(&mut self, moment: Moment, address: AbsAddr) {
        self.end(moment, OpenKey::Lock(address), End::Known);
        let Moment { pid, tid, at: begin, cpu, allocated } = moment;
        self.locks.acquire(pid, address, Hold { tid, begin, cpu, allocated }, &mut self.names);
    }

    fn release(&mut self, moment: Moment, address: AbsAddr, end: End) {
        if let Some((name, lock, hold)) = self.locks.release(moment.pid, address, moment.tid) {
            let Hold { begin, cpu, allocated, .. } = hold;
            let span = Span { kind: SpanKind::LockHold, name, lock, begin, ..Span::default() };
            self.push(moment, span, end, (cpu, allocated));
        }
    }

    fn close(&mut self, moment: Moment, span: OpenSpan, end: End) {
        let OpenSpan { key, mut name, label, begin, cpu, allocated, lock, holder } = span;
        let kind = match key {
            OpenKey::Lock(address) => {
                self.locks.end_wait(moment.pid, address);
                SpanKind::LockWait
            }
            OpenKey::Span(site, _) => match self.sites.get(site as usize) {
                Some(SpanSite { name: Some(function), .. }) => {
                    if end == End::TailCall {
                        name = self.names.number(&format!("{function} {UNTIL_TAIL_CALL}"));
                    }
                    SpanKind::Function
                }
                Some(SpanSite { name: None, .. }) | None => SpanKind::Task,
            },
        };
        let span = Span { kind, name, label, begin, lock, holder, ..Span::default() };
        self.push(moment, span, end, (cpu, allocated));
    }

    /// Adds a span that ends at `moment`. `usage_before`: CPU time and allocated bytes of the thread at the begin of the
    /// span.
    fn push(&mut self, moment: Moment, span: Span, end: End, usage_before: (Option<Nanoseconds>, Option<Bytes>)) {
        let (cpu, allocated) = usage_before;
        let cpu = moment.cpu.zip(cpu).map(|(now, then)| Nanoseconds(now.0.saturating_sub(then.0)));
        let allocated = moment.allocated.zip(allocated).map(|(now, then)| Bytes(now.0.saturating_sub(then.0)));
        let (is_open, is_end_lost) = (end == End::Open, end == End::Lost);
        self.add_span(moment, Span { cpu, allocated, is_open, is_end_lost, ..span });
    }

    /// Adds a span of this duration that ends at `moment`. `moment.cpu`: CPU time within the span.
    fn complete(&mut self, moment: Moment, kind: SpanKind, duration: Nanoseconds, span: Span) {
        let begin = Nanoseconds(moment.at.0.saturating_sub(duration.0));
        // The CPU time is read after the end of the span, so it can exceed the duration.
        let cpu = moment.cpu.map(|cpu| cpu.min(duration));
        self.add_span(moment, Span { kind, begin, cpu, ..span });
    }

    fn add_span(&mut self, moment: Moment, span: Span) {
        let Some(thread) = self.threads.number(moment.pid, moment.tid) else { return };
        let span = Span { thread, end: moment.at, ..span };
        self.changes.spans.push(span);
    }

    fn event(&mut self, moment: Moment, name: &str, value: EventValue) {
        let name = self.names.number(if name.is_empty() { UNREADABLE } else { name });
        if let Some(thread) = self.threads.number(moment.pid, moment.tid) {
            self.changes.events.push(ActivityEvent { thread, at: moment.at, name, value });
        }
    }

    fn call(&mut self, moment: Moment, site: u32, value: u64) {
        let Some(SpanSite { name: Some(name), label }) = self.sites.get(site as usize) else { return };
        let value = match label {
            SiteLabel::None | SiteLabel::Text => EventValue::None,
            SiteLabel::Number => EventValue::Number(value.cast_signed()),
        };
        let name = name.clone();
        self.event(moment, &name, value);
    }

    fn exit(&mut self, moment: Moment, name: Comm) {
        let Moment { pid, tid, at, .. } = moment;
        for address in self.locks.held_by(pid, tid) {
            self.release(moment, address, End::Known);
        }
        let open = self.threads.get(pid, tid).map(ThreadState::end_all);
        open.into_iter().flatten().for_each(|span| self.close(moment, span, End::Known));
        self.threads.change(pid, tid, |row| {
            row.end = Some(at);
            // If the thread has called exec, the step of its exit has no name.
            if name != Comm::default() {
                row.name = name;
            }
        });
        self.threads.remove(pid, tid);
    }

    fn stack(&mut self, pid: Pid, stack: StackId) -> Option<u32> {
        if !stack.has_frames() {
            return None;
        }
        if let Some(&number) = self.stacks.get(&stack) {
            return Some(number);
        }
        if self.stacks.len() >= MAX_STACKS {
            return None;
        }
        let number = self.stacks.len() as u32;
        self.stacks.insert(stack, number);
        self.changes.stacks.push((number, pid, stack));
        Some(number)
    }
}

/// Returns the duration of a step that is the end of a wait, a stall or a call.
const fn duration(kind: &StepKind) -> Nanoseconds {
    match kind {
        StepKind::FutexWait { duration, .. }
        | StepKind::Stall { duration, .. }
        | StepKind::AllocatorCall { duration, .. } => *duration,
        _ => Nanoseconds(0),
    }
}

#[cfg(test)]
mod tests;

//! Threads with activity, and their spans that have not ended.

use std::collections::BTreeMap;

use memtrace_model::{AbsAddr, ActiveThread, Bytes, Comm, Nanoseconds, Pid, SpanLabel, StepSequence, Tid};
use rustc_hash::FxHashMap;

/// Maximum number of threads that run at a time.
const MAX_THREADS: usize = 1 << 14;

/// Maximum number of nested spans and waits of a thread. Deeper ones are left out.
const MAX_DEPTH: usize = 128;

/// Value for the stack pointer in keys of spans that are not calls.
pub(super) const NO_FRAME: AbsAddr = AbsAddr(0);

/// Running threads, and the changes of their rows.
#[derive(Debug, Default)]
pub(super) struct Threads {
    running: FxHashMap<(Pid, Tid), ThreadState>,
    rows: u32,
    changed: BTreeMap<u32, ActiveThread>,
    /// New threads without names.
    unnamed: Vec<(u32, Pid, Tid)>,
}

/// A running thread.
#[derive(Debug)]
pub(super) struct ThreadState {
    /// Row number; `None` if the thread has no span and no event yet.
    number: Option<u32>,
    row: ActiveThread,
    /// Spans and waits that have not ended, outermost first.
    open: Vec<OpenSpan>,
    /// Number of open spans that were left out because they are too deep.
    too_deep: u64,
    /// Last step with a sequence number.
    last: Option<LastStep>,
}

/// Last step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastStep {
    pub(super) at: Nanoseconds,
    /// Sequence number of the next step, unless records are lost.
    pub(super) next: u32,
}

/// A span or a wait that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenSpan {
    pub(super) key: OpenKey,
    pub(super) name: u32,
    pub(super) label: Option<SpanLabel>,
    pub(super) begin: Nanoseconds,
    pub(super) cpu: Option<Nanoseconds>,
    pub(super) allocated: Option<Bytes>,
    pub(super) lock: Option<u32>,
    pub(super) holder: Option<Tid>,
}

/// Key that the begin and the end of a span have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenKey {
    /// Span of a site: index of the site, and the stack pointer at the entry of the function; [`NO_FRAME`] for a
    /// task.
    Span(u32, AbsAddr),
    /// Wait for the lock at this address.
    Lock(AbsAddr),
}

impl OpenKey {
    /// Returns true if this is a call that must have ended when the call `next` begins, because `next` overwrites its
    /// frame. A function that is entered by a jump overwrites no frame: it has the same stack pointer as the function
    /// that jumped.
    fn is_left_before(self, next: Self) -> bool {
        let (Self::Span(site, frame), Self::Span(next_site, next_frame)) = (self, next) else { return false };
        let is_call = frame != NO_FRAME && next_frame != NO_FRAME;
        is_call && (frame < next_frame || frame == next_frame && site == next_site)
    }

    /// Returns true if both keys are calls with the same frame, and thus with the same return address.
    pub(super) fn has_frame_of(self, other: Self) -> bool {
        matches!((self, other), (Self::Span(_, one), Self::Span(_, another)) if one == another)
    }
}

impl Threads {
    /// Returns a thread, and adds it if it is new; `None` if too many threads run.
    pub(super) fn get(&mut self, pid: Pid, tid: Tid) -> Option<&mut ThreadState> {
        if !self.running.contains_key(&(pid, tid)) {
            if self.running.len() >= MAX_THREADS {
                return None;
            }
            let (process, name) = (Comm::default(), Comm::default());
            let row = ActiveThread { pid, tid, process, name, start: None, end: None };
            let state = ThreadState { number: None, row, open: Vec::new(), too_deep: 0, last: None };
            self.running.insert((pid, tid), state);
        }
        self.running.get_mut(&(pid, tid))
    }

    /// Returns the row number of a thread, and adds a row if the thread has none; `None` if too many threads run.
    pub(super) fn number(&mut self, pid: Pid, tid: Tid) -> Option<u32> {
        let next = self.rows;
        let thread = self.get(pid, tid)?;
        if let Some(number) = thread.number {
            return Some(number);
        }
        thread.number = Some(next);
        let row = thread.row.clone();
        self.rows += 1;
        self.changed.insert(next, row);
        self.unnamed.push((next, pid, tid));
        Some(next)
    }

    /// Changes the metadata of a thread, and its row if it has one.
    pub(super) fn change(&mut self, pid: Pid, tid: Tid, change: impl FnOnce(&mut ActiveThread)) {
        if let Some(thread) = self.get(pid, tid) {
            change(&mut thread.row);
            let row = thread.row.clone();
            let number = thread.number;
            self.changed.extend(number.map(|number| (number, row)));
        }
    }

    /// Removes a thread that has exited.
    pub(super) fn remove(&mut self, pid: Pid, tid: Tid) {
        self.running.remove(&(pid, tid));
    }

    /// Removes and returns the threads with new rows, which have no names: row number, pid and tid.
    pub(super) fn take_unnamed(&mut self) -> Vec<(u32, Pid, Tid)> {
        std::mem::take(&mut self.unnamed)
    }

    /// Names the thread with the row `number`. An empty name is unknown and changes nothing. A thread that has
    /// exited keeps the name that it had at its exit.
    pub(super) fn name(&mut self, number: u32, pid: Pid, tid: Tid, process: &Comm, name: &Comm) {
        let set = |row: &mut ActiveThread| {
            if *process != Comm::default() {
                row.process = process.clone();
            }
            if *name != Comm::default() && row.end.is_none() {
                row.name = name.clone();
            }
        };
        if let Some(thread) = self.running.get_mut(&(pid, tid)).filter(|thread| thread.number == Some(number)) {
            set(&mut thread.row);
        }
        match self.running.get(&(pid, tid)).filter(|thread| thread.number == Some(number)) {
            Some(thread) => {
                self.changed.insert(number, thread.row.clone());
            }
            None => self.changed.get_mut(&number).into_iter().for_each(set),
        }
    }

    /// Returns the rows that have changed since the last call, by number.
    pub(super) fn take_changed(&mut self) -> BTreeMap<u32, ActiveThread> {
        std::mem::take(&mut self.changed)
    }

    /// Returns the threads with spans that have not ended, sorted by pid and tid.
    pub(super) fn with_open_spans(&self) -> Vec<(Pid, Tid)> {
        let open = self.running.iter().filter(|(_, thread)| !thread.open.is_empty());
        let mut all: Vec<_> = open.map(|(&thread, _)| thread).collect();
        all.sort_unstable();
        all
    }

    /// Returns the last step of a thread; `None` if the thread or its sequence numbers are not known.
    pub(super) fn last_step(&self, pid: Pid, tid: Tid) -> Option<LastStep> {
        self.running.get(&(pid, tid))?.last
    }

    /// Returns the last steps of the running threads, sorted by pid and tid.
    pub(super) fn last_steps(&self) -> Vec<(Pid, Tid, LastStep)> {
        let last = self.running.iter().filter_map(|(&(pid, tid), thread)| Some((pid, tid, thread.last?)));
        let mut all: Vec<_> = last.collect();
        all.sort_unstable_by_key(|(pid, tid, _)| (*pid, *tid));
        all
    }

    /// Returns the running threads with rows, ordered by number.
    pub(super) fn running(&self) -> Vec<(u32, Pid, Tid)> {
        let mut all: Vec<_> =
            self.running.iter().filter_map(|(&(pid, tid), thread)| Some((thread.number?, pid, tid))).collect();
        all.sort_unstable();
        all
    }
}

impl ThreadState {
    /// Sets the last step. Returns the step before it if records of steps in between were lost.
    pub(super) fn take_step(&mut self, at: Nanoseconds, sequence: StepSequence) -> Option<LastStep> {
        let StepSequence { number, next } = sequence;
        self.last.replace(LastStep { at, next }).filter(|before| before.next != number)
    }

    /// Begins a span. Returns false if too many spans are nested.
    pub(super) fn begin(&mut self, span: OpenSpan) -> bool {
        if self.open.len() >= MAX_DEPTH {
            self.too_deep += 1;
            return false;
        }
        self.open.push(span);
        true
    }

    /// Ends the calls that `longjmp` or an exception has left, and the spans inside them. The begin of the call `key`
    /// shows which calls were left. Returns the ended spans, innermost first.
    pub(super) fn end_left(&mut self, key: OpenKey) -> Vec<OpenSpan> {
        self.end_from(self.open.iter().position(|span| span.key.is_left_before(key)))
    }

    /// Ends the last span with this key. If spans inside it are open, their ends were missed, so they end too.
    /// Returns the ended spans, innermost first. The list is empty if the span began before the trace.
    pub(super) fn end(&mut self, key: OpenKey) -> Vec<OpenSpan> {
        let index = self.open.iter().rposition(|span| span.key == key);
        // The tasks of a site have equal keys, so this may be the end of a task that was left out because it is too deep.
        let is_too_deep = match key {
            OpenKey::Span(_, frame) => index.is_none() || frame == NO_FRAME,
            OpenKey::Lock(_) => false,
        };
        if self.too_deep > 0 && is_too_deep {
            self.too_deep -= 1;
            return Vec::new();
        }
        self.end_from(index)
    }

    fn end_from(&mut self, index: Option<usize>) -> Vec<OpenSpan> {
        let Some(index) = index else { return Vec::new() };
        // All spans that are too deep are inside the last open span.
        self.too_deep = 0;
        self.open.drain(index..).rev().collect()
    }

    /// Ends all spans. Returns them, innermost first.
    pub(super) fn end_all(&mut self) -> Vec<OpenSpan> {
        self.too_deep = 0;
        self.open.drain(..).rev().collect()
    }
}

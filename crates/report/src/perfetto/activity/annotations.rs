//! Arguments of spans and events.

use memtrace_model::{Activity, ActivityEvent, EventValue, Pid, Span, SpanKind, SpanLabel, Tid};

use super::argument_names::ArgumentName;
use super::texts::Texts;
use crate::activity_names::ActivityNames;
use crate::perfetto::messages::DebugAnnotation;
use crate::perfetto::messages::debug_annotation::Value;

/// Makes the arguments of spans and events.
pub(super) struct Annotations<'a> {
    activity: &'a Activity,
    texts: &'a Texts,
    names: &'a ActivityNames<'a>,
}

impl<'a> Annotations<'a> {
    pub(super) const fn new(activity: &'a Activity, texts: &'a Texts, names: &'a ActivityNames<'a>) -> Self {
        Self { activity, texts, names }
    }

    /// Returns the arguments of a span.
    pub(super) fn of_span(&self, span: &Span) -> Vec<DebugAnnotation> {
        let thread = &self.activity.threads[span.thread as usize];
        let (lock, holder) = match span.kind {
            // A hold is on the track of its lock, so it needs the thread as an argument, but not the lock.
            SpanKind::LockHold => (None, Some(thread.tid)),
            _ => (span.lock, span.holder),
        };
        let label = span.label.map(|label| match (label, span.kind) {
            (SpanLabel::Number(bytes), SpanKind::AllocatorCall) => (ArgumentName::Size, Value::Unsigned(bytes)),
            (SpanLabel::Number(number), _) => (ArgumentName::Label, Value::Unsigned(number)),
            (SpanLabel::Text(text), _) => (ArgumentName::Label, Value::Interned(self.texts.value(text))),
        });
        let address = |lock: u32| Value::Text(self.activity.locks[lock as usize].address.to_string());
        [
            span.cpu.map(|cpu| (ArgumentName::CpuTime, Value::Unsigned(cpu.0))),
            span.allocated.map(|bytes| (ArgumentName::Allocated, Value::Unsigned(bytes.0))),
            label,
            lock.map(|lock| (ArgumentName::Lock, address(lock))),
            holder.map(|tid| (ArgumentName::Holder, Value::Text(self.title_of(thread.pid, tid)))),
            span.waker.map(|tid| (ArgumentName::Waker, Value::Text(self.title_of(thread.pid, tid)))),
            span.stack.map(|stack| (ArgumentName::Stack, Value::Interned(Texts::stack(stack)))),
            span.is_open.then_some((ArgumentName::NotEnded, Value::Bool(true))),
            span.is_end_lost.then_some((ArgumentName::EndLost, Value::Bool(true))),
        ]
        .into_iter()
        .flatten()
        .map(argument)
        .collect()
    }

    /// Returns the value of an event, if it has one.
    pub(super) fn of_event(&self, event: &ActivityEvent) -> Vec<DebugAnnotation> {
        let value = match event.value {
            EventValue::None => return Vec::new(),
            EventValue::Number(number) => Value::Signed(number),
            EventValue::Text(text) => Value::Interned(self.texts.value(text)),
        };
        vec![argument((ArgumentName::Value, value))]
    }

    /// Returns the title of a thread: `worker-1 (4720)`, or only the TID if the thread has no activity.
    fn title_of(&self, pid: Pid, tid: Tid) -> String {
        self.names.thread(pid, tid).unwrap_or_else(|| tid.0.to_string())
    }
}

fn argument((name, value): (ArgumentName, Value)) -> DebugAnnotation {
    DebugAnnotation { name_iid: Some(name.iid()), name: None, value: Some(value) }
}

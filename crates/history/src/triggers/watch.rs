//! A condition with the state of its subjects.

use std::mem;
use std::ops::Range;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::condition::{Condition, Period};
use super::firing::Firing;
use super::observed::{Observed, SubjectKey};
use super::state::{Room, State};
use super::subject::Subject;
use super::window::Timeline;

/// A condition with the state of its subjects. A subject has no state if its state would equal a new one.
#[derive(Debug)]
pub(super) struct Watch {
    condition: Condition,
    timeline: Timeline,
    states: FxHashMap<SubjectKey, State>,
    values_unknown: u64,
}

impl Watch {
    pub(super) fn new(condition: Condition) -> Self {
        let timeline = Timeline::new(condition.period.map(Period::length));
        Self { condition, timeline, states: FxHashMap::default(), values_unknown: 0 }
    }

    pub(super) const fn subject(&self) -> Subject {
        self.condition.subject
    }

    /// Returns the number of unknown values so far.
    pub(super) const fn values_unknown(&self) -> u64 {
        self.values_unknown
    }

    #[cfg(test)]
    pub(super) fn states(&self) -> usize {
        self.states.len()
    }

    /// Evaluates an interval with all its subjects, and drops the state of other subjects.
    pub(super) fn observe(
        &mut self,
        span: &Range<Duration>,
        subjects: &[Observed<'_>],
        room: &mut Room,
    ) -> Vec<Firing> {
        self.timeline.advance(span);
        let mut earlier = mem::take(&mut self.states);
        let mut firings = Vec::new();
        for subject in subjects {
            let state = earlier.remove(&subject.key());
            firings.extend(self.observe_subject(span, *subject, state, room));
        }
        room.give_back(earlier.len());
        firings
    }

    fn observe_subject(
        &mut self,
        span: &Range<Duration>,
        subject: Observed<'_>,
        earlier: Option<State>,
        room: &mut Room,
    ) -> Option<Firing> {
        let had_state = earlier.is_some();
        let mut state = earlier.unwrap_or_else(|| State::new(span.start));
        let firing = self.evaluate(span, subject, &mut state);
        let needs_state = state.is_needed(&self.condition);
        if needs_state && (had_state || room.take()) {
            self.states.insert(subject.key(), state);
            return firing;
        }
        // Without state, a condition would fire in each interval, so it does not fire at all.
        room.give_back(usize::from(had_state));
        None
    }

    fn evaluate(&mut self, span: &Range<Duration>, subject: Observed<'_>, state: &mut State) -> Option<Firing> {
        let condition = &self.condition;
        let length = span.end.saturating_sub(span.start).as_nanos();
        let Some(value) = (condition.field.read)(subject, u64::try_from(length).unwrap_or(u64::MAX)) else {
            self.values_unknown = self.values_unknown.saturating_add(1);
            return None;
        };
        let value = state.add(condition, &self.timeline, span.end, value)?;
        let firing = || Firing {
            condition: condition.to_string(),
            subject: subject.to_string(),
            pid: subject.process().map(|process| process.pid),
            value: condition.value_text(value),
            limit: condition.limit_text(),
            at: span.end,
        };
        state.fires(condition.is_met(value), span).then(firing)
    }
}

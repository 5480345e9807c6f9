//! State of a condition for one subject.

use std::ops::Range;
use std::time::Duration;

use super::condition::Condition;
use super::window::{Timeline, Window};

/// Time that a condition must be false before it can fire again.
const REARM_TIME: Duration = Duration::from_secs(60);

/// State of a condition for one subject.
#[derive(Debug)]
pub(super) struct State {
    window: Window,
    /// Start of the first interval with this state.
    since: Duration,
    /// Time that the condition has been false since it was last true. `None` if it can fire.
    unmet: Option<Duration>,
}

/// Number of states that can still be added. All conditions share it.
#[derive(Debug)]
pub(super) struct Room {
    free: usize,
    refused: u64,
}

impl State {
    pub(super) fn new(since: Duration) -> Self {
        Self { window: Window::default(), since, unmet: None }
    }

    /// Returns true if the state differs from a new one.
    pub(super) fn is_needed(&self, condition: &Condition) -> bool {
        self.unmet.is_some() || !self.window.is_empty() || condition.needs_whole_period()
    }

    /// Adds the value of an interval. Returns the value to compare with the limit; `None` if a required period is
    /// incomplete.
    pub(super) fn add(&mut self, condition: &Condition, timeline: &Timeline, end: Duration, value: i64) -> Option<i64> {
        if !condition.field.is_sum {
            return Some(value);
        }
        self.window.add(timeline, value);
        let period = condition.period.filter(|_| condition.needs_whole_period());
        let is_complete = period.is_none_or(|period| end.saturating_sub(self.since) >= period.length());
        is_complete.then(|| self.window.sum(timeline))
    }

    /// Updates the state at the end of an interval. `is_met`: true if the value meets the condition. Returns true if
    /// the condition fires.
    pub(super) fn fires(&mut self, is_met: bool, span: &Range<Duration>) -> bool {
        let was_armed = self.unmet.is_none();
        if is_met {
            self.unmet = Some(Duration::ZERO);
        } else {
            // The condition counts as false for the whole interval.
            let unmet = self.unmet.map(|unmet| unmet.saturating_add(span.end.saturating_sub(span.start)));
            self.unmet = unmet.filter(|unmet| *unmet < REARM_TIME);
        }
        is_met && was_armed
    }
}

impl Room {
    pub(super) const fn new(limit: usize) -> Self {
        Self { free: limit, refused: 0 }
    }

    /// Takes the room of one state. If there is none, counts the refusal and returns false.
    pub(super) const fn take(&mut self) -> bool {
        let has_room = self.free > 0;
        self.free -= has_room as usize;
        self.refused = self.refused.saturating_add(!has_room as u64);
        has_room
    }

    pub(super) const fn give_back(&mut self, count: usize) {
        self.free += count;
    }

    /// Returns the number of refusals so far.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }
}

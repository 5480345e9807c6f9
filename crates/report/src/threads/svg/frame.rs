//! Coordinates of the parts of the picture, in pixels.

use std::ops::Range;
use std::time::Duration;

use crate::threads::timeline::ThreadTimeline;

/// Width of the picture.
pub(super) const WIDTH: u32 = 1200;
/// Left end of the plots.
pub(super) const LEFT: f64 = 84.0;
/// Right end of the plots.
pub(super) const RIGHT: f64 = 860.0;
/// Left end of the legends.
pub(super) const LEGEND: f64 = 878.0;
/// Right end of the legends.
pub(super) const LEGEND_END: f64 = 1184.0;
/// Height of the titles.
const HEAD: f64 = 62.0;

/// Horizontal scale of all panels, and top of the first panel.
pub(super) struct Frame {
    span: Range<Duration>,
    /// Bottom of the titles.
    pub(super) head: f64,
    /// Top of the first panel.
    pub(super) top: f64,
}

impl Frame {
    /// Returns the frame of a timeline. `labels`: height of the labels of events.
    pub(super) fn of(timeline: &ThreadTimeline, labels: f64) -> Self {
        Self { span: timeline.span(), head: HEAD, top: HEAD + labels }
    }

    /// Returns the x coordinate of a moment.
    pub(super) fn x(&self, at: Duration) -> f64 {
        let length = self.span.end.saturating_sub(self.span.start).as_secs_f64().max(f64::EPSILON);
        let share = at.saturating_sub(self.span.start).as_secs_f64() / length;
        LEFT + share.min(1.0) * (RIGHT - LEFT)
    }

    pub(super) const fn span(&self) -> &Range<Duration> {
        &self.span
    }
}

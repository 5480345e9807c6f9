//! Fields of a part of a recording.

use std::ops::Range;
use std::time::Duration;

use serde::Serialize;

/// Part of a recording, in seconds since the start of the trace.
#[derive(Serialize)]
pub(super) struct WindowFields {
    from_s: f64,
    to_s: f64,
}

impl From<&Range<Duration>> for WindowFields {
    fn from(window: &Range<Duration>) -> Self {
        Self { from_s: window.start.as_secs_f64(), to_s: window.end.as_secs_f64() }
    }
}

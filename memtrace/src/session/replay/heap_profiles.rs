//! Heap profiles at several moments of a recording.

use std::collections::BTreeMap;
use std::time::Duration;

use super::moments::{Moment, Span};
use super::{Config, Opened};
use crate::model::{EventClass, Profile};
use crate::session::error::Error;

/// The most moments besides the end. Each profile is in memory.
pub(crate) const MAX_HEAP_PROFILES: usize = 32;

/// Reads the totals at the chosen moments, and at the marks before the end of the report, of each event class in order of time. If
/// there are too many marks, the first ones are left out. Reads nothing if no output shows them.
pub(super) fn read(opened: &Opened<'_>) -> Result<BTreeMap<EventClass, Vec<(Duration, Profile)>>, Error> {
    let Opened { config, recording, selected, .. } = opened;
    let mut all: BTreeMap<EventClass, Vec<(Duration, Profile)>> = BTreeMap::new();
    if selected.is_window() || !config.outputs.iter().any(|output| output.format.shows_moments()) {
        return Ok(all);
    }
    let marks = recording.marks().iter().filter(|mark| mark.boundary < selected.to());
    let marks: Vec<_> = marks.map(|mark| Moment::AfterStart(selected.since_start(mark.boundary))).collect();
    let free = MAX_HEAP_PROFILES.saturating_sub(config.heap_profiles.len());
    let marks = marks.iter().copied().skip(marks.len().saturating_sub(free));
    for moment in config.heap_profiles.iter().copied().chain(marks) {
        let config = Config { span: Span::At(moment), outputs: Vec::new(), ..(*config).clone() };
        let of_moment = Opened::new(&config)?;
        if of_moment.selected.to() >= selected.to() {
            continue;
        }
        of_moment.for_each_class(|class, profile, _| {
            all.entry(class).or_default().push((profile.shown_time().end, profile));
        })?;
    }
    for profiles in all.values_mut() {
        profiles.sort_by_key(|(at, _)| *at);
        profiles.dedup_by_key(|(at, _)| *at);
    }
    Ok(all)
}

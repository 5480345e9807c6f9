//! Memory of processes over time.

use std::collections::BTreeMap;

use memtrace_model::{EventClass, ImageId, MemoryCounter, PressureCounter};
use rusqlite::params;
use rustc_hash::FxHashMap;

use super::query::Query;
use super::{Recording, processes, samples, totals};
use crate::book::Book as _;
use crate::boundaries::Boundary;
use crate::file::error::Error;
use crate::file::quantities::class_number;
use crate::file::wrapping::wrapping_sum;
use crate::interval::{RecordedImage, Subject};
use crate::memory_timeline::MemoryTimelineBuilder;

/// Images and counters by the IDs of their rows.
struct Rows {
    images: FxHashMap<i64, ImageId>,
    counters: FxHashMap<i64, (ImageId, MemoryCounter)>,
    pressure: FxHashMap<i64, PressureCounter>,
}

/// Returns the memory of processes at the boundaries up to `to`. Reads one interval at a time.
pub(super) fn memory_over_time(recording: &Recording, to: Boundary) -> Result<MemoryTimelineBuilder, Error> {
    let images = processes::images(recording, to)?;
    let mut ends: BTreeMap<Boundary, Vec<ImageId>> = BTreeMap::new();
    for (image, end) in images.values().filter_map(|image| Some((image.id, image.ended?.1))) {
        ends.entry(recording.boundary_after(end.since_start())).or_default().push(image);
    }
    let mut rows =
        Rows { counters: FxHashMap::default(), pressure: FxHashMap::default(), images: totals::image_ids(recording)? };
    for (number, (subject, name)) in samples::counters(recording)? {
        match subject {
            Subject::Process(image) => {
                rows.counters.extend(MemoryCounter::from_name(&name).map(|counter| (number, (image, counter))));
            }
            Subject::Machine => {
                rows.pressure.extend(PressureCounter::from_name(&name).map(|counter| (number, counter)));
            }
            Subject::Memtrace | Subject::Cgroup(_) => {}
        }
    }
    let mut timeline = MemoryTimelineBuilder::default();
    let mut before = Boundary::START;
    for interval in recording.intervals.iter().take_while(|interval| interval.end() <= to) {
        let end = interval.end();
        for &class in &recording.header.classes {
            add_usage(recording, &mut timeline, class, [before, end], &rows, &images)?;
        }
        add_samples(recording, &mut timeline, [before, end], &rows, &images)?;
        ends.remove(&end).into_iter().flatten().for_each(|image| timeline.end(image));
        timeline.end_interval(end.at());
        before = end;
    }
    for mark in recording.marks.iter().filter(|mark| mark.boundary <= to) {
        timeline.add_mark(mark.mark.at, &mark.mark.text);
    }
    Ok(timeline)
}

/// Adds the changes of live and allocated memory between two boundaries.
fn add_usage(
    recording: &Recording,
    timeline: &mut MemoryTimelineBuilder,
    class: EventClass,
    [from, to]: [Boundary; 2],
    rows: &Rows,
    images: &BTreeMap<ImageId, RecordedImage>,
) -> Result<(), Error> {
    let [of_live, of_alloc] = ["live_bytes", "alloc_bytes"].map(wrapping_sum);
    let sql = format!(
        "SELECT total.image, {of_live}, {of_alloc} FROM change JOIN total ON total.id = change.total
            WHERE total.class = ? AND change.interval > ? AND change.interval <= ? GROUP BY 1"
    );
    recording.connection.each_row(&sql, params![class_number(class), from.id, to.id], |row| {
        let (live, allocated): (i64, i64) = (row.get(1)?, row.get(2)?);
        if let Some(&id) = rows.images.get(&row.get(0)?) {
            timeline.add_change(class, id, live.cast_unsigned(), allocated.cast_unsigned());
            images.get(&id).into_iter().for_each(|image| timeline.set_comm(id, &image.comm));
        }
        Ok(())
    })
}

/// Adds the sampled values between two boundaries.
fn add_samples(
    recording: &Recording,
    timeline: &mut MemoryTimelineBuilder,
    [from, to]: [Boundary; 2],
    rows: &Rows,
    images: &BTreeMap<ImageId, RecordedImage>,
) -> Result<(), Error> {
    // If a counter has several rows in `counter`, the row with the higher ID has the later samples.
    let sql = "SELECT counter, value FROM sample WHERE interval > ? AND interval <= ? ORDER BY interval, counter";
    recording.connection.each_row(sql, [from.id, to.id], |row| {
        if let Some(&counter) = rows.pressure.get(&row.get(0)?) {
            timeline.set_pressure(counter, row.get::<_, i64>(1)?.cast_unsigned());
        }
        if let Some(&(id, counter)) = rows.counters.get(&row.get(0)?) {
            timeline.set(id, counter, row.get::<_, i64>(1)?.cast_unsigned());
            images.get(&id).into_iter().for_each(|image| timeline.set_comm(id, &image.comm));
        }
        Ok(())
    })
}

//! Memory of processes over time.

use rusqlite::params;

use super::Recording;
use super::boundaries::Boundary;
use super::query::Query;
use crate::model::{EventClass, ImageId, MemoryCounter, MemoryTimelineBuilder};
use crate::recording::error::Error;
use crate::recording::quantities::class_number;
use crate::recording::samples::Subject;

/// A change in an interval.
enum Event {
    /// Changes of the live and the allocated bytes of a class.
    Usage(EventClass, u64, u64),
    /// A value.
    Value(MemoryCounter, u64),
    End,
}

impl Recording {
    /// Returns the memory of processes at the boundaries up to `to`.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn memory_over_time(&self, to: Boundary) -> Result<MemoryTimelineBuilder, Error> {
        let mut events = self.usage_of_images(to)?;
        events.extend(self.samples_of_images(to)?);
        let images = self.images(to)?;
        let ends = images.values().filter_map(|image| Some((image.id, image.ended?.1.since_start())));
        events.extend(ends.map(|(id, at)| (self.first_boundary_after(at), id, Event::End)));
        // A process has no values after its end.
        events.sort_by_key(|(boundary, _, event)| (*boundary, matches!(event, Event::End)));
        let mut events = events.into_iter().peekable();
        let mut timeline = MemoryTimelineBuilder::default();
        for interval in self.intervals.iter().take_while(|interval| interval.end() <= to) {
            let end = interval.end();
            while let Some((_, id, event)) = events.next_if(|(boundary, ..)| *boundary <= end) {
                match event {
                    Event::Usage(class, live, allocated) => timeline.add_change(class, id, live, allocated),
                    Event::Value(counter, value) => timeline.set(id, counter, value),
                    Event::End => timeline.end(id),
                }
                if let Some(image) = images.get(&id) {
                    timeline.set_comm(id, &image.comm);
                }
            }
            timeline.end_interval(end.at());
        }
        for mark in self.marks.iter().filter(|mark| mark.boundary <= to) {
            timeline.add_mark(mark.mark.at, &mark.mark.text);
        }
        Ok(timeline)
    }

    /// Returns the changes of live and allocated memory up to a boundary, in no order.
    fn usage_of_images(&self, to: Boundary) -> Result<Vec<(Boundary, ImageId, Event)>, Error> {
        let images = self.image_ids()?;
        let mut events = Vec::new();
        for &class in &self.header.classes {
            let sql = "SELECT change.interval, total.image, sum(live_bytes), sum(alloc_bytes) FROM change
                JOIN total ON total.id = change.total WHERE total.class = ? AND change.interval <= ? GROUP BY 1, 2";
            self.connection.each_row(sql, params![class_number(class), to.id], |row| {
                let (live, allocated): (i64, i64) = (row.get(2)?, row.get(3)?);
                if let Some(&id) = images.get(&row.get(1)?) {
                    let usage = Event::Usage(class, live.cast_unsigned(), allocated.cast_unsigned());
                    events.push((self.boundary_of(row.get(0)?), id, usage));
                }
                Ok(())
            })?;
        }
        Ok(events)
    }

    /// Returns the sampled values of processes up to a boundary, in order of time.
    fn samples_of_images(&self, to: Boundary) -> Result<Vec<(Boundary, ImageId, Event)>, Error> {
        let counters = self.counters()?;
        let mut events = Vec::new();
        let sql = "SELECT interval, counter, value FROM sample WHERE interval <= ? ORDER BY interval, counter";
        self.connection.each_row(sql, [to.id], |row| {
            if let Some((Subject::Process(id), name)) = counters.get(&row.get(1)?)
                && let Some(counter) = MemoryCounter::from_name(name)
            {
                let value = Event::Value(counter, row.get::<_, i64>(2)?.cast_unsigned());
                events.push((self.boundary_of(row.get(0)?), *id, value));
            }
            Ok(())
        })?;
        Ok(events)
    }
}

//! Sampled values, for tests.

use std::collections::BTreeMap;

use rusqlite::params;
use rustc_hash::FxHashMap;

use super::Recording;
use super::query::Query;
use super::samples::counters;
use crate::book::Book as _;
use crate::boundaries::Boundary;
use crate::file::error::Error;
use crate::interval::Subject;

/// Returns the value of each counter at a boundary: its last sample up to the boundary.
pub(in crate::file) fn samples(recording: &Recording, at: Boundary) -> Result<BTreeMap<(Subject, String), u64>, Error> {
    let counters = counters(recording)?;
    let mut last = FxHashMap::default();
    let sql = "SELECT counter, interval, value FROM sample WHERE interval <= ? ORDER BY interval";
    recording.connection.each_row(sql, [at.id], |row| {
        let (counter, interval): (i64, i64) = (row.get(0)?, row.get(1)?);
        last.insert(counter, (interval, counter, row.get::<_, i64>(2)?.cast_unsigned()));
        Ok(())
    })?;
    // If a counter has several rows in `counter`, the row with the higher ID has the later samples.
    let mut in_order: Vec<_> = last.into_values().collect();
    in_order.sort_unstable();
    let value = |(_, counter, value)| Some((counters.get(&counter)?.clone(), value));
    Ok(in_order.into_iter().filter_map(value).collect())
}

/// Returns the samples of a counter in order of time. A sample holds until the next one.
pub(in crate::file) fn sample_series(
    recording: &Recording,
    subject: Subject,
    counter: &str,
) -> Result<Vec<(Boundary, u64)>, Error> {
    let mut series: BTreeMap<Boundary, u64> = BTreeMap::new();
    let counters = counters(recording)?;
    let mut rows: Vec<_> = counters.into_iter().filter(|(_, (of, name))| *of == subject && name == counter).collect();
    rows.sort_unstable_by_key(|(id, _)| *id);
    for (id, _) in rows {
        let sql = "SELECT interval, value FROM sample WHERE counter = ? AND interval <= ? ORDER BY interval";
        recording.connection.each_row(sql, params![id, recording.end().id], |row| {
            series.insert(recording.boundary_of(row.get(0)?), row.get::<_, i64>(1)?.cast_unsigned());
            Ok(())
        })?;
    }
    Ok(series.into_iter().collect())
}

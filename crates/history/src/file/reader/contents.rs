//! Header, intervals, marks and gaps of a recording.

use std::time::{Duration, SystemTime};

use memtrace_model::EventClass;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::query::Query;
use crate::boundaries::{Boundary, IntervalRow, MarkRow};
use crate::file::error::Error;
use crate::file::text::duration;
use crate::gap::{Gap, GapReason};
use crate::header::Header;
use crate::interval::Mark;

/// Returns the header. The flag is true if the recording is complete.
pub(super) fn header(connection: &Connection) -> Result<(Header, bool), Error> {
    let text = |key: &str| -> Result<String, Error> {
        Ok(connection.query_row("SELECT value FROM recording WHERE key = ?", [key], |row| row.get(0))?)
    };
    let number = |key: &str| -> Result<Option<i64>, Error> {
        let value = connection.query_row("SELECT value FROM recording WHERE key = ?", [key], |row| row.get(0));
        Ok(value.optional()?.flatten())
    };
    let time = |key: &str| Ok::<_, Error>(number(key)?.map(duration));
    let mut arguments = Vec::new();
    let sql = "SELECT value FROM recording WHERE key GLOB 'argument_*' ORDER BY key";
    connection.each_row(sql, [], |row| {
        arguments.push(row.get(0)?);
        Ok(())
    })?;
    let names = text("event_classes")?;
    let classes =
        names.split(',').filter_map(|name| EventClass::ALL.iter().copied().find(|class| class.name() == name));
    let start = time("start_unix_ns")?.and_then(|start| SystemTime::UNIX_EPOCH.checked_add(start));
    let header = Header {
        version: text("version")?,
        host: text("host")?,
        kernel: text("kernel")?,
        arguments,
        start: start.unwrap_or(SystemTime::UNIX_EPOCH),
        interval: time("interval_ns")?.unwrap_or_default(),
        classes: classes.collect(),
        page_sample: number("page_sample")?.and_then(|sample| sample.try_into().ok()).unwrap_or(0),
        older: time("older_ns")?,
    };
    Ok((header, number("complete")?.is_some()))
}

pub(super) fn intervals(connection: &Connection) -> Result<Vec<IntervalRow>, Error> {
    let mut intervals: Vec<IntervalRow> = Vec::new();
    let mut last = Duration::ZERO;
    connection.each_row("SELECT id, start_ns, end_ns, merged FROM interval ORDER BY id", [], |row| {
        let (id, start, end): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let span = duration(start)..duration(end);
        if id <= 0 || span.start < last || span.end < span.start {
            return Err(Error::Damaged(format!("interval {id} has an impossible span")));
        }
        last = span.end;
        intervals.push(IntervalRow { id, span, merged: row.get::<_, i64>(3)?.cast_unsigned() });
        Ok(())
    })?;
    Ok(intervals)
}

pub(super) fn marks(connection: &Connection, intervals: &[IntervalRow]) -> Result<Vec<MarkRow>, Error> {
    let mut marks = Vec::new();
    connection.each_row("SELECT epoch, interval, at_ns, text, exact FROM mark ORDER BY at_ns, epoch", [], |row| {
        let id: i64 = row.get(1)?;
        let index = intervals.partition_point(|interval| interval.id < id);
        let mark = Mark { epoch: row.get(0)?, at: duration(row.get(2)?), text: row.get(3)? };
        let boundary = intervals.get(index).map_or(Boundary { id, at: mark.at }, IntervalRow::end);
        marks.push(MarkRow { mark, boundary, is_exact: row.get(4)? });
        Ok(())
    })?;
    Ok(marks)
}

pub(super) fn gaps(connection: &Connection) -> Result<Vec<Gap>, Error> {
    let mut gaps = Vec::new();
    connection.each_row("SELECT start_ns, end_ns, reason, intervals FROM gap ORDER BY id", params![], |row| {
        let name: String = row.get(2)?;
        let reason = GapReason::ALL.into_iter().find(|reason| reason.name() == name).unwrap_or(GapReason::Other);
        let span = duration(row.get(0)?)..duration(row.get(1)?);
        gaps.push(Gap { span, reason, intervals: row.get::<_, i64>(3)?.cast_unsigned() });
        Ok(())
    })?;
    Ok(gaps)
}

//! Recordings, as `memtrace report` reads them, and their write-ahead logs.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use memtrace_history::facts::RecordedFacts;
use memtrace_history::{Book, Error, Moments, Recording, ViewOptions, notes_of, view};
use memtrace_model::{FileOffset, Frame, Names, PathObject, Unnamed};

/// Number of ended processes with totals of their own.
const LISTED: usize = 10;

/// Bytes between a recording and its write-ahead log.
const BETWEEN: &[u8] = b"\0write-ahead log\0";

struct NoNames;

impl Names for NoNames {
    fn frames(&self, _: &PathObject, offsets: &[FileOffset]) -> Vec<Box<[Frame]>> {
        offsets.iter().map(|_| Box::from([Frame::new(Err(Unnamed::NoSymbol))])).collect()
    }
}

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.windows(BETWEEN.len()).position(|window| window == BETWEEN);
    let recording = match at {
        None => Recording::from_bytes(bytes),
        Some(at) => Recording::from_bytes_and_log(&bytes[..at], &bytes[at + BETWEEN.len()..]),
    };
    if let Ok(recording) = recording {
        let _ = read_stacks(&recording);
        let _ = read_threads(&recording);
        let _ = read_accounts(&recording);
    }
});

fn read_stacks(recording: &Recording) -> Result<(), Error> {
    let middle = recording.boundary_at(recording.end().at() / 2);
    let facts = RecordedFacts::new(recording.facts(recording.end())?);
    for from in [None, Some(middle)] {
        let moments = Moments::new(recording, &facts, from, recording.end());
        let options = ViewOptions { keeps_parts: true, keep_ended: LISTED, counts_growth: false, has_timeline: true };
        let mut views = view(recording, &facts, &moments, &NoNames, options)?;
        for &class in &recording.header().classes {
            let stacks = views.take(class);
            let _ = views.profile(class, stacks, &facts, Vec::new(), |_| None);
        }
        let _ = notes_of(recording, &moments);
    }
    Ok(())
}

fn read_threads(recording: &Recording) -> Result<(), Error> {
    let (start, end) = (recording.boundary_at(Duration::ZERO), recording.end());
    recording.recorded_threads()?;
    recording.each_thread_row(start, end, drop)?;
    recording.process_rows(start, end)?;
    recording.process_values(end)?;
    recording.machine_usage(end)?;
    recording.activity(start, end).map(drop)
}

fn read_accounts(recording: &Recording) -> Result<(), Error> {
    let end = recording.end();
    recording.account_names()?;
    recording.accounts(recording.boundary_at(Duration::ZERO), end)?;
    recording.each_account_row(end, &mut |_, _, _| {})
}

//! Activity of threads of a history.

use std::sync::Arc;

use memtrace_model::{Activity, Frame, Unnamed};

use crate::activity::ActivityCollector;
use crate::book::Book;
use crate::file::Error;
use crate::interval::{Location, Locations, PathNumber, RecordedActivity, RecordedPath};
use crate::moments::Moments;

/// Maximum number of calls that a report shows for a wait, each with its inlined functions.
const MAX_FRAMES: usize = 32;

/// Reads the activity between the moments of the report; `None` if no activity was traced. `counts_bytes`: true if the
/// allocated bytes of spans are known.
pub(super) fn read(
    book: &dyn Book,
    moments: &Moments,
    locations: &Locations,
    counts_bytes: bool,
) -> Result<Option<Arc<Activity>>, Error> {
    let Some(activity) = book.activity(moments.from(), moments.to())? else { return Ok(None) };
    let RecordedActivity { changes, stacks, calls, left_out } = activity;
    let mut collector = ActivityCollector::default();
    collector.add(changes);
    collector.add_left_out(left_out);
    let stacks = stacks.into_iter().map(|(number, path, _)| (number, functions(locations, path))).collect();
    Ok(Some(Arc::new(collector.finish(calls, stacks, counts_bytes))))
}

/// Returns the functions of a path, the innermost first.
fn functions(locations: &Locations, path: PathNumber) -> Vec<String> {
    locations.paths.calls(path).take(MAX_FRAMES).flat_map(|call| functions_of(locations, call)).collect()
}

fn functions_of(locations: &Locations, call: &RecordedPath) -> Vec<String> {
    if let Some(frames) = locations.symbols.get(&(call.object, call.offset)) {
        return frames.iter().rev().map(Frame::label).collect();
    }
    let reason = match locations.objects.get(&call.object) {
        Some(Location::Outside(reason)) => *reason,
        _ => Unnamed::NoSymbol,
    };
    vec![Frame::new(Err(reason)).label()]
}

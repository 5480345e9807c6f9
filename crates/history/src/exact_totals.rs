//! The exact totals at the end of a run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{Activity, CodeNames, ImageId, PathObject, ProcessImage, Snapshots, Tick};

use super::assemble::LiveChangesByStack;
use super::ended::EndedProcesses;
use super::report_stacks::ReportStacks;

/// Changes of the live memory of running images in consecutive time ranges, the parts of a run. Empty if the
/// history has too few intervals, or if it cannot be read.
#[derive(Debug, Default)]
pub struct ChangesInParts {
    /// Start and end of each part, since the start of tracing.
    pub parts: Vec<Range<Duration>>,
    /// Changes of live memory of each stack in each part.
    pub by_stack: LiveChangesByStack,
}

/// The totals at the end of a run, from its ledgers. Intervals of the history can be merged, or missing because of a
/// full disk. These totals do not depend on the intervals, so they are exact.
#[derive(Debug)]
pub struct ExactTotals {
    pub(super) stacks: ReportStacks,
    /// Start and end of each part of the run with known changes of live memory, since the start of tracing.
    pub(super) parts: Vec<Range<Duration>>,
    /// `None` if the activity of threads was not traced.
    pub(super) activity: Option<Arc<Activity>>,
}

impl ExactTotals {
    /// Converts the stacks of a run to call paths. `snapshots`: totals of the images that still run. `images`:
    /// metadata of these images. `code_of` returns the names of the code that an image has generated. `ended`:
    /// images that ended earlier. `window`: start and end of the trace.
    #[must_use]
    pub fn new<C: CodeNames>(
        snapshots: Snapshots,
        images: &BTreeMap<ImageId, ProcessImage>,
        code_of: impl Fn(ImageId, &ProcessImage) -> C,
        ended: EndedProcesses,
        window: &Range<Tick>,
        ChangesInParts { parts, by_stack }: ChangesInParts,
    ) -> Self {
        let stacks = ReportStacks::of_run(snapshots, images, code_of, ended, window, by_stack);
        Self { stacks, parts, activity: None }
    }

    /// Adds the activity of threads.
    #[must_use]
    pub fn with_activity(self, activity: Option<Arc<Activity>>) -> Self {
        Self { activity, ..self }
    }

    /// Returns the objects that have calls in the stacks.
    #[must_use]
    pub fn objects_with_calls(&self) -> Vec<PathObject> {
        let objects = self.stacks.paths.in_objects().into_iter();
        objects.filter(|(_, calls)| !calls.is_empty()).map(|(object, _)| object.clone()).collect()
    }
}

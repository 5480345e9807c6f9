//! The history of a run, and the profiles that are views of it.
//!
//! A [`Book`] is a sequence of [`Interval`]s, each with what changed in it: [`Recording`] reads it from a file, and
//! [`MemoryBook`] holds it in memory. [`view`] reads the totals at a moment, or the changes between two, and returns a
//! [`Profile`](crate::model::Profile) for each event class.
//!
//! The mappings of an image at the time of a stack translate each address to an offset in the file of an object. These
//! offsets do not depend on load addresses, so that all images share call paths. [`EndedProcesses`] holds the totals of
//! images that have ended. At the end of a run, [`EndOfRun`] joins them with the totals of running images.
//! [`NamedClasses`] asks a [`Names`](crate::model::Names) for the frames of each distinct call once.
//!
//! Only `file` does I/O.

mod assemble;
mod book;
mod boundaries;
mod call_paths;
mod end_of_run;
mod ended;
pub(crate) mod facts;
mod file;
mod frames_of_calls;
mod gap;
mod generated_names;
mod grouped_stacks;
mod header;
mod interval;
mod live_calls;
mod live_paths;
mod memory;
mod moments;
mod name_table;
mod named_stacks;
mod numbered;
mod path_totals;
mod process;
mod recorded;
mod report_stacks;
mod retention;
mod smallest;
#[cfg(test)]
mod test_code;
mod totals;
mod translated_paths;
mod trend_parts;
mod view;

pub use assemble::LiveChangesByStack;
pub use book::Book;
pub use boundaries::{Boundary, IntervalRow, MarkRow};
pub use end_of_run::{ChangesInParts, EndOfRun};
pub use ended::{CompletedImage, EndedProcesses, EndedSettings};
pub use file::{Error, MarkTexts, MonitorRecorder, ProcessRow, Recording, Settings, Status, ThreadRow, Writer};
pub use gap::{Gap, GapReason};
pub use grouped_stacks::{GroupedStack, GroupedStacks};
pub use header::Header;
pub use interval::{
    AccountNames, Change, Detail, DetailKind, Fact, FactValue, FramesByOffset, ImageChange, ImageValue, Interval,
    Location, Locations, Mark, ObjectNumber, PathNumber, PathRows, RecordedAccount, RecordedActivity, RecordedImage,
    RecordedObject, RecordedPath, RecordedProcessUsage, RecordedSymbols, RecordedThread, RecordedThreadUsage, Sample,
    StallChange, Subject, ThreadNumber, TotalKey,
};
pub use live_calls::frames_of_calls;
pub use live_paths::{CallSite, ImageStacks, LiveCall, LivePaths, NewPath, NewPaths};
pub use memory::MemoryBook;
pub(crate) use moments::Moments;
pub use name_table::{FramesByObject, NameTable};
pub use named_stacks::{NamedClasses, NamedStacks};
pub use totals::{ImageValues, StackTotal, Totals};
pub(crate) use trend_parts::{TrendParts, has_trends};
pub(crate) use view::{ViewOptions, Views, counts_growth, has_epochs, notes_of, view};

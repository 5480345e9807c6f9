//! The history of a run, and the profiles that are views of it.
//!
//! A [`Book`] is a sequence of [`Interval`]s, which hold the changes of the totals. A [`Recording`] reads the
//! intervals from a file, and a [`MemoryBook`] holds them in memory. [`view()`] reads the totals at a moment, or
//! the changes between two moments. The resulting [`Views`] have a [`Profile`](memtrace_model::Profile) for each
//! event class.
//!
//! The mappings of an image at the time of a stack translate each address to an offset in the file of an object.
//! These offsets do not depend on load addresses, so all images share call paths. [`EndedProcesses`] holds the
//! totals of images that have ended. At the end of a run, [`ExactTotals`] joins them with the totals of running
//! images. [`NamedClasses`] asks a [`Names`](memtrace_model::Names) for the frames of each distinct call once.
//!
//! Only `file` does I/O.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod account_changes;
pub mod accounts;
pub mod activity;
mod assemble;
mod book;
mod boundaries;
mod call_paths;
mod ended;
mod exact_totals;
pub mod facts;
mod file;
mod frames_of_calls;
mod gap;
mod generated_names;
mod grouped_stacks;
mod header;
mod interval;
pub mod ledger;
mod live_calls;
mod live_paths;
mod memory;
mod memory_timeline;
mod merge_smallest;
mod merged_images;
mod moments;
mod name_table;
mod named_stacks;
mod numbered;
mod ordinals;
mod path_totals;
pub mod pipeline;
mod process;
pub mod reconcile;
mod recorded;
pub mod registry;
mod report_stacks;
mod retention;
pub mod tags;
#[cfg(test)]
mod test_code;
pub mod threads;
mod totals;
mod translated_paths;
mod trend_parts;
pub mod triggers;
mod view;

pub use account_changes::{
    AccountChanges, AccountGroupId, AccountState, GroupMarks, GroupMember, ImageAccounts, WaterMarks,
};
pub use assemble::LiveChangesByStack;
pub use book::Book;
pub use boundaries::{Boundary, IntervalRow, MarkRow};
pub use ended::{CompletedImage, EndedProcesses, EndedSettings};
pub use exact_totals::{ChangesInParts, ExactTotals};
pub use file::{Error, MarkTexts, ProcessRow, Recording, Settings, Status, ThreadRecorder, ThreadRow, Writer};
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
pub use memory_timeline::MemoryTimelineBuilder;
pub use merged_images::MergedImages;
pub use moments::Moments;
pub use name_table::{FramesByObject, NameTable};
pub use named_stacks::{NamedClasses, NamedStacks};
pub use totals::{ImageValues, StackTotal, Totals};
pub use trend_parts::{TrendParts, has_trends};
pub use view::{ViewOptions, Views, counts_growth, go_profile_notes, has_epochs, notes_of, view};

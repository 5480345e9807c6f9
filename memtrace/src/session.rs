//! Composition root: joins the engines for one run.
//!
//! Submodules import downwards only: `run`, then `replay`, `sample`, `unwind_tables` and `overhead`, then `select`, then `track`,
//! then the files that need no engine.

mod bounded_set;
mod choices;
mod clock;
mod config;
mod descriptors;
mod detach;
pub(crate) mod difference;
mod error;
mod event_loop;
pub(crate) mod explain;
mod grouping;
mod mark_requests;
pub(crate) mod marks;
mod observer;
mod outcome;
mod outputs;
pub(crate) mod overhead;
mod own_allocator;
mod page_tracker;
mod protection;
mod recording_file;
pub(crate) mod replay;
mod run;
mod sample;
mod select;
mod threads;
mod track;
mod unwind_tables;
mod working_set;

pub(crate) use choices::{Destination, MarkFunction, Moment, Output, Recording};
pub(crate) use config::{
    AccountReport, ActivityConfig, BlockSizes, Config, Percent, ProbesOf, SpanFunction, TagFunction,
};
pub(crate) use error::from_engines;
pub(crate) use error::{AllocatorUser, Error};
pub(crate) use grouping::Grouping;
pub(crate) use observer::{Observer, Progress, TableSize};
pub(crate) use outcome::{CommandEnd, Outcome};
pub(crate) use run::run;
pub(crate) use select::{ProbeSite, Target};
pub(crate) use threads::{MonitorConfig, MonitorFormat, SourceChoice, TriggeredTrace, monitor};
pub(crate) use working_set::{WorkingSetConfig, WorkingSetMode, measure_working_sets};

pub(crate) use memtrace_host::debuginfod::Servers;
pub(crate) use memtrace_host::kernel::ThreadFilter;

pub(crate) use memtrace_object::allocators::{Hooks, NamedAllocator, UserHooks};

//! The composition root: it alone knows all the engines, and joins them for one run.

mod config;
mod cost;
mod error;
pub mod explain;
mod followed;
mod forecast;
mod groups;
mod leaving;
mod memory;
mod observer;
mod outcome;
mod outputs;
mod overhead;
mod pages;
mod reclaim;
mod ring_source;
mod run;
mod selection;
mod subject;
pub(crate) mod translate;
pub(crate) mod traps;
mod unwinding;
mod wait;

pub use config::{By, Choice, Config, Destination, Output, Percent, ProbeSite, Target};
pub use error::Error;
pub use observer::{Observer, Progress};
pub use outcome::{CommandEnd, Outcome};
pub use run::run;

pub use crate::allocators::{Hooks, NamedAllocator, UserHooks};

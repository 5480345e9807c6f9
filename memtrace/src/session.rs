//! Composition root: joins the engines for one run.
//!
//! Submodules import downwards only: `run`, then `sample`, `unwind_tables` and `overhead`, then `select`, then `track`, then
//! the files that need no engine.

mod clock;
mod config;
mod error;
pub mod explain;
mod malloc_trim;
mod observer;
mod outcome;
mod outputs;
pub(crate) mod overhead;
mod run;
mod sample;
mod select;
mod track;
mod unwind_tables;

pub use config::{Config, Destination, Output, Percent, ProbeSite, Target};
pub use error::Error;
pub(crate) use error::from_engines;
pub use observer::{Observer, Progress};
pub use outcome::{CommandEnd, Outcome};
pub use run::run;

pub use crate::allocators::{Hooks, NamedAllocator, UserHooks};

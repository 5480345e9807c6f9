//! The composition root: it alone knows all the engines, and joins them for one run.

mod config;
pub mod doctor;
mod error;
mod observer;
mod outcome;

pub use config::{Config, Destination, Output, Target};
pub use error::Error;
pub use observer::{Observer, Progress};
pub use outcome::{CommandEnd, Outcome};

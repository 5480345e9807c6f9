//! The composition root: it alone knows all the engines, and joins them for one run.

mod config;

pub use config::{Config, Destination, Output, Target};

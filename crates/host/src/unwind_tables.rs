//! Unwind tables of the files of targets: built in threads, and stored in a cache on disk.

mod construction;
mod parallel;
mod table_cache;

pub use construction::{Begun, Construction};
pub use parallel::{BuildJob, Built, build_all};
pub use table_cache::TableCache;

//! Go programs: the heap profile that the runtime keeps in the memory of a process, and Go's table of functions.
//!
//! A program samples its allocations (`runtime.MemProfileRate`) and sums them by stack in buckets (runtime/mprof.go). A variable
//! of the program has the address of the list of buckets, so memtrace attaches nothing to the process and changes nothing in it.
//! [`GoExecutable`] has the version and the addresses of the variables, from the file. A [`ProfileReader`] reads the buckets of
//! one process, and [`ProfileChanges`] subtracts two readings.
//!
//! The memory of a process is hostile: each pointer and number is checked, and time and memory are bounded.

mod bucket_list;
mod bucket_record;
mod build_info;
mod code_references;
mod executable;
mod file_bytes;
mod function_calls;
mod function_table;
mod go_functions;
mod heap_profile;
mod loaded_size;
mod module_data;
mod named_functions;
mod pc_values;
mod profile_changes;
mod profile_error;
mod profile_reader;
mod refusal;
mod runtime_totals;
mod settled_counts;
mod stack_frames;
mod table_header;
mod target_memory;
mod variables;
mod version;

pub use executable::GoExecutable;
pub(crate) use go_functions::{GoFunction, GoFunctions};
pub use heap_profile::{Bucket, BucketStack, HeapProfile};
pub use profile_changes::{BucketChange, ProfileChanges, ProfileDifference};
pub use profile_error::{BucketFault, ProfileError};
pub use profile_reader::{ProfileReader, ProfileRequest};
pub use refusal::GoRefusal;
pub use runtime_totals::{TotalsLocation, TotalsRefusal};
pub use target_memory::TargetMemory;
pub use version::GoVersion;

#[cfg(test)]
mod tests;

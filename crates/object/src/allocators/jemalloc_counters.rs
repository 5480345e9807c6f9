//! Location of the counters that jemalloc keeps for each thread: `thread.allocated` and `thread.deallocated` of its
//! `mallctl`.
//!
//! The counters are fields of `tsd_tls`, a thread-local variable. Their offsets differ between versions and builds.
//! They are read from the code of the functions that `mallctl` calls for these names. These functions are found in
//! the tables of `mallctl`, without symbols. The distance of `tsd_tls` from the thread pointer comes from a symbol,
//! or from the code of `mallctl` and malloc. A location is returned only if independent functions agree on it.
//!
//! The result depends only on the bytes of the object.

mod counters;
mod fields;
mod handlers;
mod location;
mod refusal;
mod registers;
mod step;
mod value;
mod walk;

use std::fs::File;

use super::object_code::CodeChunks;
use crate::elf::{Elf, Machine, Source, function_starts, thread_locals};
pub use counters::{JemallocCounters, TpOffset};
pub use refusal::CountersRefusal;
use walk::ObjectView;

impl JemallocCounters {
    /// Locates the counters of the jemalloc in an object.
    ///
    /// # Errors
    ///
    /// If the object has no jemalloc, or its code does not prove the location.
    pub fn find(object: &File) -> Result<Self, CountersRefusal> {
        Self::find_in(object)
    }

    fn find_in<S: Source>(source: S) -> Result<Self, CountersRefusal> {
        let elf = Elf::parse(source)?;
        if elf.machine() != Machine::X86_64 {
            return Err(CountersRefusal::Architecture);
        }
        let handlers = handlers::find(&elf)?;
        let slots = thread_locals::pointer_slots(&elf)?;
        let view = ObjectView {
            code: CodeChunks::new(&elf),
            starts: function_starts::find(&elf),
            slots: slots.iter().map(|slot| slot.virt).collect(),
        };
        let fields = fields::find(&view, &handlers)?;
        location::find(&elf, &view, &slots, &fields)
    }
}

#[cfg(test)]
mod tests;

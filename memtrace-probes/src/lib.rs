//! Probes for programs that name the parts of their work for memtrace.
//!
//! The probes are USDT probes of the provider `memtrace`, which bpftrace, perf and SystemTap see too. On Linux for
//! x86-64 and aarch64, each probe is one nop and the moves of its arguments. On other systems, a probe has no
//! instructions. The crate has no dependencies and needs no installed memtrace.
//!
//! ```
//! let _tag = memtrace_probes::tag(c"net");
//! // Blocks that this thread allocates here have the tag `net`.
//! let _user = memtrace_probes::computed_tag(format_args!("user {}", 7));
//! ```
//!
//! Names and texts are C strings. memtrace copies their first 63 bytes during the call. All calls apply to the current
//! thread. `memtrace --tag-from probes` reads tags and claims. `memtrace --span probes` reads tasks, locks and events.
//!
//! C and C++ programs use `include/memtrace.h` of this crate, which has the same probes.

#![no_std]
#![warn(missing_docs)]

mod events;
mod label;
mod locks;
mod probe;
mod tags;
mod tasks;

pub use events::{
    event_number, event_number_is_enabled, event_text, event_text_is_enabled, number_at_end, text_at_end, NumberAtEnd,
    TextAtEnd,
};
pub use locks::{lock_acquire, lock_is_enabled, lock_release, lock_wait, waiting, Held, Waiting};
pub use tags::{
    claim, computed_tag, tag, tag_begin, tag_begin_id, tag_end, tag_is_enabled, tag_number, ComputedTag, Tag,
};
pub use tasks::{task, task_begin, task_end, task_is_enabled, Task};

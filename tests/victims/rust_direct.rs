//! An optimized executable that calls the methods of its global allocator, and not the functions that rustc makes for it.

use std::process::ExitCode;

use victim_arena::Arena;

mod recording;

#[global_allocator]
static ALLOCATOR: recording::Recording<Arena> = recording::Recording(Arena);

fn main() -> ExitCode {
    recording::run(true)
}

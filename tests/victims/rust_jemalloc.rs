//! A victim in Rust with jemalloc as `_rjem_malloc` and so on. It also calls malloc of the C library.

use std::process::ExitCode;

mod recording;

#[global_allocator]
static ALLOCATOR: recording::Recording<tikv_jemallocator::Jemalloc> = recording::Recording(tikv_jemallocator::Jemalloc);

fn main() -> ExitCode {
    recording::run(true)
}

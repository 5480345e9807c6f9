//! A victim in Rust with jemalloc. The names of jemalloc's functions have the prefix `_rjem_`. The victim also calls
//! malloc of the C library.

use std::process::ExitCode;

mod recording;

#[global_allocator]
static ALLOCATOR: recording::Recording<tikv_jemallocator::Jemalloc> = recording::Recording(tikv_jemallocator::Jemalloc);

fn main() -> ExitCode {
    recording::run(true)
}

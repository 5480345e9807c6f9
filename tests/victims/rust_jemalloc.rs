//! A victim in Rust that carries jemalloc, as `_rjem_malloc` and so on, and calls the C library's malloc too.

use std::process::ExitCode;

mod recording;

#[global_allocator]
static ALLOCATOR: recording::Recording<tikv_jemallocator::Jemalloc> = recording::Recording(tikv_jemallocator::Jemalloc);

fn main() -> ExitCode {
    recording::run(true)
}

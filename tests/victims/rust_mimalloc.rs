//! A victim in Rust that carries mimalloc, and calls the C library's malloc too.

use std::process::ExitCode;

mod recording;

#[global_allocator]
static ALLOCATOR: recording::Recording<mimalloc::MiMalloc> = recording::Recording(mimalloc::MiMalloc);

fn main() -> ExitCode {
    recording::run(true)
}

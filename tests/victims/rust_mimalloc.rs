//! A victim in Rust with mimalloc. It also calls malloc of the C library.

use std::process::ExitCode;

mod recording;

#[global_allocator]
static ALLOCATOR: recording::Recording<mimalloc::MiMalloc> = recording::Recording(mimalloc::MiMalloc);

fn main() -> ExitCode {
    recording::run(true)
}

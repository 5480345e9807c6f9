//! A victim in Rust that carries mimalloc, and calls the C library's malloc too.

use std::process::ExitCode;

mod recording;

#[global_allocator]
static ALLOCATOR: recording::Booked<mimalloc::MiMalloc> = recording::Booked(mimalloc::MiMalloc);

fn main() -> ExitCode {
    recording::run(true)
}

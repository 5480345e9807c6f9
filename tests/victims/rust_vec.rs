//! A victim in Rust with the system allocator.

use std::alloc::System;
use std::process::ExitCode;

mod recording;

#[global_allocator]
static ALLOCATOR: recording::Recording<System> = recording::Recording(System);

fn main() -> ExitCode {
    recording::run(false)
}

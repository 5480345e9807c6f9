//! A victim in Rust whose global allocator is the system's.

use std::alloc::System;
use std::process::ExitCode;

mod booked;

#[global_allocator]
static ALLOCATOR: booked::Booked<System> = booked::Booked(System);

fn main() -> ExitCode {
    booked::run(false)
}

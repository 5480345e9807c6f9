//! A victim in Rust that carries mimalloc, and calls the C library's malloc too.

use std::process::ExitCode;

mod booked;

#[global_allocator]
static ALLOCATOR: booked::Booked<mimalloc::MiMalloc> = booked::Booked(mimalloc::MiMalloc);

fn main() -> ExitCode {
    booked::run(true)
}

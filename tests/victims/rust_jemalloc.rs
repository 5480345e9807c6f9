//! A victim in Rust that carries jemalloc, as `_rjem_malloc` and so on, and calls the C library's malloc too.

use std::process::ExitCode;

mod booked;

#[global_allocator]
static ALLOCATOR: booked::Booked<tikv_jemallocator::Jemalloc> = booked::Booked(tikv_jemallocator::Jemalloc);

fn main() -> ExitCode {
    booked::run(true)
}

//! The command `memtrace`. Its code is in the library, where tests can use it.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// With the allocator of the C library, memtrace would hit its own probes there: while it traces the whole machine, these
/// traps cost more than a quarter of its processor time. Its own executable gets no probes.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    memtrace::cli::run(std::env::args_os())
}

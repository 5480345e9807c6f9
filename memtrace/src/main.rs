//! The command `memtrace`. Its code is in the library, where tests can use it.

/// memtrace does not use the allocator of the C library, because it would hit its own probes there (docs/design/0064).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    memtrace::cli::run(std::env::args_os())
}

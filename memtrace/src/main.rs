//! The command `memtrace`: everything is in the library, for tests to reach.

use std::process::ExitCode;

fn main() -> ExitCode {
    memtrace::cli::run(std::env::args_os())
}

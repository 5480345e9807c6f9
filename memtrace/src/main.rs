//! The command `memtrace`. Its code is in the library, where tests can use it.

use std::process::ExitCode;

fn main() -> ExitCode {
    memtrace::cli::run(std::env::args_os())
}

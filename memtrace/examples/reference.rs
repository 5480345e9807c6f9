//! Prints `docs/reference.md`, for `cargo xtask docs`.

use std::io::{self, Write as _};

fn main() -> io::Result<()> {
    io::stdout().write_all(memtrace::cli::reference().as_bytes())
}

//! What the commands tell the user: progress on standard error, results on standard output.

use std::io::{self, IsTerminal as _, Write as _};

/// A step begins.
pub(crate) fn step(what: &str) {
    line("==>", "1;34", what);
}

/// Something worth knowing within a step.
pub(crate) fn note(what: &str) {
    eprintln!("    {what}");
}

/// Something that the user should look at, though it fails nothing.
pub(crate) fn warning(what: &str) {
    line("warning:", "1;33", what);
}

/// Why the command fails.
pub(crate) fn failure(what: &str) {
    line("error:", "1;31", what);
}

/// What the command was run for. A reader who has gone away misses it, and that fails nothing.
pub(crate) fn result(what: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{what}").and_then(|()| out.flush());
}

fn line(mark: &str, color: &str, what: &str) {
    if io::stderr().is_terminal() {
        eprintln!("\x1b[{color}m{mark}\x1b[0m {what}");
    } else {
        eprintln!("{mark} {what}");
    }
}

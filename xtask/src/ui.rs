//! Output of the commands: progress on standard error, results on standard output.

use std::io::{self, IsTerminal as _, Write as _};

/// Prints the title of a step.
pub(crate) fn step(text: &str) {
    line("==>", "1;34", text);
}

/// Prints a detail of the current step.
pub(crate) fn note(text: &str) {
    eprintln!("    {text}");
}

/// Prints a problem that does not fail the command.
pub(crate) fn warning(text: &str) {
    line("warning:", "1;33", text);
}

/// Prints the reason why the command fails.
pub(crate) fn failure(text: &str) {
    line("error:", "1;31", text);
}

/// Prints a result. A closed pipe is not an error.
pub(crate) fn result(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn line(mark: &str, color: &str, text: &str) {
    if io::stderr().is_terminal() {
        eprintln!("\x1b[{color}m{mark}\x1b[0m {text}");
    } else {
        eprintln!("{mark} {text}");
    }
}

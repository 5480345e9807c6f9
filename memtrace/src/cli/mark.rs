//! `memtrace mark`.

use super::Exit;
use super::args::MarkArgs;
use super::console::Console;
use crate::session::marks::{self, MarkError};

/// Sets a mark in a running recording, and prints it.
pub(super) fn run(args: &MarkArgs, console: &Console) -> Exit {
    if let Err(reason) = marks::check(&args.text) {
        console.error(&format!("the text cannot be a mark: {reason}"), Some("give a short one, as in: memtrace mark login"));
        return Exit::Usage;
    }
    match marks::set(args.socket.as_deref(), &args.text) {
        Ok(mark) => {
            let line = format!("{} at {:.3} s\n", mark.text, mark.at.as_secs_f64());
            super::print(line.as_bytes(), Exit::Success, console)
        }
        Err(error) => {
            console.error(&error.to_string(), error.remedy());
            exit_of(&error)
        }
    }
}

fn exit_of(error: &MarkError) -> Exit {
    match error {
        MarkError::Several(_) => Exit::Usage,
        MarkError::NoRecording | MarkError::NotRunning(_) => Exit::NoProcess,
        MarkError::NotPermitted(_) => Exit::NotPermitted,
        MarkError::Refused(_) | MarkError::Failed { .. } => Exit::Failed,
    }
}

//! `memtrace mark`.

use super::args::MarkArgs;
use super::console::Console;
use super::exit::Exit;
use crate::session::marks::{self, MarkError};

/// Sets a mark in a running recording, and returns a line with it.
pub(super) fn run(args: &MarkArgs, console: &Console) -> Result<String, Exit> {
    if let Err(reason) = marks::check(&args.text) {
        console.error(
            &format!("the text cannot be a mark: {reason}"),
            Some("give a short one, as in: memtrace mark login"),
        );
        return Err(Exit::Usage);
    }
    match marks::set(args.socket.as_deref(), &args.text) {
        Ok(mark) => Ok(format!("{} at {:.3} s\n", mark.text, mark.at.as_secs_f64())),
        Err(error) => {
            console.error(&error.to_string(), error.remedy());
            Err(exit_of(&error))
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

//! `memtrace mark` and `memtrace reset`.

use super::args::{MarkArgs, ResetArgs};
use super::console::Console;
use super::exit::Exit;
use crate::run_kit::marks::{self, MarkError, Service};

/// Sets a mark in a running recording, and returns a line with it.
pub(super) fn run(args: &MarkArgs, console: &Console) -> Result<String, Exit> {
    if let Err(reason) = marks::check(&args.text) {
        console.error(
            &format!("the text cannot be a mark: {reason}"),
            Some("give a short one, as in: memtrace mark login"),
        );
        return Err(Exit::Usage);
    }
    match marks::set(Service::Recording, args.socket.as_deref(), &args.text) {
        Ok(mark) => Ok(format!("{} at {:.3} s\n", mark.text, mark.at.as_secs_f64())),
        Err(error) => {
            console.error(&error.to_string(), error.remedy());
            Err(exit_of(&error))
        }
    }
}

/// Starts new water marks in a running trace with accounts, and returns a line with the time.
pub(super) fn reset(args: &ResetArgs, console: &Console) -> Result<String, Exit> {
    match marks::set(Service::Accounts, args.socket.as_deref(), "reset") {
        Ok(mark) => Ok(format!("new water marks at {:.3} s\n", mark.at.as_secs_f64())),
        Err(error) => {
            console.error(&error.to_string(), error.remedy());
            Err(exit_of(&error))
        }
    }
}

fn exit_of(error: &MarkError) -> Exit {
    match error {
        MarkError::Several(..) | MarkError::Other { .. } => Exit::Usage,
        MarkError::NoneRunning(_) | MarkError::NotRunning(_) => Exit::NoProcess,
        MarkError::NotPermitted(_) => Exit::NotPermitted,
        MarkError::Refused(_) | MarkError::Failed { .. } => Exit::Failed,
    }
}

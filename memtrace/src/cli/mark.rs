//! `memtrace mark` and `memtrace reset`.

use std::path::PathBuf;

use clap::Args;

use super::console::Console;
use super::exit::Exit;
use crate::options::HelpFlag;
use crate::run_kit::marks::{self, MarkError, Service};

/// Options of `memtrace mark`.
#[derive(Debug, Args)]
pub(super) struct MarkArgs {
    /// Text of the mark, at most 200 bytes; if the recording has it already, #2 is appended, or the next number
    text: String,

    /// Choose the recording by its socket; required if several are running
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    #[command(flatten)]
    help: HelpFlag,
}

/// Options of `memtrace reset`.
#[derive(Debug, Args)]
pub(super) struct ResetArgs {
    /// Choose the trace by its socket; required if several are running
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    #[command(flatten)]
    help: HelpFlag,
}

/// Sets a mark in a running recording, and returns a line with the text and the time of the mark.
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
        MarkError::NoneRunning(_) | MarkError::NotRunning(_) | MarkError::Ended(_) => Exit::NoProcess,
        MarkError::NotPermitted(_) => Exit::NotPermitted,
        MarkError::Refused(_) | MarkError::Failed { .. } => Exit::Failed,
    }
}

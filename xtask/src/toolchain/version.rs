//! Asks commands for their versions, and parses the answers.

use std::path::Path;
use std::process::Command;

use crate::command;

/// Returns the number before the first dot of a version.
pub(super) fn llvm_major(version: &str) -> Option<u32> {
    version.split('.').next()?.trim().parse().ok()
}

/// Returns the output of `program` with one argument.
pub(super) fn ask(program: &Path, argument: &str) -> Option<String> {
    command::answer(Command::new(program).arg(argument))
}

//! USDT probes of a file.

use std::fs::File;
use std::path::Path;

use memtrace_model::UserProbe;

use super::find_function::FunctionError;
use crate::elf::{Elf, user_probes};

/// Returns the probes of `provider` in `object`.
///
/// # Errors
///
/// The file cannot be read, or has no such probe.
pub fn user_probes(object: &Path, provider: &str) -> Result<Vec<UserProbe>, FunctionError> {
    let probes = user_probes::find(&Elf::parse(&File::open(object)?)?, provider)?;
    if probes.is_empty() { Err(FunctionError::NoProbe) } else { Ok(probes) }
}

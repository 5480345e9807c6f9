//! Folded stacks: `process (pid);main;…;leaf value`, or another group first, one per line, for flame graph tools. Those of
//! a comparison have two values.

use std::io;

use memtrace_model::{Frame, Profile};

use crate::fold::{Spelling, fold, fold_pair};
use crate::options::Options;

/// Writes the stacks ordered by bytes, for tools that do not sort.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let spelling = Spelling { separator: ';', frame: Frame::label, pruning: None };
    for (stack, value) in fold(profile, options, &spelling).lines() {
        writeln!(out, "{stack} {value}")?;
    }
    Ok(())
}

/// Writes the stacks of two profiles, each with its value in both, for `inferno-diff-folded` and similar tools.
pub(super) fn write_differential(
    profiles: [&Profile; 2],
    options: &Options,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    for (stack, [before, after]) in fold_pair(profiles, options, ';') {
        writeln!(out, "{stack} {before} {after}")?;
    }
    Ok(())
}

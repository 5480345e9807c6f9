//! Folded stacks for flame graph tools, one in each line: `process (pid);main;…;leaf value`. The first entry is the
//! group. Folded stacks of a comparison have two values.

use std::io;

use memtrace_model::{Frame, Profile};

use crate::fold::{Spelling, fold, fold_pair};
use crate::options::Options;

/// Writes the stacks in the byte order of their texts, for tools that do not sort.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let spelling = Spelling { separator: ';', frame: Frame::label, pruning: None };
    for (stack, value) in fold(profile, options, &spelling).lines() {
        writeln!(out, "{stack} {value}")?;
    }
    Ok(())
}

/// Writes the stacks of two profiles, each stack with its value in both profiles, as `inferno-diff-folded` does.
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

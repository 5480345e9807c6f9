//! Folded stacks: `process (pid);main;…;leaf value`, or another group first, one per line, for flame graph tools.

use std::io;

use crate::model::{Frame, Profile};
use crate::report::fold::{Spelling, fold};
use crate::report::options::Options;

/// Writes the stacks ordered by bytes, for tools that do not sort.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let spelling = Spelling { separator: ';', frame: Frame::label, pruning: None };
    for (stack, value) in fold(profile, options, &spelling).lines() {
        writeln!(out, "{stack} {value}")?;
    }
    Ok(())
}

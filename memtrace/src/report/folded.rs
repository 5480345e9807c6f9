//! Folded stacks: `process (pid);main;…;leaf value`, or another root, a line a stack, as flame graph tools read them.

use std::io;

use crate::model::{Frame, Profile};
use crate::report::fold::{Spelling, fold};
use crate::report::options::Options;

/// Writes the stacks ordered by their bytes, which is what tools expect that do not sort for themselves.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let spelling = Spelling { separator: ';', frame: Frame::label };
    for (stack, value) in fold(profile, options, &spelling).lines() {
        writeln!(out, "{stack} {value}")?;
    }
    Ok(())
}

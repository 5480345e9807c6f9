//! Folded stacks: `process;root;…;leaf value`, a line a stack, as flame graph tools read them.

use std::io;

use super::fold::{Spelling, fold};
use crate::model::{Frame, Metric, Profile};

/// Writes the stacks ordered by their bytes, which is what tools expect that do not sort for themselves.
pub(super) fn write(profile: &Profile, metric: Metric, out: &mut dyn io::Write) -> io::Result<()> {
    let spelling = Spelling { separator: ';', process: |process| process.comm.clone(), frame: Frame::label };
    for (stack, value) in fold(profile, metric, &spelling) {
        writeln!(out, "{stack} {value}")?;
    }
    Ok(())
}

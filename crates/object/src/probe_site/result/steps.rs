//! Limit of the work on a function: a function of a hostile file can have any number of paths.

use super::refusal::Refusal;

/// Maximum number of steps. The functions of glibc need some thousands.
const MAX_STEPS: u32 = 1 << 16;

/// Number of steps that the analyses of a function have taken.
#[derive(Debug, Default)]
pub(super) struct Steps(u32);

impl Steps {
    /// Counts a step.
    ///
    /// # Errors
    ///
    /// [`Refusal::TooLong`] if the limit is exceeded.
    pub(super) fn count(&mut self) -> Result<(), Refusal> {
        self.0 += 1;
        if self.0 > MAX_STEPS { Err(Refusal::TooLong) } else { Ok(()) }
    }
}

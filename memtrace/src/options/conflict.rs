//! Conflict between arguments.

/// Arguments that are each valid but cannot be combined, or that are incomplete.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ArgConflict {
    pub(crate) message: String,
    /// Advice for the user.
    pub(crate) remedy: String,
}

impl ArgConflict {
    pub(crate) fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into() }
    }
}

/// Returns the first option that is given.
pub(crate) fn first_given(options: &[(&'static str, bool)]) -> Option<&'static str> {
    options.iter().find_map(|(option, is_given)| is_given.then_some(*option))
}

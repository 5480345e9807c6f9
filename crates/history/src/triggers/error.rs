//! Error of a condition.

/// Condition that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {remedy}")]
pub struct ConditionError {
    /// The invalid part of the condition, and the reason.
    pub message: String,
    /// Advice for the user.
    pub remedy: String,
}

impl ConditionError {
    pub(super) fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into() }
    }
}

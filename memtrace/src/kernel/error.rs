//! What can go wrong with the kernel before tracing begins.

use std::io;

use aya::programs::ProgramError;
use thiserror::Error;

/// Why the kernel did not do what it was asked.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The caller may not do this.
    #[error("not permitted to {action}: {source}")]
    Permission {
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel cannot do this.
    #[error("this kernel cannot {action}: {reason}")]
    Unsupported {
        /// What was tried.
        action: String,
        /// What the kernel said, or what is missing.
        reason: String,
    },
    /// The process to attach to has ended.
    #[error("the process ended while it was being attached to")]
    TargetEnded,
    /// Anything else.
    #[error("could not {action}: {reason}")]
    Failed {
        /// What was tried.
        action: String,
        /// What the kernel said.
        reason: String,
    },
}

impl KernelError {
    /// Sorts an error of the system's by its number; `whole` is the whole story, for the unexpected ones.
    pub(super) fn from_io(action: &str, source: io::Error, whole: String) -> Self {
        let action = action.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission { action, source },
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => Self::Unsupported { action, reason: whole },
            Some(libc::ESRCH) => Self::TargetEnded,
            _ => Self::Failed { action, reason: whole },
        }
    }

    /// As [`KernelError::from_error`], for a program that the kernel refused; the verifier's words go to the log.
    pub(super) fn from_load(action: &str, error: &ProgramError) -> Self {
        if let ProgramError::LoadError { io_error, verifier_log } = error {
            log::debug!("{action}: the verifier says:\n{verifier_log}");
            let whole = format!("{io_error}; -vv shows the verifier's reasons");
            let number = io_error.raw_os_error().unwrap_or(0);
            return Self::from_io(action, io::Error::from_raw_os_error(number), whole);
        }
        Self::from_error(action, error)
    }

    /// Sorts any error by the system's error at its root.
    pub(super) fn from_error(action: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut whole = error.to_string();
        let mut number = None;
        let mut next = Some(error);
        while let Some(cause) = next {
            if let Some(io) = cause.downcast_ref::<io::Error>() {
                number = number.or(io.raw_os_error());
            }
            let text = cause.to_string();
            if !whole.contains(&text) {
                whole = format!("{whole}: {text}");
            }
            next = cause.source();
        }
        match number {
            Some(number) => Self::from_io(action, io::Error::from_raw_os_error(number), whole),
            None => Self::Failed { action: action.to_owned(), reason: whole },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_sorted_by_the_number_at_its_root() {
        #[derive(Debug, Error)]
        #[error("the call failed")]
        struct Outer(#[source] io::Error);
        let sorted = |number| KernelError::from_error("try", &Outer(io::Error::from_raw_os_error(number)));
        assert!(matches!(sorted(libc::EPERM), KernelError::Permission { .. }));
        assert!(matches!(sorted(libc::ESRCH), KernelError::TargetEnded));
        assert!(matches!(sorted(libc::ENOSYS), KernelError::Unsupported { .. }));
        assert!(
            matches!(sorted(libc::EINVAL), KernelError::Failed { reason, .. } if reason.contains("the call failed"))
        );
    }
}

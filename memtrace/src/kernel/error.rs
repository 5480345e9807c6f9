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
            let words = verifier_log.to_string();
            // The verifier's own refusal is often EACCES; only where it said nothing is it about the caller.
            if let Some(last) = last_words(&words) {
                log::debug!("{action}: the verifier says:\n{words}");
                let refused = format!("the verifier refuses it ({io_error}): {last}");
                let reason = match lacking(last) {
                    Some(what) => format!("{what}; {refused}"),
                    None => refused,
                };
                return Self::Unsupported { action: action.to_owned(), reason };
            }
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

/// The verifier's reason: its last line, but for the statistics that follow (`print_verification_stats`,
/// kernel/bpf/verifier.c).
fn last_words(log: &str) -> Option<&str> {
    const STATISTICS: [&str; 4] = ["processed ", "verification time ", "stack depth ", "max_states_per_insn "];
    let lines = log.lines().map(|line| line.trim_matches(['\0', ' ']));
    lines.rev().find(|line| !line.is_empty() && !STATISTICS.iter().any(|statistic| line.starts_with(statistic)))
}

/// What takes a newer kernel, where the verifier's reason is a helper that it does not know, which ends in its number
/// (include/uapi/linux/bpf.h).
fn lacking(reason: &str) -> Option<&'static str> {
    match reason.rsplit_once('#')?.1 {
        "123" => Some("choosing processes by their control group takes Linux 5.16"),
        "174" => {
            Some("telling allocators apart, and functions whose arguments lie elsewhere than usual, takes Linux 5.15")
        }
        // `bpf_get_current_task_btf` and `bpf_task_pt_regs`, which are needed together.
        "158" | "175" => Some("seeing the stacks of whoever has called the kernel takes Linux 5.15"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use aya_obj::VerifierLog;

    use super::*;

    fn refused(number: i32, log: &str) -> KernelError {
        let io_error = io::Error::from_raw_os_error(number);
        let error = ProgramError::LoadError { io_error, verifier_log: VerifierLog::new(log.to_owned()) };
        KernelError::from_load("load the program p", &error)
    }

    #[test]
    fn the_verifiers_refusal_is_no_lack_of_permission_and_says_its_reason() {
        let log = "0: (79) r1 = *(u64 *)(r1 +8)\nR1 invalid mem access 'scalar'\nverification time 12 usec\n\
                   stack depth 0\nprocessed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0\n\0";
        assert_eq!(
            refused(libc::EACCES, log).to_string(),
            "this kernel cannot load the program p: the verifier refuses it (Permission denied (os error 13)): \
             R1 invalid mem access 'scalar'"
        );
        assert!(matches!(refused(libc::EPERM, ""), KernelError::Permission { .. }));
        assert!(matches!(refused(libc::EINVAL, "processed 0 insns\n"), KernelError::Failed { .. }));
    }

    #[test]
    fn what_takes_a_newer_kernel_is_said_in_the_users_words() {
        let reason = |log| refused(libc::EINVAL, log).to_string();
        let groups = reason("unknown func bpf_get_current_ancestor_cgroup_id#123\n");
        assert!(groups.contains("by their control group takes Linux 5.16; the verifier refuses it"), "{groups}");
        assert!(reason("invalid func unknown#174\n").contains("telling allocators apart"));
        assert!(reason("invalid func unknown#158\n").contains("called the kernel takes Linux 5.15"));
        assert!(!reason("invalid func unknown#1740\n").contains("takes Linux"));
    }

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

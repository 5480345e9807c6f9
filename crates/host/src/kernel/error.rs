//! Errors of loading and attaching BPF programs.

use std::io;
use std::iter;

use aya::programs::ProgramError;
use thiserror::Error;

use super::lock_holder::LockHolder;

/// Failure of an operation in the kernel.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The caller lacks a permission.
    #[error("not permitted to {action}: {source}")]
    Permission {
        /// The failed operation.
        action: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel lacks a feature.
    #[error("this kernel cannot {action}: {reason}")]
    Unsupported {
        /// The failed operation.
        action: String,
        /// The kernel's error, or the missing feature.
        reason: String,
    },
    /// The kernel has no `bpf_find_vma`, the newest feature that every run needs.
    #[error("Linux {release} has no bpf_find_vma (Linux 5.17), by which BPF programs find the file at an address")]
    TooOld {
        /// Release of the kernel.
        release: String,
    },
    /// The kernel finds no memory within the limits of memtrace's cgroup.
    #[error("cannot {action}: out of memory")]
    OutOfMemory {
        /// The failed operation.
        action: String,
    },
    /// The kernel finds no memory for a probe, usually because the memory cgroup of a target is at its limit.
    #[error("cannot {action}: no memory; the memory cgroup of a process that maps the file can be at its limit")]
    NoMemory {
        /// The failed operation.
        action: String,
    },
    /// memtrace has reached its limit of open file descriptors.
    #[error("cannot {action}: too many open files")]
    OutOfDescriptors {
        /// The failed operation.
        action: String,
    },
    /// The kernel refuses a probe at an instruction.
    #[error("cannot {action}: the kernel refuses a probe at this instruction")]
    RefusedInstruction {
        /// The failed operation.
        action: String,
    },
    /// The kernel does not insert probes in this file, perhaps because a user has made a file that the kernel refuses.
    #[error("cannot {action}: {reason}")]
    NotInserted {
        /// The failed operation.
        action: String,
        /// The kernel's error.
        reason: String,
    },
    /// A process holds the lock of its memory map. The insertion of a probe would wait for the lock, and every fork would wait
    /// for the insertion.
    #[error(
        "{holder} holds the lock of its memory map and waits; no process of this machine could fork while probes are inserted"
    )]
    LockedMemory {
        /// The process.
        holder: LockHolder,
    },
    /// The process has exited.
    #[error("the process exited during attach")]
    TargetEnded,
    /// Any other failure.
    #[error("cannot {action}: {reason}")]
    Failed {
        /// The failed operation.
        action: String,
        /// The kernel's error.
        reason: String,
    },
}

/// Number of an error that the kernel returns to user space, but that the C library does not define (include/linux/errno.h).
const ENOTSUPP: i32 = 524;

/// Errors of an attach for an instruction that the kernel refuses to probe. On x86, `arch_uprobe_analyze_insn`
/// (arch/x86/kernel/uprobes.c) returns ENOTSUPP if the kernel can neither step nor emulate the instruction, and ENOEXEC if it
/// cannot decode the instruction. On arm64 (arch/arm64/kernel/probes/uprobes.c), the function returns EINVAL.
const REFUSED_INSTRUCTION: [i32; 2] =
    if cfg!(target_arch = "aarch64") { [ENOTSUPP, libc::EINVAL] } else { [ENOTSUPP, libc::ENOEXEC] };

impl KernelError {
    /// Returns the error for a program or map that the BPF object lacks.
    pub(super) fn missing(name: &str) -> Self {
        Self::Failed { action: format!("use {name}"), reason: String::from("the BPF object does not contain it") }
    }

    /// Classifies a system error by its code. `reason` is the complete description.
    pub(super) fn from_io(action: &str, source: io::Error, reason: String) -> Self {
        let action = action.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission { action, source },
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => Self::Unsupported { action, reason },
            Some(libc::ESRCH) => Self::TargetEnded,
            Some(libc::ENOMEM) => Self::OutOfMemory { action },
            Some(libc::EMFILE) => Self::OutOfDescriptors { action },
            _ => Self::Failed { action, reason },
        }
    }

    /// Same as [`KernelError::from_error`], for a program that failed to load. Logs the verifier's messages.
    pub(super) fn from_load(action: &str, error: &ProgramError) -> Self {
        if let ProgramError::LoadError { io_error, verifier_log } = error {
            let text = verifier_log.to_string();
            // The verifier often refuses with EACCES. The caller lacks permission only if the log is empty.
            if let Some(last) = verifier_reason(&text) {
                log::debug!("{action}: verifier log:\n{text}");
                let reason = format!("the verifier refuses it ({io_error}): {last}");
                return Self::Unsupported { action: action.to_owned(), reason };
            }
        }
        Self::from_error(action, error)
    }

    /// Same as [`KernelError::from_error`], for a probe that was not attached.
    pub(super) fn from_attach(action: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        match (system_error(error), Self::from_error(action, error)) {
            (Some(code), _) if REFUSED_INSTRUCTION.contains(&code) => {
                Self::RefusedInstruction { action: action.to_owned() }
            }
            // A breakpoint needs a copy of its page. The kernel charges the copy to the memory cgroup of the target
            // (`__replace_page`, kernel/events/uprobes.c).
            (_, Self::OutOfMemory { action }) => Self::NoMemory { action },
            // On arm64, EOPNOTSUPP means that a 32-bit process maps the file (`arch_uprobe_analyze_insn`).
            (Some(libc::EOPNOTSUPP), Self::Unsupported { action, reason })
            | (Some(_), Self::Failed { action, reason }) => Self::NotInserted { action, reason },
            (_, other) => other,
        }
    }

    /// Classifies an error by the system error in its chain of sources.
    pub(super) fn from_error(action: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = error.to_string();
        for cause in causes(error) {
            let source = cause.to_string();
            if !text.contains(&source) {
                text = format!("{text}: {source}");
            }
        }
        match system_error(error) {
            Some(code) => Self::from_io(action, io::Error::from_raw_os_error(code), text),
            None => Self::Failed { action: action.to_owned(), reason: text },
        }
    }
}

/// Returns `error` and its sources.
fn causes<'error>(
    error: &'error (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'error (dyn std::error::Error + 'static)> {
    iter::successors(Some(error), |&cause| cause.source())
}

/// Returns the code of the first system error in the chain of sources.
fn system_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
}

/// Returns the verifier's reason: the last line before the statistics (`print_verification_stats`,
/// kernel/bpf/verifier.c).
fn verifier_reason(log: &str) -> Option<&str> {
    const STATISTICS: [&str; 4] = ["processed ", "verification time ", "stack depth ", "max_states_per_insn "];
    let lines = log.lines().map(|line| line.trim_matches(['\0', ' ']));
    lines.rev().find(|line| !line.is_empty() && !STATISTICS.iter().any(|statistic| line.starts_with(statistic)))
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
    fn a_verifier_refusal_is_unsupported_and_has_a_reason() {
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

    #[derive(Debug, Error)]
    #[error("the call failed")]
    struct Outer(#[source] io::Error);

    #[test]
    fn instruction_is_refused_by_an_error_of_its_analysis() {
        let attach = |number| KernelError::from_attach("attach", &Outer(io::Error::from_raw_os_error(number)));
        let is_refused = |number| matches!(attach(number), KernelError::RefusedInstruction { .. });
        let is_arm = cfg!(target_arch = "aarch64");
        let codes = [ENOTSUPP, libc::ENOEXEC, libc::EINVAL, libc::EIO];
        assert_eq!(codes.map(is_refused), [true, !is_arm, is_arm, false]);
        assert!(matches!(attach(libc::ESRCH), KernelError::TargetEnded));
        assert!(matches!(attach(libc::ENOMEM), KernelError::NoMemory { .. }));
        for number in [libc::EIO, libc::EOPNOTSUPP] {
            assert!(matches!(attach(number), KernelError::NotInserted { .. }));
        }
    }

    #[test]
    fn errors_are_classified_by_their_root_code() {
        let classified = |number| KernelError::from_error("try", &Outer(io::Error::from_raw_os_error(number)));
        assert!(matches!(classified(libc::EPERM), KernelError::Permission { .. }));
        assert!(matches!(classified(libc::ESRCH), KernelError::TargetEnded));
        assert!(matches!(classified(libc::ENOSYS), KernelError::Unsupported { .. }));
        assert!(
            matches!(classified(libc::EINVAL), KernelError::Failed { reason, .. } if reason.contains("the call failed"))
        );
    }
}

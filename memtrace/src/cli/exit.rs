//! The exit codes: one table, from which help and the man page derive, and the one place that chooses among them.

use std::process::ExitCode;

use crate::doctor::{Area, Finding, Verdict};
use crate::session::{CommandEnd, Error, Outcome};

/// How memtrace can end. The discriminant is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Exit {
    /// All went well.
    Success = 0,
    /// Something went wrong while running.
    Failed = 1,
    /// The arguments are wrong.
    Usage = 2,
    /// The target is not there.
    NoProcess = 3,
    /// The kernel refuses.
    NotPermitted = 4,
    /// The kernel cannot.
    Kernel = 5,
    /// There is nothing to hook.
    NoAllocator = 6,
    /// An output cannot be opened.
    Output = 7,
    /// The target is of a kind that cannot be traced.
    Untraceable = 8,
    /// A file of the target is damaged.
    BadObject = 9,
    /// The command did not start.
    Command = 10,
    /// Tracing would cost more than allowed.
    OverBudget = 11,
    /// The report has gaps.
    Lossy = 20,
}

impl Exit {
    /// Every way to end, ordered by code.
    pub(super) const ALL: [Self; 13] = [
        Self::Success,
        Self::Failed,
        Self::Usage,
        Self::NoProcess,
        Self::NotPermitted,
        Self::Kernel,
        Self::NoAllocator,
        Self::Output,
        Self::Untraceable,
        Self::BadObject,
        Self::Command,
        Self::OverBudget,
        Self::Lossy,
    ];

    /// The exit code.
    pub(super) const fn code(self) -> u8 {
        self as u8
    }

    /// What it means, for the user.
    pub(super) const fn meaning(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "something failed while running, such as writing the report",
            Self::Usage => "the command line is wrong",
            Self::NoProcess => "what is to be traced is not there, or ended while memtrace was attaching",
            Self::NotPermitted => "not permitted; the message names the missing capability",
            Self::Kernel => "the kernel lacks what is needed: BPF, BTF, ring buffers or uprobes",
            Self::NoAllocator => "the target has no allocator that memtrace knows",
            Self::Output => "an output cannot be written; nothing was traced",
            Self::Untraceable => "the target cannot be traced: a kernel thread, or a thread's id",
            Self::BadObject => "a file that the target has mapped is damaged",
            Self::Command => "the command could not be started",
            Self::OverBudget => "tracing would cost the target more than --max-overhead allows; nothing was traced",
            Self::Lossy => "the report is written, but something was lost; the report says what",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error {
            Error::NoSuchProcess { .. } | Error::Ended { .. } | Error::NothingSelected { .. } => Self::NoProcess,
            Error::Permission { .. } => Self::NotPermitted,
            Error::Kernel { .. } => Self::Kernel,
            Error::NoAllocator { .. } => Self::NoAllocator,
            Error::Output { .. } => Self::Output,
            Error::Untraceable { .. } => Self::Untraceable,
            Error::BadObject { .. } => Self::BadObject,
            Error::Command { .. } => Self::Command,
            Error::OverBudget { .. } => Self::OverBudget,
            Error::Failed(_) => Self::Failed,
        }
    }
}

/// The exit code of a run that wrote its report; `pass` asks for the command's own.
pub(super) fn code_of(outcome: &Outcome, pass: bool) -> u8 {
    match outcome.command {
        // The shell's convention for a signal: bash(1), EXIT STATUS. A code is 8 bits wide, as wait(2) gives it.
        Some(CommandEnd::Signal(signal)) if pass => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        Some(CommandEnd::Code(code)) if pass => u8::try_from(code).unwrap_or(u8::MAX),
        _ if outcome.losses.total() > 0 || !outcome.complete => Exit::Lossy.code(),
        _ => Exit::Success.code(),
    }
}

/// How `doctor` ends: with what a run would fail for first.
pub(super) fn of_findings(findings: &[Finding]) -> Exit {
    let failed = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).map(|finding| finding.area);
    match failed.min() {
        None => Exit::Success,
        Some(Area::Kernel) => Exit::Kernel,
        Some(Area::Permissions) => Exit::NotPermitted,
        Some(Area::Process) => Exit::NoProcess,
        Some(Area::Traceable) => Exit::Untraceable,
        Some(Area::Allocator) => Exit::NoAllocator,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::model::{LossReason, Losses, Pid};

    #[test]
    fn codes_ascend_so_that_none_is_used_twice() {
        assert!(Exit::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }

    #[test]
    fn every_error_has_its_code() {
        let pid = Pid(1);
        let source = || io::Error::from(io::ErrorKind::NotFound);
        let text = String::new;
        let errors = [
            (Error::Failed(text()), 1),
            (Error::NoSuchProcess { pid }, 3),
            (Error::Ended { pid }, 3),
            (Error::Permission { action: text(), capability: text() }, 4),
            (Error::Kernel { missing: text(), remedy: text() }, 5),
            (Error::NoAllocator { pid, examined: Vec::new() }, 6),
            (Error::Output { path: "x".into(), source: source() }, 7),
            (Error::Untraceable { pid, reason: text(), remedy: text() }, 8),
            (Error::BadObject { path: "x".into(), reason: text() }, 9),
            (Error::Command { program: "x".into(), source: source() }, 10),
            (Error::OverBudget { estimated: "12 %".into(), allowed: "10 %".into() }, 11),
        ];
        for (error, code) in errors {
            assert_eq!(Exit::from(&error).code(), code, "{error:?}");
        }
    }

    #[test]
    fn losses_show_in_the_exit_code() {
        let mut outcome = Outcome { losses: Losses::default(), command: None, complete: true };
        assert_eq!(code_of(&outcome, false), 0);
        outcome.complete = false;
        assert_eq!(code_of(&outcome, false), 20);
        outcome.complete = true;
        outcome.losses.add(LossReason::RingFullAlloc, 1);
        assert_eq!(code_of(&outcome, false), 20);
    }

    #[test]
    fn the_commands_code_is_passed_on_where_asked() {
        let ended = |command| Outcome { losses: Losses::default(), command, complete: true };
        assert_eq!(code_of(&ended(Some(CommandEnd::Code(3))), false), 0);
        assert_eq!(code_of(&ended(Some(CommandEnd::Code(3))), true), 3);
        assert_eq!(code_of(&ended(Some(CommandEnd::Signal(9))), false), 0);
        assert_eq!(code_of(&ended(Some(CommandEnd::Signal(9))), true), 137);
        assert_eq!(code_of(&ended(None), true), 0);

        let mut lossy = ended(Some(CommandEnd::Code(0)));
        lossy.losses.add(LossReason::RingFullAlloc, 1);
        assert_eq!(code_of(&lossy, true), 0);
        lossy.command = None;
        assert_eq!(code_of(&lossy, true), 20);
    }

    #[test]
    fn doctor_ends_with_what_a_run_would_fail_for_first() {
        let found = |findings: &[(Area, Verdict)]| {
            let finding = |&(area, verdict)| Finding {
                area,
                subject: String::new(),
                verdict,
                detail: String::new(),
                remedy: None,
            };
            of_findings(&findings.iter().map(finding).collect::<Vec<_>>()).code()
        };
        assert_eq!(found(&[]), 0);
        assert_eq!(found(&[(Area::Kernel, Verdict::Warn), (Area::Permissions, Verdict::Info)]), 0);
        assert_eq!(found(&[(Area::Permissions, Verdict::Fail)]), 4);
        assert_eq!(found(&[(Area::Permissions, Verdict::Fail), (Area::Kernel, Verdict::Fail)]), 5);
        assert_eq!(found(&[(Area::Process, Verdict::Fail)]), 3);
        assert_eq!(found(&[(Area::Traceable, Verdict::Fail)]), 8);
        assert_eq!(found(&[(Area::Allocator, Verdict::Fail)]), 6);
    }
}

//! Exit codes. Help, the man page and docs/reference.md derive from this table.

use std::process::ExitCode;

use memtrace_model::UntracedReason;

use super::console::Console;
use crate::doctor::{Area, Finding, Verdict};
use crate::options::conflict::ArgConflict;
use crate::run_kit::error::Error;
use crate::run_kit::outcome::{CommandEnd, Outcome};
use crate::targets::select::filter;

/// Exit of memtrace. The discriminant is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Exit {
    Success = 0,
    Failed = 1,
    Usage = 2,
    NoProcess = 3,
    NotPermitted = 4,
    Kernel = 5,
    NoAllocator = 6,
    Output = 7,
    Untraceable = 8,
    BadObject = 9,
    Command = 10,
    OverBudget = 11,
    Unreadable = 12,
    Lossy = 20,
}

impl Exit {
    /// All exits, ordered by code.
    pub(super) const ALL: [Self; 14] = [
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
        Self::Unreadable,
        Self::Lossy,
    ];

    pub(super) const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the meaning for the user.
    pub(super) const fn meaning(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "a failure during the run, such as a report that could not be written",
            Self::Usage => "invalid command line",
            Self::NoProcess => "no such target or recording, or the target ended while memtrace was attaching",
            Self::NotPermitted => "not permitted; the message names the missing capability",
            Self::Kernel => "the kernel is older than Linux 5.17, or lacks BPF, BTF or uprobes",
            Self::NoAllocator => {
                "the target, or every selected process, has no allocator or heap profile that memtrace knows"
            }
            Self::Output => "an output file cannot be opened; nothing was traced",
            Self::Untraceable => {
                "the target cannot be traced (kernel thread, id of a thread) or measured, or no process can"
            }
            Self::BadObject => "a file that the target has mapped is damaged",
            Self::Command => "the command could not be started",
            Self::OverBudget => "tracing would cost the target more than --max-overhead allows; nothing was traced",
            Self::Unreadable => "a recording or report is missing, empty, damaged, or of another program or version",
            Self::Lossy => "the report is written, but incomplete; it lists the losses",
        }
    }
}

/// Shows an error and its remedy. Returns the exit of the error.
pub(super) fn of_error(error: &Error, console: &Console) -> Exit {
    console.error(&error.to_string(), error.remedy().as_deref());
    Exit::from(error)
}

/// Shows a conflict between arguments and its remedy. Returns the exit of a conflict.
pub(super) fn of_conflict(conflict: &ArgConflict, console: &Console) -> Exit {
    console.error(&conflict.message, Some(&conflict.remedy));
    Exit::Usage
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
            Error::Permission { .. } | Error::Refused { .. } => Self::NotPermitted,
            Error::Kernel { .. } => Self::Kernel,
            Error::NoAllocator { .. } | Error::NoProfile { .. } => Self::NoAllocator,
            Error::NoneTraced(process) => Self::from(process.reason),
            Error::Output { .. } | Error::Socket { .. } => Self::Output,
            Error::Untraceable { .. } | Error::CannotMeasure { .. } => Self::Untraceable,
            Error::BadObject { .. } => Self::BadObject,
            Error::Command { .. } => Self::Command,
            Error::OverBudget { .. } => Self::OverBudget,
            Error::Recording { .. } | Error::BadReport { .. } => Self::Unreadable,
            Error::MarkFunction { .. }
            | Error::TagFunction { .. }
            | Error::TagProbes { .. }
            | Error::SpanProbes { .. }
            | Error::SpanFunction { .. }
            | Error::SpanExits { .. }
            | Error::TagReturns { .. }
            | Error::TagPreset { .. }
            | Error::NotRecorded { .. }
            | Error::NotComparable { .. }
            | Error::NotInFormat { .. } => Self::Usage,
            Error::Memory { .. }
            | Error::OutOfMemory { .. }
            | Error::OutOfDescriptors { .. }
            | Error::NotWritten(_)
            | Error::Failed(_) => Self::Failed,
        }
    }
}

impl From<UntracedReason> for Exit {
    fn from(reason: UntracedReason) -> Self {
        match reason {
            UntracedReason::Architecture
            | UntracedReason::Stripped
            | UntracedReason::Go
            | UntracedReason::GoProfileOff
            | UntracedReason::GoVersion
            | UntracedReason::NoOwnProfile
            | UntracedReason::NoAllocator
            | UntracedReason::UnsupportedAllocator => Self::NoAllocator,
            UntracedReason::Damaged
            | UntracedReason::GoUnreadable
            | UntracedReason::GoProfilesFull
            | UntracedReason::NotAttached
            | UntracedReason::NotPatched
            | UntracedReason::Sampled
            | UntracedReason::Unreadable
            | UntracedReason::Ended => Self::Untraceable,
        }
    }
}

/// Returns the exit code of a run that wrote its report. If the report has no data, prints the reason. With `pass`, the
/// command's own exit code is passed on.
pub(super) fn of_outcome(outcome: &Outcome, pass: bool, console: &Console) -> u8 {
    if let Some(process) = &outcome.none_traced {
        of_error(&Error::NoneTraced(process.clone()), console);
    }
    if let Some(name) = &outcome.nothing_selected {
        of_error(&filter::nothing_seen(name), console);
    }
    code_of(outcome, pass)
}

/// Returns the exit code of a run that wrote its report. With `pass`, the command's own exit code is passed on.
fn code_of(outcome: &Outcome, pass: bool) -> u8 {
    match outcome.command {
        _ if let Some(process) = &outcome.none_traced => Exit::from(process.reason).code(),
        _ if outcome.nothing_selected.is_some() => Exit::NoProcess.code(),
        // 128 plus the signal, as in shells: bash(1), EXIT STATUS. A code has 8 bits (wait(2)).
        Some(CommandEnd::Signal(signal)) if pass => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        Some(CommandEnd::Code(code)) if pass => u8::try_from(code).unwrap_or(u8::MAX),
        _ if outcome.losses.unexpected() > 0 || !outcome.complete => Exit::Lossy.code(),
        _ => Exit::Success.code(),
    }
}

/// Returns the exit of `doctor`. If several checks failed, the first in the order of [`Area`] decides: a trace would fail there
/// first.
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

    use memtrace_model::{Comm, EventClass, LossReason, Losses, Pid, UntracedProcess};
    use memtrace_report::Format;

    use super::*;
    use crate::run_kit::error::AllocatorUser;

    #[test]
    fn codes_are_unique_and_ascending() {
        assert!(Exit::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }

    #[test]
    fn every_error_has_its_code() {
        let pid = Pid(1);
        let none_traced =
            |reason| Error::NoneTraced(UntracedProcess { pid, comm: Comm::default(), exe: None, reason, rss: None });
        let source = || io::Error::from(io::ErrorKind::NotFound);
        let text = String::new;
        let errors = [
            (Error::Failed(text()), 1),
            (Error::NotWritten(Vec::new()), 1),
            (Error::NoSuchProcess { pid }, 3),
            (Error::Ended { pid }, 3),
            (Error::Permission { action: text(), capability: text() }, 4),
            (Error::Kernel { missing: text(), remedy: text() }, 5),
            (Error::NoAllocator { target: AllocatorUser::Process(pid), examined: Vec::new() }, 6),
            (Error::NoProfile { target: AllocatorUser::Process(pid), reason: text() }, 6),
            (none_traced(UntracedReason::Go), 6),
            (none_traced(UntracedReason::GoVersion), 6),
            (none_traced(UntracedReason::GoUnreadable), 8),
            (none_traced(UntracedReason::Unreadable), 8),
            (Error::Output { path: "x".into(), source: source() }, 7),
            (Error::Socket { path: "x".into(), source: source() }, 7),
            (Error::Untraceable { pid, reason: text(), remedy: text() }, 8),
            (Error::BadObject { path: "x".into(), reason: text() }, 9),
            (Error::Command { program: "x".into(), source: source() }, 10),
            (Error::OverBudget { estimated: "12 %".into(), allowed: "10 %".into() }, 11),
            (Error::CannotMeasure { message: text(), remedy: text() }, 8),
            (Error::NotRecorded { message: text(), remedy: text() }, 2),
            (Error::TagPreset { preset: "skynet", program: "x".into(), reason: text(), remedy: text() }, 2),
            (Error::BadReport { path: "x".into(), reason: text() }, 12),
            (Error::NotComparable { message: text(), remedy: text() }, 2),
            (Error::NotInFormat { class: EventClass::Reclaim, format: Format::Heaptrack }, 2),
        ];
        for (error, code) in errors {
            assert_eq!(Exit::from(&error).code(), code, "{error:?}");
        }
    }

    #[test]
    fn losses_determine_the_exit_code() {
        let mut outcome = Outcome {
            losses: Losses::default(),
            command: None,
            complete: true,
            none_traced: None,
            nothing_selected: None,
        };
        assert_eq!(code_of(&outcome, false), 0);
        outcome.complete = false;
        assert_eq!(code_of(&outcome, false), 20);
        outcome.complete = true;
        outcome.losses.add(LossReason::SizeUnknown, 1);
        assert_eq!(code_of(&outcome, false), 0);
        outcome.losses.add(LossReason::RingFullAlloc, 1);
        assert_eq!(code_of(&outcome, false), 20);
    }

    #[test]
    fn commands_exit_code_is_passed_on_request() {
        let ended = |command| Outcome {
            losses: Losses::default(),
            command,
            complete: true,
            none_traced: None,
            nothing_selected: None,
        };
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
    fn doctor_exits_with_the_first_failure_of_a_run() {
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

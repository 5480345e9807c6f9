//! Why a run could not do its work. Each variant has an exit code of its own.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::model::Pid;

pub(crate) mod from_engines;

/// Why a run could not do its work. The text says what is wrong; [`Error::remedy`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No process has this pid.
    #[error("there is no process {pid}")]
    NoSuchProcess {
        /// The pid that was asked for.
        pid: Pid,
    },
    /// The process was there and ended before every probe was in place.
    #[error("process {pid} ended while memtrace was attaching to it")]
    Ended {
        /// The process.
        pid: Pid,
    },
    /// The kernel refused for lack of a capability.
    #[error("{action} is not permitted: it needs {capability}")]
    Permission {
        /// What was refused, as a noun: `loading a BPF program`.
        action: String,
        /// What would allow it: `CAP_BPF`.
        capability: String,
    },
    /// The kernel lacks something that memtrace cannot do without.
    #[error("this kernel lacks {missing}")]
    Kernel {
        /// What it lacks, as a noun: `ring buffers (Linux 5.8)`.
        missing: String,
        /// What to do about it, as a sentence without its full stop.
        remedy: String,
    },
    /// Nothing that the process has mapped is an allocator that memtrace knows.
    #[error("process {pid} has no allocator that memtrace knows; looked at: {}", paths(looked_at))]
    NoAllocator {
        /// The process.
        pid: Pid,
        /// The objects that were looked at.
        looked_at: Vec<PathBuf>,
    },
    /// An output cannot be opened. Found before the first probe is attached.
    #[error("cannot write to {}: {source}", path.display())]
    Output {
        /// The output; `-` is standard output.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The pid names something that cannot be traced: a kernel thread, or a thread that is not its process' first.
    #[error("{pid} cannot be traced: {reason}")]
    Untraceable {
        /// The pid that was asked for.
        pid: Pid,
        /// Why: `it is a kernel thread`.
        reason: String,
        /// What to do about it, as a sentence without its full stop.
        remedy: String,
    },
    /// A file that the target has mapped is cut short or contradicts itself.
    #[error("{} is damaged: {reason}", path.display())]
    BadObject {
        /// The file, as the target sees it.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The command could not be started.
    #[error("cannot start {}: {source}", program.display())]
    Command {
        /// The program as it was given.
        program: OsString,
        /// What the system said.
        source: io::Error,
    },
    /// Processes are chosen by something that is not there.
    #[error("{what}")]
    NothingSelected {
        /// What is wrong: `there is no user frobnicator`.
        what: String,
        /// What to do about it, as a sentence without its full stop.
        remedy: String,
    },
    /// Tracing would slow the target down by more than was allowed.
    #[error("tracing would take the target about {foretold} more processor time, and --max-overhead allows {allowed}")]
    TooDear {
        /// What was foretold, with its unit: `35 %`.
        foretold: String,
        /// What was allowed, with its unit.
        allowed: String,
    },
    /// Anything else that went wrong while running; the text says all.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// What the user can do about it, as a sentence without its full stop; `None` where there is no general advice.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::NoSuchProcess { .. } => "`pgrep -a NAME` finds a program's pid; for a process in a container, give \
                                           the pid that the host sees"
                .into(),
            Self::Ended { .. } => {
                "to trace a program from its very start, let memtrace start it: `memtrace -- CMD`".into()
            }
            Self::Permission { .. } => "run memtrace with sudo; `memtrace doctor` lists what it needs".into(),
            Self::Kernel { remedy, .. } | Self::Untraceable { remedy, .. } | Self::NothingSelected { remedy, .. } => {
                remedy.clone()
            }
            Self::NoAllocator { pid, .. } => {
                format!(
                    "memtrace finds whatever defines malloc and free; `memtrace doctor --pid {pid}` says what there is, and --hook names others"
                )
            }
            Self::Output { .. } => "nothing was traced; name another file with --output".into(),
            Self::BadObject { .. } => "the file may have been replaced since the process was started; compare it with \
                                       the one in its package"
                .into(),
            Self::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the name, or give the program's whole path: sudo may have changed PATH".into()
            }
            Self::TooDear { .. } => "nothing was traced; allow more, or trace when less is allocated".into(),
            Self::Command { .. } | Self::Failed(_) => return None,
        })
    }
}

fn paths(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return "nothing, no file with code being mapped".into();
    }
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_what_was_looked_at() {
        let error = |looked_at: &[&str]| {
            Error::NoAllocator { pid: Pid(7), looked_at: looked_at.iter().map(PathBuf::from).collect() }.to_string()
        };
        assert_eq!(
            error(&["/usr/bin/hugo", "[vdso]"]),
            "process 7 has no allocator that memtrace knows; looked at: /usr/bin/hugo, [vdso]"
        );
        assert_eq!(
            error(&[]),
            "process 7 has no allocator that memtrace knows; looked at: nothing, no file with code being mapped"
        );
    }
}

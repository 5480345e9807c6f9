//! Errors of a run. Each variant has one exit code; several variants share a code.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use memtrace_host::procfs::ReadRefusal;
use memtrace_model::{Bytes, EventClass, Pid, UntracedProcess, format, printable};
use memtrace_object::probe_site::ExitRefusal;
use memtrace_object::symbolize::FunctionError;
use memtrace_report::Format;

pub(crate) mod from_engines;

/// Number of descriptors of a run: one for each BPF program, map and link, with a margin. Without uprobe_multi links,
/// each probe needs another descriptor.
const NEEDED_DESCRIPTORS: u64 = 512;

/// Error of a run. [`Error::remedy`] returns the advice for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no process {pid}")]
    NoSuchProcess { pid: Pid },
    /// The process exited before every probe was in place.
    #[error("process {pid} ended while memtrace was attaching to it")]
    Ended { pid: Pid },
    #[error("not permitted to {action}: it needs {capability}")]
    Permission {
        /// The refused action, as a verb: `load a BPF program`.
        action: String,
        /// The missing capability: `CAP_BPF`.
        capability: String,
    },
    /// Reading a process is refused although memtrace has the capability for it.
    #[error("not permitted to read process {pid}: {refusal}")]
    Refused { pid: Pid, refusal: ReadRefusal },
    /// The kernel lacks a required feature.
    #[error("this kernel lacks {missing}")]
    Kernel {
        /// The feature, as a noun: `bpf_find_vma (Linux 5.17)`.
        missing: String,
        /// Advice, as a sentence without its full stop.
        remedy: String,
    },
    /// No mapped object of the target contains an allocator that memtrace knows.
    #[error("{target} has no allocator that memtrace knows; examined: {}", paths(examined))]
    NoAllocator { target: AllocatorUser, examined: Vec<PathBuf> },
    /// The target is a Go program, and its own heap profile cannot be read.
    #[error("{target} has neither an allocator nor a heap profile that memtrace can read: {reason}")]
    NoProfile {
        target: AllocatorUser,
        /// The reason: `the layout of the heap profile of go1.18 is not known`.
        reason: String,
    },
    /// No process in scope could be traced. Detected at the end of the run.
    #[error(
        "no process in scope can be traced; the largest is {} ({}): {}",
        .0.comm,
        .0.pid,
        .0.reason.explanation()
    )]
    NoneTraced(UntracedProcess),
    /// An output cannot be opened. Detected before the first probe is attached.
    #[error("cannot write to {}: {source}", printable(path))]
    Output {
        /// Path of the output; `-` for standard output.
        path: PathBuf,
        source: io::Error,
    },
    /// The socket for marks cannot be used. Detected before the first probe is attached.
    #[error("cannot listen on {}: {source}", printable(path))]
    Socket { path: PathBuf, source: io::Error },
    /// A function of `--mark-on` is not found. Detected before tracing starts.
    #[error("cannot set marks on {}: {source}", printable(std::path::Path::new(function)))]
    MarkFunction {
        /// File and function: `server:handle`.
        function: String,
        source: FunctionError,
    },
    /// A function that is to change the current tag is not found. Detected before tracing starts.
    #[error("cannot take tags from {}: {source}", printable(std::path::Path::new(function)))]
    TagFunction {
        /// Name of the function, with its file if the user gave one.
        function: String,
        source: FunctionError,
    },
    /// The returns of a function that is named by `within=` or `during=` cannot be probed. Detected before tracing starts.
    #[error(
        "cannot take tags from the calls of {}: they may not all end at a known return instruction, and a uretprobe would disturb exceptions or the runtime of the program",
        printable(std::path::Path::new(function))
    )]
    TagReturns { function: String },
    /// The target does not run the program of a preset. Detected before tracing starts.
    #[error("the preset {preset} does not fit {}: {reason}", printable(program))]
    TagPreset {
        /// Name of the preset: `mariadb:class`.
        preset: &'static str,
        /// Executable of the target.
        program: PathBuf,
        /// The reason: `it has no build ID`.
        reason: String,
        /// Advice, as a sentence without its full stop.
        remedy: String,
    },
    /// The objects have no user probes that change the current tag. Detected before tracing starts.
    #[error("cannot take tags from the probes of {}: {source}", probed(object.as_deref()))]
    TagProbes {
        /// File with the probes; `None` for all objects of the targets.
        object: Option<PathBuf>,
        source: FunctionError,
    },
    /// The objects have no user probes of tasks, locks or events. Detected before tracing starts.
    #[error("cannot trace tasks by the probes of {}: {source}", probed(object.as_deref()))]
    SpanProbes {
        /// File with the probes; `None` for all objects of the targets.
        object: Option<PathBuf>,
        source: FunctionError,
    },
    /// A function of `--span` is not found. Detected before tracing starts.
    #[error("cannot trace calls of {function}: {source}")]
    SpanFunction { function: String, source: FunctionError },
    /// The ends of the calls of a function of `--span` cannot be probed. Detected before tracing starts.
    #[error("cannot trace the ends of calls of {function}: {source}")]
    SpanExits { function: String, source: ExitRefusal },
    /// The pid belongs to a kernel thread, to a thread other than the main thread, or to a process without its main
    /// thread.
    #[error("{pid} cannot be traced: {reason}")]
    Untraceable {
        pid: Pid,
        /// The reason: `it is a kernel thread`.
        reason: String,
        /// Advice, as a sentence without its full stop.
        remedy: String,
    },
    /// A file that the target has mapped is truncated or inconsistent.
    #[error("{} is damaged: {reason}", printable(path))]
    BadObject {
        /// The file, as the target sees it.
        path: PathBuf,
        reason: String,
    },
    /// A saved report cannot be read.
    #[error("cannot read the report {}: {reason}", printable(path))]
    BadReport { path: PathBuf, reason: String },
    /// Two reports cannot be compared.
    #[error("{message}")]
    NotComparable {
        /// The error: `the first report has heap events, the second map events`.
        message: String,
        /// Advice, as a sentence without its full stop.
        remedy: String,
    },
    /// An output has a format that cannot hold the events.
    #[error("{} events are not written as {}, a format of memory", class.name(), format.name())]
    NotInFormat { class: EventClass, format: Format },
    /// The command could not be started.
    #[error("cannot start {}: {source}", printable(program))]
    Command {
        /// The first word of the command.
        program: OsString,
        source: io::Error,
    },
    /// No process matches the selection.
    #[error("{message}")]
    NothingSelected {
        /// The error: `there is no user frobnicator`.
        message: String,
        /// Advice, as a sentence without its full stop.
        remedy: String,
    },
    /// The estimated overhead exceeds the limit.
    #[error("tracing would cost the target about {estimated}, and --max-overhead allows {allowed}")]
    OverBudget {
        /// The estimate: `35 % more processor time (12 % of one processor)`.
        estimated: String,
        /// The limit, with its unit.
        allowed: String,
    },
    /// The requested measurement or trace is not possible now.
    #[error("{message}")]
    CannotMeasure {
        /// The reason: `the cgroup /x also contains process 7`.
        message: String,
        /// Advice, as a sentence without its full stop.
        remedy: String,
    },
    /// A recording cannot be read.
    #[error("cannot read the recording {}: {source}", printable(path))]
    Recording { path: PathBuf, source: memtrace_history::Error },
    /// The recording lacks something that an option needs.
    #[error("{message}")]
    NotRecorded {
        /// The error: `the recording has no mark "a"`.
        message: String,
        /// Advice, as a sentence without its full stop.
        remedy: String,
    },
    /// Reports could not be written at the end of the run.
    #[error("{}", failures(.0))]
    NotWritten(Vec<NotWritten>),
    /// The smallest maps, rings and ledgers exceed the memory limit.
    #[error("memtrace needs {required} of memory, and {} {limit}", if *is_option { "--memory-limit allows" } else { "its memory cgroup leaves" })]
    Memory {
        limit: Bytes,
        required: Bytes,
        /// True if `--memory-limit` sets the limit, false if a cgroup does.
        is_option: bool,
    },
    /// The kernel refuses an allocation of memory.
    #[error("cannot {action}: out of memory")]
    OutOfMemory {
        /// The failed operation.
        action: String,
    },
    /// The limit of open files is too low.
    #[error("cannot {action}: memtrace may not open more files")]
    OutOfDescriptors {
        /// The failed operation.
        action: String,
    },
    /// Any other failure; the text is the whole message.
    #[error("{0}")]
    Failed(String),
}

/// A report that could not be written to its output.
#[derive(Debug)]
pub(crate) struct NotWritten {
    /// Path of the output; `-` for standard output.
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
    /// Path of the rescue file; `None` if the report could not be written to one.
    pub(crate) rescue: Option<PathBuf>,
}

impl Error {
    /// Returns advice for the user, as a sentence without its full stop; `None` if there is none.
    #[must_use]
    pub(crate) fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::NoSuchProcess { .. } => "`pgrep -a NAME` lists the pids of running processes; for a process in a \
                                           container, give its pid on the host"
                .into(),
            Self::Ended { .. } => "to trace a command from its start, let memtrace start it: `memtrace -- CMD`".into(),
            Self::Refused { refusal, .. } if let Some(remedy) = refusal.remedy() => remedy.into(),
            Self::Permission { .. } | Self::Refused { .. } => {
                "run memtrace with sudo; `memtrace doctor` lists the capabilities that it needs".into()
            }
            Self::Kernel { remedy, .. }
            | Self::Untraceable { remedy, .. }
            | Self::NothingSelected { remedy, .. }
            | Self::CannotMeasure { remedy, .. }
            | Self::TagPreset { remedy, .. }
            | Self::NotRecorded { remedy, .. }
            | Self::NotComparable { remedy, .. } => remedy.clone(),
            Self::NotInFormat { class, .. } => {
                let names = Format::OF_STACKS.iter().filter(|format| format.holds(*class)).map(|format| format.name());
                format!("choose one of the formats {}", names.collect::<Vec<_>>().join(", "))
            }
            Self::Recording { source: memtrace_history::Error::Newer { .. }, .. } => {
                "use the version of memtrace that made it, or a newer one".into()
            }
            Self::Recording { source: memtrace_history::Error::Empty, .. } => "wait for the end of its first interval".into(),
            Self::Recording { .. } => "give a file that `memtrace record` has made".into(),
            Self::MarkFunction { .. } => {
                "give the path of the file on this machine, and a function of its symbols: `nm -C FILE` and `nm -DC FILE` list them".into()
            }
            Self::TagFunction { .. } => {
                "name a function of the target's executable or libraries, or give its file, as in set=/usr/bin/server:set_module(id=arg0): `nm -C FILE` and `nm -DC FILE` list the functions of a file".into()
            }
            Self::TagReturns { .. } => {
                "name a function that allocates the blocks and has neither a jump table nor a jump to another function at its end, such as one that calls it".into()
            }
            Self::TagProbes { .. } => {
                "build the program with memtrace.h or the crate memtrace-probes, and do not strip its section headers: `readelf -n FILE` lists the probes of a file".into()
            }
            Self::SpanProbes { .. } => {
                "build the program with memtrace.h or the crate memtrace-probes, and do not strip its section headers: `readelf -n FILE` lists the probes of a file; or name functions, as in --span /usr/bin/server:handle_request".into()
            }
            Self::SpanFunction { source: FunctionError::Unmatched { similar }, .. } if !similar.is_empty() => {
                let names: Vec<_> = similar.iter().map(|name| format!("`{}`", printable(name))).collect();
                format!("did you mean {}?", names.join(" or "))
            }
            Self::SpanFunction { source: FunctionError::TooMany(_), .. } => {
                "give more of the name, such as its namespace or its parameters, or a symbol that `nm FILE` lists".into()
            }
            Self::SpanFunction { source: FunctionError::Cloned, .. } => {
                "leave out the label, as in --span /usr/bin/server:handle_request".into()
            }
            Self::SpanFunction { .. } => {
                "name a function with its file, as in --span /usr/bin/server:handle_request: `nm -C FILE` and `nm -DC FILE` list the functions of a file".into()
            }
            Self::SpanExits { .. } => "name a function that calls it, or one that it calls".into(),
            Self::BadReport { .. } => "give a report that memtrace wrote with `-o FILE.json`, or a recording".into(),
            Self::NoAllocator { target: AllocatorUser::Process(pid), .. } => {
                format!(
                    "`memtrace explain --pid {pid}` shows its memory without tracing, and `memtrace faults --pid {pid}` traces the memory of any process; `memtrace doctor --pid {pid}` lists the allocators, and --hook adds others"
                )
            }
            Self::NoAllocator { target: AllocatorUser::Command(_), .. } => {
                "memtrace finds every object that defines malloc and free; the command was not started; if other \
                 processes that it starts are to be traced, start it in a shell: `memtrace -- sh -c CMD`"
                    .into()
            }
            Self::NoProfile { .. } => {
                "build the program with Go 1.19 to 1.27 and import runtime/pprof; `memtrace explain` shows its memory, and \
                 `memtrace faults` traces the memory of any process"
                    .into()
            }
            Self::NoneTraced(_) => {
                "the report lists the processes that are not traced with their reasons; `memtrace explain` shows \
                                    their memory, and page faults need no allocator: `memtrace faults`"
                    .into()
            }
            Self::Output { .. } => "nothing was traced; give another file with --output".into(),
            Self::Socket { .. } => "nothing was traced; give a path to --socket at which no file exists".into(),
            Self::BadObject { .. } => "the file may have been replaced since the process started; compare it with \
                                       the one in its package"
                .into(),
            Self::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the name, or give the absolute path: sudo may have changed PATH".into()
            }
            Self::OverBudget { .. } => {
                "nothing was traced; raise --max-overhead, or trace at a time with fewer allocations; `memtrace explain` \
                 costs the target nothing"
                    .into()
            }
            Self::NotWritten(failures) => return rescued(failures),
            Self::Memory { required, is_option: true, .. } => {
                format!("nothing was traced; give --memory-limit {} or more", format::size_argument(required.0))
            }
            Self::Memory { .. } => {
                "nothing was traced; raise the limit of the cgroup, or run memtrace in another one".into()
            }
            Self::OutOfMemory { .. } => "BPF maps count towards the memory cgroup of memtrace; give a lower \
                                         --memory-limit, or run it in a cgroup with more memory"
                .into(),
            Self::OutOfDescriptors { .. } => format!(
                "memtrace needs about {NEEDED_DESCRIPTORS} open files; raise the hard limit: `ulimit -Hn {NEEDED_DESCRIPTORS}`"
            ),
            Self::Command { .. } | Self::Failed(_) => return None,
        })
    }
}

fn failures(failures: &[NotWritten]) -> String {
    let list = failures.iter().map(|NotWritten { path, source, .. }| format!("{}: {source}", printable(path)));
    format!("cannot write the report to {}", list.collect::<Vec<_>>().join("; and to "))
}

/// Returns a sentence that names the rescue files; `None` if there are none.
fn rescued(failures: &[NotWritten]) -> Option<String> {
    let paths = failures.iter().filter_map(|failure| failure.rescue.as_deref());
    let paths = paths.map(printable).collect::<Vec<_>>();
    (!paths.is_empty()).then(|| format!("the report was written to {} instead", paths.join(" and ")))
}

/// Process or command without a known allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AllocatorUser {
    Process(Pid),
    /// The first word of a command that was not started.
    Command(OsString),
}

impl fmt::Display for AllocatorUser {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(out, "process {pid}"),
            Self::Command(command) => write!(out, "{}", printable(command)),
        }
    }
}

fn probed(object: Option<&Path>) -> String {
    object.map_or_else(|| String::from("the targets"), |object| printable(object).to_string())
}

fn paths(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return "none, since no file with code is mapped".into();
    }
    paths.iter().map(|path| printable(path)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rescue_files_are_named() {
        let full = |path: &str, rescue: Option<&str>| NotWritten {
            path: path.into(),
            source: io::Error::from_raw_os_error(libc::ENOSPC),
            rescue: rescue.map(PathBuf::from),
        };
        let one = Error::NotWritten(vec![full("a.svg", Some("/var/tmp/memtrace-1-a.svg"))]);
        assert_eq!(one.to_string(), "cannot write the report to a.svg: No space left on device (os error 28)");
        assert_eq!(one.remedy().unwrap(), "the report was written to /var/tmp/memtrace-1-a.svg instead");
        let two = Error::NotWritten(vec![full("a.svg", Some("/x/a")), full("-", None), full("b.json", Some("/x/b"))]);
        let space = "No space left on device (os error 28)";
        let expected = format!("cannot write the report to a.svg: {space}; and to -: {space}; and to b.json: {space}");
        assert_eq!(two.to_string(), expected);
        assert_eq!(two.remedy().unwrap(), "the report was written to /x/a and /x/b instead");
        assert_eq!(Error::NotWritten(vec![full("a.svg", None)]).remedy(), None);
    }

    #[test]
    fn message_lists_the_examined_objects() {
        let error = |examined: &[&str]| {
            let target = AllocatorUser::Process(Pid(7));
            Error::NoAllocator { target, examined: examined.iter().map(PathBuf::from).collect() }.to_string()
        };
        assert_eq!(
            error(&["/usr/bin/hugo", "/lib/libm.so"]),
            "process 7 has no allocator that memtrace knows; examined: /usr/bin/hugo, /lib/libm.so"
        );
        assert_eq!(
            error(&[]),
            "process 7 has no allocator that memtrace knows; examined: none, since no file with code is mapped"
        );
    }
}

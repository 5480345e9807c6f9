//! Reasons why the code of a process is not changed.

use std::io;

use memtrace_model::plain;
use serde::{Deserialize, Serialize};

/// Maximum number of threads of a patched process. More threads would be stopped for too long.
pub(super) const MAX_THREADS: usize = 4096;

/// Reason why the code of a process is not changed. The process runs as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum PatchRefusal {
    /// The user has not permitted it.
    #[error("--allow-patching is not given")]
    NotAllowed,
    /// The processor is not supported.
    #[error("code is changed on x86-64 only")]
    Architecture,
    /// The process runs 32-bit code.
    #[error("it is a 32-bit process")]
    Bits32,
    /// The process has no dynamic loader.
    #[error("it is statically linked")]
    Static,
    /// The process has not mapped glibc.
    #[error("it has not mapped glibc")]
    NoLibc,
    /// The thread header of this version of the C library was not examined.
    #[error("its glibc has the unknown version {}", plain(.0))]
    LibcVersion(String),
    /// The process has mapped musl.
    #[error("its C library is musl, which has no free word for each thread")]
    Musl,
    /// The allocator has no sites, or no stub can be made for it.
    #[error("its allocator cannot be patched: {}", plain(.0))]
    Allocator(String),
    /// Another process traces a thread by ptrace(2).
    #[error("process {0} traces it, such as a debugger or strace")]
    Traced(u32),
    /// The code differs from the file: a breakpoint, a uprobe or another patch.
    #[error("the code of {} has changed in memory: {bytes}", plain(function))]
    Foreign { function: String, bytes: String },
    /// A seccomp filter does not permit the system calls, or is not known.
    #[error("seccomp: {}", plain(.0))]
    Seccomp(String),
    /// memtrace runs under a seccomp filter, so the filters of the process cannot be read.
    #[error("it has seccomp filters, which memtrace cannot read because memtrace runs under one itself")]
    OwnSeccomp,
    /// A policy of the kernel forbids new executable memory.
    #[error("a policy of the kernel forbids executable memory in it: {}", error_text(.0))]
    MemoryPolicy(i32),
    /// A system call for the stub failed.
    #[error("the stub cannot be mapped: {}", error_text(.0))]
    MapDenied(i32),
    /// The process uses a shadow stack.
    #[error("it uses a shadow stack")]
    ShadowStack,
    /// A thread did not stop in time.
    #[error("a thread does not stop: it waits in the kernel, perhaps for a child of vfork or for a file system")]
    NotStopping,
    /// The process changes its user.
    #[error("it is changing its user")]
    SetUid,
    /// Another process uses the same memory, as a child of vfork(2) until its exec: its threads would not be stopped.
    #[error("another process uses the same memory")]
    SharedMemory,
    /// The process, or its main thread, has exited or is exiting, also by a crash that writes a core dump.
    #[error("it has exited, or its main thread has")]
    Exiting,
    /// The process executes another program.
    #[error("it is executing another program")]
    ExecInProgress,
    /// The cgroup of the process is frozen.
    #[error("its cgroup is frozen")]
    Frozen,
    /// There is no free address range near the allocator.
    #[error("it has no free addresses near its allocator")]
    NoRoom,
    /// The stack of the main thread has too little room, or the main thread runs on another stack.
    #[error("its main thread has too little stack, or runs on another stack")]
    NoStack,
    /// The free words of a thread header are in use, or the header is not glibc's.
    #[error("a header of its threads is not glibc's, or its free words are in use")]
    HeaderInUse,
    /// A running memtrace samples the process. The pid is 0 if another process has locked the stub: a memtrace in another PID
    /// namespace, or the process itself.
    #[error("{}", owner_text(.0))]
    Owned(u32),
    /// Another version of memtrace has mapped its stub.
    #[error("another version of memtrace has patched it")]
    OtherVersion,
    /// The kernel does not let memtrace write to read-only memory.
    #[error("the kernel does not permit writes to its code (proc_mem.force_override)")]
    MemForce,
    /// memtrace lacks a permission.
    #[error("no permission: {}", plain(.0))]
    Permission(String),
    /// The process changed while it was examined.
    #[error("it was busy: its threads or mappings changed during the attach")]
    Busy,
    /// The process has too many threads.
    #[error("it has more than {} threads", MAX_THREADS)]
    TooManyThreads,
    /// The patcher did not answer in time.
    #[error("the process memtrace-patcher did not answer in time")]
    Timeout,
    /// The patcher could not be started, or has ended.
    #[error("the process memtrace-patcher failed: {}", plain(.0))]
    Patcher(String),
}

impl PatchRefusal {
    /// Returns the name of the reason in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::Architecture => "architecture",
            Self::Bits32 => "32_bit",
            Self::Static => "static",
            Self::NoLibc => "no_libc",
            Self::LibcVersion(_) => "libc_version",
            Self::Musl => "musl",
            Self::Allocator(_) => "allocator",
            Self::Traced(_) => "traced",
            Self::Foreign { .. } => "foreign_code",
            Self::Seccomp(_) => "seccomp",
            Self::OwnSeccomp => "own_seccomp",
            Self::MemoryPolicy(_) => "memory_policy",
            Self::MapDenied(_) => "map_denied",
            Self::ShadowStack => "shadow_stack",
            Self::NotStopping => "not_stopping",
            Self::SetUid => "set_uid",
            Self::SharedMemory => "shared_memory",
            Self::Exiting => "exiting",
            Self::ExecInProgress => "exec_in_progress",
            Self::Frozen => "frozen",
            Self::NoRoom => "no_room",
            Self::NoStack => "no_stack",
            Self::HeaderInUse => "header_in_use",
            Self::Owned(_) => "owned",
            Self::OtherVersion => "other_version",
            Self::MemForce => "mem_force",
            Self::Permission(_) => "permission",
            Self::Busy => "busy",
            Self::TooManyThreads => "too_many_threads",
            Self::Timeout => "timeout",
            Self::Patcher(_) => "patcher",
        }
    }

    /// Returns advice for the user; `None` if there is nothing to do about the reason.
    #[must_use]
    pub const fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotAllowed => "give --allow-patching, which changes code of the process",
            Self::Traced(_) => "end the other tracer",
            Self::Foreign { .. } => "end the tool that has changed the code, such as a tracer with breakpoints",
            Self::OwnSeccomp => {
                "run memtrace without a seccomp filter; as a service, with the unit memtrace-patching.service"
            }
            Self::Seccomp(_) => "run the process without this filter, or trace it without --allow-patching",
            Self::MemoryPolicy(_) => {
                "permit executable mappings: MemoryDenyWriteExecute= of its unit, SELinux, AppArmor, vm.memfd_noexec"
            }
            Self::Frozen => "thaw its cgroup",
            Self::Owned(_) => "end the other memtrace first",
            Self::OtherVersion => "call `memtrace detach` of the version that has patched it, or restart the process",
            Self::MemForce => "start the kernel with proc_mem.force_override=ptrace or always",
            Self::Permission(_) => "run memtrace as root of the host",
            Self::Bits32 | Self::Static | Self::NoLibc | Self::LibcVersion(_) | Self::Musl | Self::Allocator(_) => {
                "trace each call, without --allow-patching"
            }
            Self::NotStopping
            | Self::SetUid
            | Self::SharedMemory
            | Self::ExecInProgress
            | Self::NoStack
            | Self::Busy
            | Self::MapDenied(_)
            | Self::Timeout
            | Self::Patcher(_) => "try again",
            Self::Architecture
            | Self::ShadowStack
            | Self::Exiting
            | Self::NoRoom
            | Self::HeaderInUse
            | Self::TooManyThreads => return None,
        })
    }

    /// Returns true if a later attempt can succeed, although nobody changes anything.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::NotStopping
                | Self::SetUid
                | Self::SharedMemory
                | Self::ExecInProgress
                | Self::Frozen
                | Self::NoStack
                | Self::Busy
                | Self::MapDenied(_)
                | Self::Timeout
                | Self::Patcher(_)
        )
    }
}

/// Returns the text for a process that is sampled already. `pid`: the memtrace; 0 if it is not known.
fn owner_text(pid: &u32) -> String {
    match *pid {
        0 => String::from(
            "another process has locked its stub, such as a memtrace in another PID namespace that samples it",
        ),
        pid => format!("memtrace {pid} samples it already"),
    }
}

/// Returns the text of an error of a system call.
fn error_text(errno: &i32) -> io::Error {
    io::Error::from_raw_os_error(*errno)
}

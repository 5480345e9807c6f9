//! Conversion of errors of `host` and `object` to errors for the user.

use std::io;

use memtrace_host::kernel::KernelError;
use memtrace_host::launch::LaunchError;
use memtrace_host::patcher::PatchRefusal;
use memtrace_host::procfs::{self, ProcessError, ReadRefusal};
use memtrace_model::{Pid, printable};
use memtrace_object::allocators::{AllocatorError, Verdict};

use super::{AllocatorUser, Error};

/// Converts a kernel error. `pid`: the process that the error is about, if there is one.
pub(crate) fn kernel(pid: Option<Pid>, error: KernelError) -> Error {
    match (error, pid) {
        (KernelError::Permission { action, .. }, _) => Error::Permission {
            action,
            capability: format!(
                "CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON if the kernel accepts these for probes{}",
                if procfs::in_root_user_namespace() { "" } else { ", in the root user namespace: on the host" }
            ),
        },
        (KernelError::Unsupported { action, reason }, _) => Error::Kernel {
            missing: format!("support to {action}: {reason}"),
            remedy: String::from("`memtrace doctor` lists the features of this kernel"),
        },
        (KernelError::TooOld { release }, _) => Error::Kernel {
            missing: format!(
                "bpf_find_vma (Linux 5.17), by which BPF programs find the file at an address: it is Linux {release}"
            ),
            remedy: String::from("boot Linux 5.17 or newer"),
        },
        (KernelError::OutOfMemory { action }, _) => Error::OutOfMemory { action },
        (KernelError::OutOfDescriptors { action }, _) => Error::OutOfDescriptors { action },
        (KernelError::LockedMemory { holder }, _) => Error::CannotMeasure {
            message: format!(
                "no probes can be attached now: {holder} holds the lock of its memory map and waits, and no process of \
                 this machine could fork while probes are inserted"
            ),
            remedy: format!(
                "end process {}, or the server that it waits for: `findmnt --types fuse,nfs,nfs4` lists the mounts",
                holder.pid
            ),
        },
        (KernelError::TargetEnded, Some(pid)) => Error::Ended { pid },
        (
            error @ (KernelError::TargetEnded
            | KernelError::RefusedInstruction { .. }
            | KernelError::NoMemory { .. }
            | KernelError::NotInserted { .. }
            | KernelError::Failed { .. }),
            _,
        ) => Error::Failed(error.to_string()),
    }
}

/// Converts an error about the process `pid`.
pub(crate) fn process(pid: Pid, error: ProcessError) -> Error {
    let untraceable = |pid, reason: &str, remedy: String| Error::Untraceable { pid, reason: reason.to_owned(), remedy };
    match error {
        ProcessError::NoSuchProcess(pid) => Error::NoSuchProcess { pid },
        ProcessError::Exited(pid) => Error::Ended { pid },
        ProcessError::KernelThread { pid, comm } => untraceable(
            pid,
            &format!("it is the kernel thread {comm}, which has no memory of its own"),
            String::from("choose a process"),
        ),
        ProcessError::Thread { pid, of } => {
            untraceable(pid, &format!("it is a thread of process {of}"), format!("give --pid {of}"))
        }
        ProcessError::MainThreadExited(pid) => untraceable(
            pid,
            "its main thread has exited while others run",
            String::from("such a process cannot be traced"),
        ),
        ProcessError::Permission { refusal: ReadRefusal::Capability, .. } => Error::Permission {
            action: format!("read process {pid}"),
            capability: String::from("CAP_SYS_PTRACE, in addition to CAP_BPF and CAP_PERFMON"),
        },
        ProcessError::Permission { refusal, .. } => Error::Refused { pid, refusal },
        ProcessError::Locked(pid) => untraceable(
            pid,
            "it holds a lock of its memory and waits, perhaps for a FUSE or NFS server",
            String::from("`findmnt --types fuse,nfs,nfs4` lists the mounts"),
        ),
        error @ (ProcessError::Proc { .. } | ProcessError::Pidfd { .. }) => Error::Failed(error.to_string()),
    }
}

/// Converts the reason why the process `pid` cannot be patched. A patch is the only way to sample this process.
pub(crate) fn patching(pid: Pid, refusal: &PatchRefusal) -> Error {
    let remedy = refusal.remedy().unwrap_or("trace each call, without --allow-patching");
    Error::Untraceable { pid, reason: refusal.to_string(), remedy: remedy.to_owned() }
}

/// Converts an error about the allocators of a process or a command.
pub(crate) fn allocators(target: AllocatorUser, error: AllocatorError) -> Error {
    match error {
        AllocatorError::NotFound { examined } => {
            // Only a file has an absolute path. Code without a file has a name in brackets, such as [vdso].
            let unopened =
                examined.iter().find(|object| object.verdict == Verdict::NotOpened && object.path.is_absolute());
            let missing = procfs::missing_for_mapped_files();
            if let Some(object) = unopened.filter(|_| !missing.is_empty()) {
                return Error::Permission {
                    action: format!("open {}, which {target} has mapped", printable(&object.path)),
                    capability: missing.join(" and "),
                };
            }
            Error::NoAllocator { target, examined: examined.iter().map(|object| object.to_string().into()).collect() }
        }
        AllocatorError::BadObject { path, reason } => Error::BadObject { path, reason },
    }
}

/// Converts an error about a command.
pub(crate) fn launch(error: LaunchError) -> Error {
    match error {
        LaunchError::NotFound { command } => {
            let source = io::Error::new(io::ErrorKind::NotFound, "no such file in PATH");
            Error::Command { program: command, source }
        }
        LaunchError::NotRunnable { command, source } => Error::Command { program: command, source },
        error @ (LaunchError::Start { .. } | LaunchError::Exited(_) | LaunchError::BadIdentity { .. }) => {
            Error::Failed(error.to_string())
        }
    }
}

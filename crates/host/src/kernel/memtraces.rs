//! Processes of the memtraces that run: their main processes, and the children that read names and files.
//!
//! A trace of the whole machine leaves these processes out. A name does not suffice to recognize them, because any process could
//! hide behind it. A main process has a capability that tracers need, and runs the executable of this memtrace or holds a BPF
//! program of memtrace. A child has a recognized parent and runs the executable of its parent.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use aya_obj::generated::bpf_cmd::{BPF_PROG_GET_FD_BY_ID, BPF_PROG_GET_NEXT_ID};
use memtrace_model::{Comm, Pid};

use super::bpf_syscall::{next_id, open_by_id, program_info};
use super::file_id;
use crate::privileges::CapabilitySet;
use crate::procfs::{self, Credentials, HeldObjects};
use crate::target_files::facts_at;

/// Maximum number of BPF programs of the machine that are examined.
const MAX_PROGRAMS: usize = 1 << 14;

/// Parent of all kernel threads (`kthreadd`, kernel/kthread.c). They have all capabilities, and hold no descriptors.
const KTHREADD: Pid = Pid(2);

/// User id of root.
const ROOT: u32 = 0;

/// Processes of memtraces, and executables that recognize later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memtraces {
    processes: Vec<MemtraceProcess>,
    executables: Vec<MemtraceExecutable>,
}

/// Running process of a memtrace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemtraceProcess {
    pub pid: Pid,
    pub comm: Comm,
    /// True for a child of this memtrace.
    pub is_own: bool,
    /// Start of the process, in clock ticks since the boot. A later process with the same pid has another start.
    start: u64,
}

impl MemtraceProcess {
    /// Returns true if the process runs.
    pub(super) fn runs(&self) -> bool {
        procfs::start_time(self.pid) == Some(self.start)
    }

    /// Returns true if no later process has the pid.
    pub(super) fn is_latest(&self) -> bool {
        procfs::start_time(self.pid).is_none_or(|start| start == self.start)
    }
}

/// Executable of a memtrace. The processes that a user runs with it belong to memtrace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemtraceExecutable {
    /// Path that leads to the file.
    pub(super) path: PathBuf,
    /// Device and inode as `stat` returns them.
    pub(super) file: (u64, u64),
    /// Real user id.
    pub(super) user: u32,
    /// True if only the children of memtraces are recognized. A user other than root could run the executable with other code,
    /// for example by `LD_PRELOAD`.
    pub(super) needs_parent: bool,
}

/// A process that was recognized.
#[derive(Clone, Copy)]
struct Recognized {
    pid: Pid,
    user: u32,
    file: (u64, u64),
    is_own: bool,
    /// True if it was recognized by its parent.
    is_child: bool,
}

impl Memtraces {
    /// Finds the processes of memtraces that run. If they cannot be found, the log says so, and they are traced.
    #[must_use]
    pub fn find() -> Self {
        let failed = |error: &io::Error| log::warn!("the processes of other memtraces are traced: {error}");
        Self::recognize().inspect_err(failed).unwrap_or_default()
    }

    /// Returns the processes, without the main process of this memtrace.
    #[must_use]
    pub fn processes(&self) -> &[MemtraceProcess] {
        &self.processes
    }

    pub(super) fn executables(&self) -> &[MemtraceExecutable] {
        &self.executables
    }

    fn recognize() -> io::Result<Self> {
        let programs = programs().inspect_err(|error| log::info!("cannot list the BPF programs: {error}"));
        let programs = programs.unwrap_or_default();
        let all = procfs::all_credentials()?;
        let own = Pid(std::process::id());
        let mut recognized = Vec::new();
        for &Credentials { pid, user, .. } in all.iter().filter(|process| process.pid == own) {
            let file = executable(pid).ok_or(io::ErrorKind::NotFound)?;
            recognized.push(Recognized { pid, user, file, is_own: true, is_child: false });
        }
        let Some(&this) = recognized.first() else { return Err(io::ErrorKind::NotFound.into()) };
        for process in all.iter().filter(|process| process.pid != own && is_privileged(process)) {
            let Credentials { pid, user, .. } = *process;
            let Some(file) = executable(pid) else { continue };
            // Capabilities count only in the user namespace that has BPF.
            if (file == this.file || holds_any(pid, &programs)) && procfs::is_in_own_user_namespace(pid) {
                recognized.push(Recognized { pid, user, file, is_own: false, is_child: false });
            }
        }
        add_children(&mut recognized, &all);
        Ok(Self {
            executables: executables(this, &recognized),
            processes: recognized.iter().skip(1).filter_map(Recognized::describe).collect(),
        })
    }
}

impl Recognized {
    /// Reads the name and the start of the process; returns `None` if it has exited.
    fn describe(&self) -> Option<MemtraceProcess> {
        let &Self { pid, is_own, .. } = self;
        Some(MemtraceProcess { pid, comm: procfs::comm(pid)?.into(), is_own, start: procfs::start_time(pid)? })
    }
}

/// Returns the executables of memtraces. `this` is this memtrace.
fn executables(this: Recognized, recognized: &[Recognized]) -> Vec<MemtraceExecutable> {
    let own = |user, needs_parent| MemtraceExecutable {
        path: procfs::own_program().to_owned(),
        file: this.file,
        user,
        needs_parent,
    };
    let mut found = vec![own(ROOT, false)];
    if this.user != ROOT {
        found.push(own(this.user, true));
    }
    for other in recognized.iter().filter(|other| !other.is_child && other.user == ROOT) {
        if found.iter().all(|known| known.file != other.file) {
            let path = procfs::proc_path(other.pid, "exe");
            found.push(MemtraceExecutable { path, file: other.file, user: ROOT, needs_parent: false });
        }
    }
    found
}

/// Adds the children of recognized processes that belong to memtrace, and their children.
fn add_children(recognized: &mut Vec<Recognized>, all: &[Credentials]) {
    let mut next = 0;
    while let Some(&parent) = recognized.get(next) {
        next += 1;
        let is_known = |pid| recognized.iter().any(|known| known.pid == pid);
        let of_parent = all.iter().filter(|child| child.parent == Some(parent.pid) && !is_known(child.pid));
        let candidates = of_parent.filter(|child| executable(child.pid) == Some(parent.file));
        let mut children: Vec<_> = candidates
            .map(|&Credentials { pid, user, .. }| Recognized { pid, user, is_child: true, ..parent })
            .collect();
        if children.is_empty() {
            continue;
        }
        // The command that a memtrace traces is its child too, and can run any executable. memtrace holds a pidfd of its
        // command. This memtrace has no command.
        if !parent.is_own {
            match HeldObjects::of(parent.pid) {
                Ok(held) => children.retain(|child| !held.processes.contains(&child.pid)),
                Err(error) => {
                    log::info!("the children of process {} are traced: {error}", parent.pid);
                    children.clear();
                }
            }
        }
        recognized.append(&mut children);
    }
}

/// Returns true if a process can trace, as far as its capabilities show.
pub(super) fn is_privileged(process: &Credentials) -> bool {
    let is_kernel_thread = process.pid == KTHREADD || process.parent == Some(KTHREADD);
    !is_kernel_thread && process.capabilities.intersects(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN)
}

/// Returns the device and the inode of the executable; `None` if the process has exited.
fn executable(pid: Pid) -> Option<(u64, u64)> {
    facts_at(&procfs::proc_path(pid, "exe")).ok().map(|facts| (facts.device, facts.inode))
}

/// Returns true if a process holds one of these programs.
fn holds_any(pid: Pid, programs: &BTreeSet<u32>) -> bool {
    !programs.is_empty() && HeldObjects::of(pid).is_ok_and(|held| !held.programs.is_disjoint(programs))
}

/// Returns the ids of the loaded programs that only memtraces have.
///
/// # Errors
///
/// Errors of bpf(2), such as `EPERM` without `CAP_SYS_ADMIN`.
pub(super) fn programs() -> io::Result<BTreeSet<u32>> {
    let (mut found, mut last) = (BTreeSet::new(), 0);
    for _ in 0..MAX_PROGRAMS {
        let Some(id) = next_id(BPF_PROG_GET_NEXT_ID, last)? else { break };
        last = id;
        // The program can have been unloaded.
        let Ok(info) = open_by_id(BPF_PROG_GET_FD_BY_ID, id).and_then(|program| program_info(program.as_fd())) else {
            continue;
        };
        let name = info.name.iter().map(|letter| letter.to_ne_bytes()[0]).take_while(|byte| *byte != 0);
        if name.eq(file_id::MAPPED.bytes()) {
            found.insert(id);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const FILE: (u64, u64) = (1, 7);

    fn process(pid: u32, user: u32, file: (u64, u64)) -> Recognized {
        Recognized { pid: Pid(pid), user, file, is_own: false, is_child: false }
    }

    #[test]
    fn executables_of_root_suffice_and_others_need_a_parent() {
        let shown = |this: Recognized, others: &[Recognized]| {
            let all: Vec<_> = std::iter::once(this).chain(others.iter().copied()).collect();
            let found = executables(this, &all);
            found.iter().map(|found| (found.file, found.user, found.needs_parent)).collect::<Vec<_>>()
        };
        let own = process(9, ROOT, FILE);
        assert_eq!(shown(own, &[process(10, ROOT, FILE)]), [(FILE, ROOT, false)]);
        let other = (1, 8);
        assert_eq!(shown(own, &[process(10, ROOT, other)]), [(FILE, ROOT, false), (other, ROOT, false)]);
        assert_eq!(shown(own, &[process(10, 1000, other)]), [(FILE, ROOT, false)], "user 1000 could run other code");
        assert_eq!(shown(process(9, 1000, FILE), &[]), [(FILE, ROOT, false), (FILE, 1000, true)]);
    }

    #[test]
    fn privileges_are_those_of_tracers() {
        let own = Credentials { pid: Pid(9), parent: Some(Pid(1)), user: ROOT, capabilities: CapabilitySet::SYS_ADMIN };
        assert!(is_privileged(&own));
        assert!(is_privileged(&Credentials { capabilities: CapabilitySet::BPF, ..own }));
        assert!(!is_privileged(&Credentials { capabilities: CapabilitySet::NET_ADMIN, ..own }));
        assert!(!is_privileged(&Credentials { parent: Some(KTHREADD), ..own }), "a kernel thread");
    }

    #[test]
    fn child_with_another_executable_is_no_memtrace() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let found = Memtraces::find();
        let own = Pid(std::process::id());
        assert!(found.processes().iter().all(|process| process.pid != own && process.pid != Pid(child.id())));
        assert!(found.executables().iter().any(|known| Some(known.file) == executable(own)));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn reused_pid_belongs_to_another_process() {
        let own = Recognized { pid: Pid(std::process::id()), ..process(0, ROOT, FILE) }.describe().unwrap();
        assert!(own.runs() && own.is_latest());
        let earlier = MemtraceProcess { start: own.start + 1, ..own };
        assert!(!earlier.runs() && !earlier.is_latest());
        let ended = MemtraceProcess { pid: Pid(u32::MAX), ..earlier };
        assert!(!ended.runs() && ended.is_latest());
    }
}

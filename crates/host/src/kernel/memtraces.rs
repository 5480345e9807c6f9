//! Processes of the memtraces that run: their main processes, and the children that read names and files.
//!
//! A trace of the whole machine leaves these processes out. A name does not suffice to recognize them, because any process
//! could hide behind it. A main process has a capability that tracers need, and runs the executable of this memtrace or holds a
//! BPF program of memtrace. A child has a recognized parent and runs the executable of its parent.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use aya_obj::generated::bpf_cmd::{BPF_PROG_GET_FD_BY_ID, BPF_PROG_GET_NEXT_ID};
use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_RAW_TRACEPOINT;
use memtrace_common::wire::TRACER_CAPABILITIES;
use memtrace_model::{Comm, Pid};

use super::bpf_syscall::{next_id, open_by_id, program_info};
use super::file_id;
use crate::privileges::CapabilitySet;
use crate::procfs::{self, Credentials, HeldObjects};
use crate::target_files::facts_at;

/// Maximum number of BPF programs of the machine that are examined.
const MAX_PROGRAMS: usize = 1 << 14;

/// Time limit for the search for the holders of BPF programs. A user without privileges can start set-user-ID programs, and
/// give them any number of descriptors.
const TIME: Duration = Duration::from_millis(500);

/// Maximum number of generations between a process of memtrace and the main process.
const MAX_GENERATIONS: usize = 4;

/// User id of root.
const ROOT: u32 = 0;

/// Processes of memtraces, and executables that recognize later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memtraces {
    processes: Vec<MemtraceProcess>,
    executables: Vec<MemtraceExecutable>,
    is_cut: bool,
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
    /// Device and inode of the executable as `stat` returns them.
    pub(super) file: (u64, u64),
    /// True if root runs the main process of the memtrace.
    is_of_root: bool,
}

impl MemtraceProcess {
    /// Returns true if the process runs the same executable.
    pub(super) fn runs(&self) -> bool {
        procfs::start_time(self.pid) == Some(self.start) && executable(self.pid) == Some(self.file)
    }

    /// Returns true if no later process has the pid.
    pub(super) fn is_latest(&self) -> bool {
        procfs::start_time(self.pid).is_none_or(|start| start == self.start)
    }
}

/// Executable of a memtrace. The processes with this executable and this user belong to memtrace.
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
    start: u64,
    file: (u64, u64),
    is_own: bool,
    /// True if the process was recognized because its parent was recognized.
    is_child: bool,
    is_of_root: bool,
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

    /// Returns true if there can be more processes, because there was not enough time to find them.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns true if a filter that was made from this value leaves out `process`, which was found later.
    #[must_use]
    pub fn leaves_out(&self, process: &MemtraceProcess) -> bool {
        let is_same = |known: &MemtraceProcess| (known.pid, known.start) == (process.pid, process.start);
        let is_known = |known: &MemtraceExecutable| !known.needs_parent && known.file == process.file;
        self.processes.iter().any(is_same) || process.is_of_root && self.executables.iter().any(is_known)
    }

    fn recognize() -> io::Result<Self> {
        let programs = programs().inspect_err(|error| log::info!("cannot list the BPF programs: {error}"));
        let programs = programs.unwrap_or_default();
        let all = procfs::all_credentials()?;
        let own = Pid(std::process::id());
        let this = Recognized::main(own, |_| true).ok_or(io::ErrorKind::NotFound)?;
        let this = Recognized { is_own: true, ..this };
        let (mut recognized, mut is_cut) = (vec![this], false);
        let begin = Instant::now();
        // Only a process that can trace is examined, because the file systems of other user namespaces can be slow to answer.
        for process in all.iter().filter(|process| process.pid != own && can_trace(process)) {
            let is_memtrace = |file: (u64, u64)| {
                if file == this.file {
                    return true;
                }
                is_cut |= !programs.is_empty() && begin.elapsed() > TIME;
                !is_cut && holds_any(process.pid, &programs)
            };
            recognized.extend(Recognized::main(process.pid, is_memtrace));
        }
        add_children(&mut recognized, &all);
        Ok(Self {
            executables: executables(this, &recognized),
            processes: recognized.iter().skip(1).filter_map(Recognized::describe).collect(),
            is_cut,
        })
    }
}

impl Recognized {
    /// Examines a process that can be the main process of a memtrace; `is_memtrace` gets its executable. Returns `None` if the
    /// process is not a main process, or has exited.
    fn main(pid: Pid, is_memtrace: impl FnOnce((u64, u64)) -> bool) -> Option<Self> {
        // The start is read first: if a later process gets the pid, it has another start.
        let start = procfs::start_time(pid)?;
        let file = executable(pid)?;
        if !is_memtrace(file) {
            return None;
        }
        // The process can have given up its capabilities and called exec since they were read, as a login does.
        let now = procfs::credentials(pid)?;
        let is_same = pid == Pid(std::process::id()) || can_trace(&now) && executable(pid) == Some(file);
        let user = now.user;
        is_same.then_some(Self { pid, user, start, file, is_own: false, is_child: false, is_of_root: user == ROOT })
    }

    /// Examines a child that can be a process of this memtrace. Returns `None` if the child is no such process, or has exited.
    fn child(&self, pid: Pid) -> Option<Self> {
        let start = procfs::start_time(pid)?;
        let is_same = executable(pid) == Some(self.file);
        let now = procfs::credentials(pid).filter(|now| is_same && now.parent == Some(self.pid))?;
        Some(Self { pid, user: now.user, start, is_child: true, ..*self })
    }

    /// Reads the name of the process; returns `None` if it has exited.
    fn describe(&self) -> Option<MemtraceProcess> {
        let &Self { pid, start, file, is_own, is_of_root, .. } = self;
        Some(MemtraceProcess { pid, comm: procfs::comm(pid)?.into(), is_own, start, file, is_of_root })
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
        let mut children: Vec<_> = of_parent.filter_map(|child| parent.child(child.pid)).collect();
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

/// Returns true if a process can trace: it has a capability of tracers, in the user namespace that has BPF. Users without
/// privileges can have any number of processes with all capabilities in other user namespaces.
pub(super) fn can_trace(process: &Credentials) -> bool {
    is_privileged(process) && procfs::is_in_own_user_namespace(process.pid)
}

/// Returns true if process `pid`, which runs the executable `file` of a memtrace, belongs to memtrace: the process can
/// trace, or an ancestor that runs `file` too can trace. `needs_parent`: true if only the capabilities of an ancestor
/// count. The capabilities of the process itself do not count.
pub(super) fn is_of_memtrace(pid: Pid, file: (u64, u64), needs_parent: bool) -> bool {
    // The process has exited, so its capabilities are unknown. It counts as a process of memtrace unless it needs a parent.
    let Some(process) = procfs::credentials(pid) else { return !needs_parent };
    if !needs_parent && can_trace(&process) {
        return true;
    }
    // Children that read files have given up their capabilities.
    let parent = |process: &Credentials| procfs::credentials(process.parent?);
    let ancestors = std::iter::successors(parent(&process), parent).take(MAX_GENERATIONS);
    let mut of_memtrace = ancestors.take_while(|process| executable(process.pid) == Some(file));
    of_memtrace.any(|process| process.pid.0 == std::process::id() || can_trace(&process))
}

/// Returns true if a process can trace, as far as its capabilities show.
fn is_privileged(process: &Credentials) -> bool {
    // Kernel threads have all capabilities, and hold no descriptors.
    process.has_memory && process.capabilities.intersects(CapabilitySet::from_bits_retain(TRACER_CAPABILITIES))
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
        // Only this type counts: anyone who may load a socket filter can give it any name, and pass it to another process.
        let is_for_tracers = info.type_ == BPF_PROG_TYPE_RAW_TRACEPOINT as u32;
        let name = info.name.iter().map(|letter| letter.to_ne_bytes()[0]).take_while(|byte| *byte != 0);
        if is_for_tracers && name.eq(file_id::MAPPED.bytes()) {
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
        let is_of_root = user == ROOT;
        Recognized { pid: Pid(pid), user, start: 0, file, is_own: false, is_child: false, is_of_root }
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
        let capabilities = CapabilitySet::SYS_ADMIN;
        let own = Credentials { pid: Pid(9), parent: Some(Pid(2)), user: ROOT, capabilities, has_memory: true };
        assert!(is_privileged(&own));
        assert!(is_privileged(&Credentials { capabilities: CapabilitySet::BPF, ..own }));
        assert!(!is_privileged(&Credentials { capabilities: CapabilitySet::NET_ADMIN, ..own }));
        assert!(!is_privileged(&Credentials { has_memory: false, ..own }), "a kernel thread");
    }

    #[test]
    fn child_without_capabilities_is_recognized_by_its_parents() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (own, pid) = (executable(Pid(std::process::id())).unwrap(), Pid(child.id()));
        assert!(is_of_memtrace(pid, own, true));
        assert!(!is_of_memtrace(pid, FILE, true), "its parent runs another executable");
        assert!(!is_of_memtrace(Pid(1), own, true));
        drop(child.stdin.take());
        child.wait().unwrap();
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
    fn child_has_the_executable_of_its_parent() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (own, pid) = (Pid(std::process::id()), Pid(child.id()));
        let parent = |pid: Pid, file| process(pid.0, ROOT, file);
        let file = executable(pid).unwrap();
        assert!(parent(own, file).child(pid).is_some_and(|found| found.is_child && found.pid == pid));
        assert!(parent(own, FILE).child(pid).is_none());
        assert!(parent(pid, file).child(pid).is_none(), "another parent, as after a reuse of the pid");
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn later_processes_are_left_out_if_the_filter_knows_them() {
        let later = |is_of_root, file| MemtraceProcess {
            pid: Pid(10),
            comm: Comm::from("memtrace"),
            is_own: false,
            start: 5,
            file,
            is_of_root,
        };
        let (main, other) = (process(9, ROOT, FILE), (1, 8));
        let known = Memtraces { executables: executables(main, &[main]), ..Memtraces::default() };
        assert!(known.leaves_out(&later(true, FILE)));
        assert!(!known.leaves_out(&later(false, FILE)), "the memtrace of another user");
        assert!(!known.leaves_out(&later(true, other)), "an unknown executable");
        let known = Memtraces { processes: vec![later(false, other)], ..known };
        assert!(known.leaves_out(&later(false, other)));
        assert!(!known.leaves_out(&MemtraceProcess { start: 6, ..later(false, other) }), "a reused pid");
    }

    #[test]
    fn reused_pid_belongs_to_another_process() {
        let own = Recognized::main(Pid(std::process::id()), |_| true).unwrap().describe().unwrap();
        assert!(own.runs() && own.is_latest());
        assert!(!MemtraceProcess { file: FILE, ..own.clone() }.runs(), "it has called exec");
        let earlier = MemtraceProcess { start: own.start + 1, ..own };
        assert!(!earlier.runs() && !earlier.is_latest());
        let ended = MemtraceProcess { pid: Pid(u32::MAX), ..earlier };
        assert!(!ended.runs() && ended.is_latest());
    }
}

//! Reasons to refuse a process that are visible from outside. Nothing is stopped or changed.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use memtrace_model::Pid;
use memtrace_object::overlay::layout::{CODE_SIZE, MAGIC, StubHeader};

use super::enable::refuse_other_owner;
use super::seccomp;
use super::target::{memory_refusal, process_refusal, shares_memory};
use crate::patcher::protocol::is_of_other_version;
use crate::patcher::refusal::{MAX_THREADS, PatchRefusal};
use crate::privileges::{CapabilitySet, effective_capabilities};
use crate::procfs::{self, ControlValues, PatchedStub, TaskStatus, locks};

/// Maximum number of threads that are compared with the main thread. Each thread is examined again when it is traced.
const MAX_COMPARED: usize = 256;
/// After a program with other privileges than its caller has started, it can change its user for this time.
const START: Duration = Duration::from_secs(1);

/// Returns the reasons to refuse a process. `looks_for_libc`: also examines which C library the process has mapped. `own`: the
/// memtrace that may already take samples of the process.
pub(in crate::patcher) fn refusals(pid: Pid, looks_for_libc: bool, own: u32) -> Vec<PatchRefusal> {
    let Ok(status) = procfs::task_status(pid, pid.0) else { return vec![PatchRefusal::Exiting] };
    if procfs::is_ending(pid) || status.dumps_core {
        return vec![PatchRefusal::Exiting];
    }
    let mut refusals = Vec::new();
    refusals.extend(of_access(pid, own));
    refusals.extend(of_threads(pid, &status));
    refusals.extend(of_program(pid));
    refusals.extend(of_seccomp(&status));
    if looks_for_libc {
        refusals.extend(of_libc(pid));
    }
    if procfs::is_frozen(pid) {
        refusals.push(PatchRefusal::Frozen);
    }
    if shares_memory(pid) {
        refusals.push(PatchRefusal::SharedMemory);
    }
    refusals
}

/// Examines whether the memory of the process can be opened. Examines the stubs of the process too. Opening the memory
/// needs the same permission as ptrace(2).
fn of_access(pid: Pid, own: u32) -> Vec<PatchRefusal> {
    let memory = match procfs::open_memory_for_writing(pid) {
        Ok(memory) => memory,
        Err(error) => return vec![memory_refusal(&error)],
    };
    let stubs = match procfs::stubs(pid) {
        Ok(stubs) => stubs,
        Err(error) => return vec![process_refusal(&error)],
    };
    // Only memtrace itself looks for the lock. The patcher cannot tell the lock of its memtrace from another lock.
    let looks_for_lock = own == std::process::id();
    let read = move || {
        let state = |stub: PatchedStub| -> io::Result<_> {
            let mut header = [0; size_of::<StubHeader>()];
            memory.read_exact_at(&mut header, stub.base.0)?;
            let values = ControlValues::read(&memory, stub.base.0.saturating_add(CODE_SIZE))?;
            Ok((header, values, looks_for_lock && stub.is_locked(pid)))
        };
        // A stub that cannot be read has been unmapped.
        Ok(stubs.into_iter().filter_map(|stub| state(stub).ok()).collect::<Vec<_>>())
    };
    let states = match locks::read(pid, read) {
        Ok(states) => states,
        Err(error) => return vec![memory_refusal(&error)],
    };
    states.iter().filter_map(|(header, values, is_locked)| of_stub(header, values, *is_locked, own)).collect()
}

/// Examines a stub. A stub without a header was never completed, and is no reason to refuse the process. `is_locked`: true if another
/// process has locked its file.
fn of_stub(header: &[u8], values: &ControlValues, is_locked: bool, own: u32) -> Option<PatchRefusal> {
    if header.starts_with(&MAGIC) {
        // The control page names an owner in this PID namespace only. The process could forge it, but at its own expense.
        refuse_other_owner(values, own).err().or_else(|| is_locked.then_some(PatchRefusal::Owned(0)))
    } else {
        is_of_other_version(header).then_some(PatchRefusal::OtherVersion)
    }
}

/// Compares the threads of the process with its main thread.
fn of_threads(pid: Pid, main: &TaskStatus) -> Option<PatchRefusal> {
    if main.threads as usize > MAX_THREADS {
        return Some(PatchRefusal::TooManyThreads);
    }
    let tasks = procfs::tasks(pid).unwrap_or_default();
    let mut statuses = tasks.into_iter().take(MAX_COMPARED).filter_map(|tid| procfs::task_status(pid, tid).ok());
    statuses.find_map(|status| of_thread(&status, main))
}

fn of_thread(status: &TaskStatus, main: &TaskStatus) -> Option<PatchRefusal> {
    if status.tracer != 0 {
        Some(PatchRefusal::Traced(status.tracer))
    } else if status.has_shadow_stack {
        Some(PatchRefusal::ShadowStack)
    } else if status.users != main.users {
        // The C library lets all threads change their user, one by one (nptl(7)).
        Some(PatchRefusal::SetUid)
    } else {
        None
    }
}

/// Refuses a program with 32-bit code, and a program that has just got other privileges.
fn of_program(pid: Pid) -> Option<PatchRefusal> {
    match procfs::auxiliary_vector(pid) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Some(PatchRefusal::Bits32),
        Err(_) => None,
        Ok(entries) => {
            let is_secure = entries.contains(&(libc::AT_SECURE, 1));
            let is_young = is_secure && procfs::age(pid).is_none_or(|age| age < START);
            is_young.then_some(PatchRefusal::SetUid)
        }
    }
}

/// Examines whether the patcher can read the filters of the process. Only a stop of the process shows what the filters
/// permit.
fn of_seccomp(status: &TaskStatus) -> Option<PatchRefusal> {
    match status.seccomp {
        seccomp::NONE => None,
        seccomp::FILTERS => of_filters(),
        _ => Some(PatchRefusal::Seccomp(String::from("the strict mode"))),
    }
}

/// Returns true if the process has seccomp filters. What they permit is only known when it has stopped.
#[must_use]
pub fn has_seccomp_filters(pid: Pid) -> bool {
    procfs::task_status(pid, pid.0).is_ok_and(|status| status.seccomp == seccomp::FILTERS)
}

fn of_filters() -> Option<PatchRefusal> {
    if has_own_filter() {
        Some(PatchRefusal::OwnSeccomp)
    } else if effective_capabilities().contains(CapabilitySet::SYS_ADMIN) {
        None
    } else {
        Some(PatchRefusal::Seccomp(String::from("its filters cannot be read without CAP_SYS_ADMIN")))
    }
}

/// Returns true if this process runs under a seccomp filter.
fn has_own_filter() -> bool {
    // SAFETY: the call takes nothing, and writes nothing.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) != 0 }
}

/// Examines which C library the process has mapped, by its name.
fn of_libc(pid: Pid) -> Option<PatchRefusal> {
    let mappings = match procfs::mappings(pid) {
        Ok(mappings) => mappings,
        Err(error) => return Some(process_refusal(&error)),
    };
    libc_refusal(mappings.iter().filter(|entry| entry.file.is_some()).map(|entry| entry.path.as_path()))
}

fn libc_refusal<'a>(paths: impl Iterator<Item = &'a Path>) -> Option<PatchRefusal> {
    let (mut has_loader, mut has_musl) = (false, false);
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // The kernel adds ` (deleted)` to the name of a file that was replaced by an update.
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        // Older versions of glibc have names such as libc-2.31.so.
        if name == "libc.so.6" || name.starts_with("libc-2.") {
            return None;
        }
        has_musl |= name.starts_with("ld-musl-") || name.starts_with("libc.musl-");
        has_loader |= name.starts_with("ld-") || name.starts_with("ld.so");
    }
    Some(match (has_musl, has_loader) {
        (true, _) => PatchRefusal::Musl,
        (false, true) => PatchRefusal::NoLibc,
        (false, false) => PatchRefusal::Static,
    })
}

#[cfg(test)]
mod tests {
    use harness::fixtures::Running;

    use super::*;

    fn status() -> TaskStatus {
        procfs::task_status(Pid(std::process::id()), std::process::id()).unwrap()
    }

    #[test]
    fn threads_with_a_tracer_or_another_user_are_refused() {
        let main = TaskStatus { tracer: 0, users: [1; 4], has_shadow_stack: false, ..status() };
        assert_eq!(of_thread(&main, &main), None);
        assert_eq!(of_thread(&TaskStatus { tracer: 9, ..main }, &main), Some(PatchRefusal::Traced(9)));
        assert_eq!(of_thread(&TaskStatus { users: [1, 0, 1, 1], ..main }, &main), Some(PatchRefusal::SetUid));
        assert_eq!(of_thread(&TaskStatus { has_shadow_stack: true, ..main }, &main), Some(PatchRefusal::ShadowStack));
        let crowd = TaskStatus { threads: 4097, ..main };
        assert_eq!(of_threads(Pid(std::process::id()), &crowd), Some(PatchRefusal::TooManyThreads));
    }

    #[test]
    fn strict_mode_is_refused() {
        assert_eq!(of_seccomp(&TaskStatus { seccomp: 0, ..status() }), None);
        assert!(matches!(of_seccomp(&TaskStatus { seccomp: 1, ..status() }), Some(PatchRefusal::Seccomp(_))));
    }

    #[test]
    fn c_library_is_known_by_its_name() {
        let of = |paths: &[&str]| libc_refusal(paths.iter().map(Path::new));
        assert_eq!(of(&["/bin/cat", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]), None);
        assert_eq!(of(&["/lib/x86_64-linux-gnu/libc-2.31.so"]), None);
        assert_eq!(of(&["/lib/x86_64-linux-gnu/libc.so.6 (deleted)"]), None);
        assert_eq!(of(&["/bin/cat", "/lib/ld-musl-x86_64.so.1"]), Some(PatchRefusal::Musl));
        assert_eq!(of(&["/bin/cat", "/lib64/ld-linux-x86-64.so.2"]), Some(PatchRefusal::NoLibc));
        assert_eq!(of(&["/bin/busybox"]), Some(PatchRefusal::Static));
        assert_eq!(of(&[]), Some(PatchRefusal::Static));
    }

    #[test]
    fn stubs_of_other_versions_and_owners_are_refused() {
        let own = std::process::id();
        let start = procfs::start_time(Pid(own)).unwrap();
        let values = ControlValues { owner: (own.into(), start), ..ControlValues::default() };
        let found = |header: &[u8], is_locked, memtrace| of_stub(header, &values, is_locked, memtrace);
        for is_locked in [false, true] {
            assert_eq!(found(b"MTSTUB01", is_locked, 1), Some(PatchRefusal::Owned(own)), "{is_locked}");
        }
        assert_eq!(found(b"MTSTUB01", false, own), None);
        assert_eq!(found(b"MTSTUB01", true, own), Some(PatchRefusal::Owned(0)), "a memtrace in another PID namespace");
        assert_eq!(found(b"MTSTUB99", false, own), Some(PatchRefusal::OtherVersion));
        assert_eq!(found(&[0; 64], true, 1), None, "it was never completed");
    }

    #[test]
    fn ordinary_process_is_accepted() {
        let running = Running::start("cat");
        let found = refusals(running.pid(), true, 0);
        // A test can run without the permission, or under a filter that its children inherit.
        let is_expected = |refusal: &PatchRefusal| {
            matches!(refusal, PatchRefusal::Permission(_) | PatchRefusal::OwnSeccomp | PatchRefusal::Seccomp(_))
        };
        assert!(found.iter().all(is_expected), "{found:?}");
        let pid = running.pid();
        running.end();
        assert_eq!(refusals(pid, true, 0), [PatchRefusal::Exiting]);
    }
}

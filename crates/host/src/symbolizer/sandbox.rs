//! Restrictions of the server and of workers.
//!
//! The server has no capability, and is the user *nobody* if memtrace is root. A worker has limits of memory and time, and a
//! seccomp filter that permits only a few system calls, and opens files only for reading. If the kernel has Landlock, a worker
//! can open only the files of its request.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::time::Duration;

use landlock::{
    ABI, Access as _, AccessFs, PathBeneath, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
};
use memtrace_model::Pid;
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;
use rustix::process::{
    Gid, Resource, Rlimit, Signal, Uid, geteuid, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};
use rustix::stdio::dup2_stdin;
use rustix::thread::{set_name, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::protocol::Call;
use crate::privileges::{CapabilitySet, forbid_dumps, keep_capabilities, reduce_bounding_set, refuse_new_privileges};
use crate::procfs::{self, kernel_files};

/// User and group without rights: *nobody* (`DEFAULT_OVERFLOWUID`, include/linux/highuid.h).
const NOBODY: u32 = 65534;

/// Gives up the privileges of memtrace.
pub(super) fn give_up_privileges() -> io::Result<()> {
    set_name(c"memtrace-names")?;
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != parent {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    // This needs CAP_SETPCAP, which `become_nobody` gives up.
    reduce_bounding_set(CapabilitySet::empty())?;
    if geteuid().is_root() {
        become_nobody()?;
    }
    keep_capabilities(CapabilitySet::empty())?;
    refuse_new_privileges()?;
    // The kernel forgets this signal when credentials change (`commit_creds`, kernel/cred.c).
    set_parent_process_death_signal(Some(Signal::KILL))?;
    forbid_dumps()?;
    limit(Resource::Core, 0)
}

/// Changes the user and the groups. A container may lack the capability to do this, or have no such user. The process then
/// keeps its user, without capabilities.
fn become_nobody() -> io::Result<()> {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    let changed = set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(group, group, group))
        .and_then(|()| set_thread_res_uid(user, user, user));
    match changed {
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        changed => Ok(changed?),
    }
}

/// Restricts a worker to reading `files`, within the limits of `call`. Returns false if it can read other files too, because
/// the kernel has no Landlock.
pub(super) fn restrict_worker<'a>(call: Call, files: impl Iterator<Item = &'a File>) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The worker inherits the server's socket as its standard input.
    dup2_stdin(kernel_files::open("/dev/null")?)?;
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default action needs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let own = procfs::counted(Pid(std::process::id())).map_err(io::Error::other)?.virtual_size;
    limit(Resource::As, own.0.saturating_add(call.memory))?;
    // The process gets SIGXCPU at the current limit, and SIGKILL at the maximum (setrlimit(2)).
    let seconds = call.deadline().max(Duration::from_secs(1)).as_secs() + 1;
    limit_from_to(Resource::Cpu, seconds, seconds + 1)?;
    limit(Resource::Nproc, 0)?;
    let is_confined = permit_files(files)?;
    filter_calls()?;
    Ok(is_confined)
}

fn limit(resource: Resource, value: u64) -> io::Result<()> {
    limit_from_to(resource, value, value)
}

/// Sets both limits. A lower limit that is already in force stays.
fn limit_from_to(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    let within = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let (current, maximum) = (current.min(within), maximum.min(within));
    Ok(setrlimit(resource, Rlimit { current: Some(current), maximum: Some(maximum) })?)
}

fn is_sealed(file: &File) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::WRITE))
}

/// Forbids access to all files except `files`. Returns false if the kernel has no Landlock (Linux 5.13,
/// CONFIG_SECURITY_LANDLOCK).
fn permit_files<'a>(files: impl Iterator<Item = &'a File>) -> io::Result<bool> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    // A copy is in a file system without a path, which Landlock neither restricts nor accepts in a rule
    // (`is_nouser_or_private`, security/landlock/fs.c).
    for file in files.filter(|file| !is_sealed(file)) {
        ruleset = ruleset.add_rule(PathBeneath::new(file, AccessFs::ReadFile)).map_err(io::Error::other)?;
    }
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Returns true if the kernel has Landlock, and it is turned on (landlock_create_ruleset(2)).
pub fn has_landlock() -> bool {
    const VERSION: libc::c_long = 1;
    // SAFETY: with this flag, the call reads no memory, and creates nothing.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, VERSION) };
    version > 0
}

/// Refuses all system calls except [`PERMITTED`], openat(2) for reading, and an abort.
fn filter_calls() -> io::Result<()> {
    let reads = equal(2, u64::from((libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC).cast_unsigned()), 0)?;
    let own = equal(0, u32::MAX.into(), std::process::id().into())?;
    let abort = equal(2, u32::MAX.into(), u64::from(libc::SIGABRT.cast_unsigned()))?;
    let rule = |conditions| SeccompRule::new(conditions).map(|rule| vec![rule]).map_err(io::Error::other);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = PERMITTED.iter().map(|&call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_openat, rule(vec![reads])?);
    let commands = [libc::F_GETFD, libc::F_GETFL, libc::F_DUPFD_CLOEXEC];
    let commands = commands.map(|command| {
        let is_command = equal(1, u32::MAX.into(), u64::from(command.cast_unsigned()))?;
        SeccompRule::new(vec![is_command]).map_err(io::Error::other)
    });
    rules.insert(libc::SYS_fcntl, commands.into_iter().collect::<io::Result<_>>()?);
    rules.insert(libc::SYS_tgkill, rule(vec![own, abort])?);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

/// Returns the condition that the bits `mask` of an argument have this value.
fn equal(argument: u8, mask: u64, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), value)
        .map_err(io::Error::other)
}

/// System calls of a worker, besides openat(2): it reads files, allocates memory and writes its answer.
const PERMITTED: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_write,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
];

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;

    use harness::fixtures::assert_root;
    use rustix::pipe::pipe;

    use super::*;

    const CALL: Call = Call { deadline_ms: 1, memory: 64 << 20 };

    /// Runs `work` in a child with the restrictions of a worker that reads `file`. Returns its output and its wait status.
    fn in_worker(file: &File, work: impl FnOnce(&mut File)) -> (String, i32) {
        let (output, input) = pipe().unwrap();
        // SAFETY: the allocator of the C library can be used after a fork. The child ends without returning.
        let worker = unsafe { libc::fork() };
        if worker == 0 {
            let mut input = File::from(input);
            let restricted = give_up_privileges().and_then(|()| restrict_worker(CALL, std::iter::once(file)));
            match restricted {
                Ok(_) => work(&mut input),
                Err(error) => _ = write!(input, "{error}"),
            }
            // SAFETY: the call ends the process without the exit handlers of the tests.
            unsafe { libc::_exit(0) };
        }
        drop(input);
        let mut text = String::new();
        File::from(output).read_to_string(&mut text).unwrap();
        let mut status = 0;
        // SAFETY: the pointer refers to an integer.
        assert_eq!(unsafe { libc::waitpid(worker, &raw mut status, 0) }, worker);
        (text, status)
    }

    /// Makes a system call that is refused, or only opens a file. Returns the number of its error; 0 if the call succeeds.
    fn error_of(call: libc::c_long, arguments: [usize; 3]) -> i32 {
        let [first, second, third] = arguments;
        // SAFETY: pointers among the arguments point to constant strings.
        let result = unsafe { libc::syscall(call, first, second, third, 0) };
        if result < 0 { io::Error::last_os_error().raw_os_error().unwrap() } else { 0 }
    }

    #[test]
    fn privileged_worker_can_read_its_file_and_nothing_else() {
        assert_root();
        let file = File::open("/bin/true").unwrap();
        let own = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let (text, status) = in_worker(&file, |output| {
            let open = |path: &std::ffi::CStr, flags: i32| {
                let [directory, flags] = [libc::AT_FDCWD, flags].map(|number| number.cast_unsigned() as usize);
                error_of(libc::SYS_openat, [directory, path.as_ptr() as usize, flags])
            };
            let errors = [
                open(&own, libc::O_RDONLY),
                open(c"/etc/passwd", libc::O_RDONLY),
                open(&own, libc::O_RDWR),
                open(c"/tmp", libc::O_TMPFILE | libc::O_RDWR),
                error_of(libc::SYS_socket, [libc::AF_UNIX as usize, libc::SOCK_STREAM as usize, 0]),
                error_of(libc::SYS_execve, [c"/bin/true".as_ptr() as usize, 0, 0]),
                error_of(libc::SYS_ptrace, [libc::PTRACE_TRACEME as usize, 0, 0]),
                error_of(libc::SYS_kill, [1, 0, 0]),
                error_of(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0]),
                error_of(libc::SYS_setuid, [0; 3]),
            ];
            let is_beyond = Vec::<u8>::new().try_reserve_exact(128 << 20).is_err();
            write!(output, "{errors:?} {is_beyond}").unwrap();
        });
        let other = if has_landlock() { libc::EACCES } else { 0 };
        let expected = [[0, other].as_slice(), &[libc::EPERM; 8]].concat();
        assert_eq!((text, status), (format!("{expected:?} true"), 0));
    }

    #[test]
    fn privileged_worker_without_an_end_is_killed() {
        assert_root();
        let (text, status) = in_worker(&File::open("/bin/true").unwrap(), |_| {
            loop {
                std::hint::spin_loop();
            }
        });
        assert_eq!((text.as_str(), libc::WTERMSIG(status)), ("", libc::SIGXCPU));
    }
}

//! State of a process and of its threads, as a tracer needs it.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use memtrace_model::Pid;

use super::error::ProcessError;
use super::kernel_text::field;
use super::maps::{self, MapsEntry};
use super::memcg_limits::find_mount;
use super::process::{self, proc_path, start_time, stat_fields};
use super::{cpu_clock, kernel_files};

/// Size of an entry of the auxiliary vector of a 64-bit process, in bytes.
const ENTRY: usize = 16;
/// `PF_IO_WORKER`: the thread is a worker of io_uring (include/linux/sched.h).
const PF_IO_WORKER: u64 = 0x10;

/// State of a thread, from `/proc/PID/task/TID/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskStatus {
    /// Letter of the state: `Z` and `X` for a thread that has exited.
    pub(crate) state: u8,
    /// Thread that traces this thread by ptrace(2); 0 if there is none.
    pub(crate) tracer: u32,
    /// Real, effective, saved and file system uid.
    pub(crate) users: [u32; 4],
    /// Number of threads of the process.
    pub(crate) threads: u32,
    /// Pending signals of the thread: bit 0 for signal 1.
    pub(crate) pending: u64,
    /// Pending signals of the process.
    pub(crate) shared_pending: u64,
    pub(crate) blocked: u64,
    /// Signals with a handler.
    pub(crate) caught: u64,
    /// Mode of seccomp: 0, 1 for strict, or 2 for filters.
    pub(crate) seccomp: u32,
    /// True if the processor compares return addresses with a shadow stack.
    pub(crate) has_shadow_stack: bool,
    /// True if the process has crashed, and one of its threads writes a core dump.
    pub(crate) dumps_core: bool,
    /// Number of times that the thread has given up its processor to wait.
    pub(crate) waits: u64,
}

impl TaskStatus {
    /// Returns true if the thread has exited.
    pub(crate) const fn has_exited(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Returns true if the thread has slept uninterruptibly ever since `earlier`.
    pub(crate) const fn has_slept_since(&self, earlier: &Self) -> bool {
        self.state == b'D' && earlier.state == b'D' && self.waits == earlier.waits
    }

    fn parse(status: &str) -> Option<Self> {
        let number = |name: &str| field(status, name)?.trim().parse::<u32>().ok();
        let signals = |name: &str| u64::from_str_radix(field(status, name)?.trim(), 16).ok();
        let mut users = field(status, "Uid:")?.split_ascii_whitespace().map_while(|user| user.parse().ok());
        let features = field(status, "x86_Thread_features:").unwrap_or_default();
        Some(Self {
            state: *field(status, "State:")?.trim().as_bytes().first()?,
            tracer: number("TracerPid:")?,
            users: [users.next()?, users.next()?, users.next()?, users.next()?],
            threads: number("Threads:")?,
            pending: signals("SigPnd:")?,
            shared_pending: signals("ShdPnd:")?,
            blocked: signals("SigBlk:")?,
            caught: signals("SigCgt:")?,
            // Kernels without seccomp have no such line.
            seccomp: number("Seccomp:").unwrap_or_default(),
            has_shadow_stack: features.split_ascii_whitespace().any(|feature| feature == "shstk"),
            dumps_core: number("CoreDumping:") == Some(1),
            waits: field(status, "voluntary_ctxt_switches:")?.trim().parse().ok()?,
        })
    }
}

/// Reads the state of a thread.
pub(crate) fn task_status(pid: Pid, tid: u32) -> io::Result<TaskStatus> {
    let status = kernel_files::read(proc_path(pid, &format!("task/{tid}/status")))?;
    TaskStatus::parse(&String::from_utf8_lossy(&status)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Lists the threads of a process. If a thread ends during the listing, the list can lack other threads.
pub(crate) fn tasks(pid: Pid) -> io::Result<Vec<u32>> {
    let mut tasks = Vec::with_capacity(256);
    for entry in fs::read_dir(proc_path(pid, "task"))? {
        tasks.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(tasks)
}

/// Returns true if a thread is a worker of io_uring, which the kernel has started in the process. It executes no code of the process.
pub(crate) fn is_io_worker(pid: Pid, tid: u32) -> bool {
    let stat = kernel_files::read(proc_path(pid, &format!("task/{tid}/stat")));
    stat.is_ok_and(|stat| has_flag(&stat, PF_IO_WORKER))
}

fn has_flag(stat: &[u8], flag: u64) -> bool {
    // proc_pid_stat(5) counts fields from 1, and the first field of the result is the third.
    let flags = stat_fields(stat).and_then(|fields| fields.get(9 - 3)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & flag != 0)
}

/// Lists the processes that a thread has started. Returns no processes if the kernel has no such list (CONFIG_PROC_CHILDREN).
pub(crate) fn children(pid: Pid, tid: u32) -> Vec<Pid> {
    let text = kernel_files::read_to_string(proc_path(pid, &format!("task/{tid}/children"))).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|child| child.parse().ok()).map(Pid).collect()
}

/// Returns true if the main thread of a process is exiting, has exited, or cannot be read.
pub(crate) fn is_ending(pid: Pid) -> bool {
    process::is_exiting(pid) != Some(false)
}

/// Returns the time since the start of a process; `None` if the process has exited.
pub(crate) fn age(pid: Pid) -> Option<Duration> {
    let (start, rate) = (start_time(pid)?, cpu_clock::ticks_per_second()?);
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for the length of the call.
    (unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) } == 0).then_some(())?;
    let now = Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?);
    let fraction = Duration::from_nanos((start % rate).saturating_mul(1_000_000_000) / rate);
    Some(now.saturating_sub(Duration::from_secs(start / rate) + fraction))
}

/// Reads the auxiliary vector of a process: keys and values (getauxval(3)).
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] for a 32-bit process.
pub(crate) fn auxiliary_vector(pid: Pid) -> io::Result<Vec<(u64, u64)>> {
    parse_auxiliary_vector(&kernel_files::read(proc_path(pid, "auxv"))?)
}

fn parse_auxiliary_vector(bytes: &[u8]) -> io::Result<Vec<(u64, u64)>> {
    let word = |bytes: &[u8]| bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes);
    let entries = bytes.chunks_exact(ENTRY).map(|entry| (word(entry), word(entry.get(8..).unwrap_or_default())));
    let entries: Vec<_> = entries.collect();
    // In a 32-bit process, the upper half of the first word is the value of the first entry.
    if entries.first().is_some_and(|(key, _)| key >> 32 != 0) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(entries)
}

/// Reads the VMAs of a process, ordered by address.
pub(crate) fn mappings(pid: Pid) -> Result<Vec<MapsEntry>, ProcessError> {
    maps::entries(pid)
}

/// Returns true if the cgroup of a process is frozen (cgroup-v2.rst, `cgroup.events`).
pub(crate) fn is_frozen(pid: Pid) -> bool {
    let frozen = || {
        let mounts = kernel_files::read("/proc/self/mountinfo").ok()?;
        let mount = find_mount(&mounts, "cgroup2", None)?;
        let groups = kernel_files::read_to_string(proc_path(pid, "cgroup")).ok()?;
        let group = mount.directory(Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?))?;
        let events = kernel_files::read_to_string(group.join("cgroup.events")).ok()?;
        Some(events.lines().any(|line| line == "frozen 1"))
    };
    frozen().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use harness::fixtures::Running;

    use super::*;

    const RECORDED: &str = "\
Name:\tTracerPid:\\t9
State:\tt (tracing stop)
Tgid:\t4711
TracerPid:\t42
Uid:\t1000\t0\t1001\t1002
CoreDumping:\t1
Threads:\t3
SigPnd:\t0000000000000002
ShdPnd:\t0000000000004000
SigBlk:\t0000000000010000
SigCgt:\t0000000180004002
NoNewPrivs:\t0
Seccomp:\t2
Seccomp_filters:\t5
x86_Thread_features:\tshstk wrss
x86_Thread_features_locked:\tshstk wrss
voluntary_ctxt_switches:\t150
nonvoluntary_ctxt_switches:\t545
";

    #[test]
    fn state_of_a_thread_is_parsed() {
        let expected = TaskStatus {
            state: b't',
            tracer: 42,
            users: [1000, 0, 1001, 1002],
            threads: 3,
            pending: 2,
            shared_pending: 0x4000,
            blocked: 0x1_0000,
            caught: 0x1_8000_4002,
            seccomp: 2,
            has_shadow_stack: true,
            dumps_core: true,
            waits: 150,
        };
        assert_eq!(TaskStatus::parse(RECORDED), Some(expected));
        let without =
            RECORDED.replace("Seccomp:\t2\n", "").replace("x86_Thread_features:\tshstk", "x86_Thread_features:\t");
        let parsed = TaskStatus::parse(&without.replace("CoreDumping:\t1", "CoreDumping:\t0")).unwrap();
        assert_eq!((parsed.seccomp, parsed.has_shadow_stack), (0, false), "the locked features are not those in use");
        assert!(!parsed.dumps_core);
        assert_eq!(TaskStatus::parse(&RECORDED.replace("\t1002", "")), None);
    }

    #[test]
    fn uninterruptible_sleep_lasts_until_the_next_wait() {
        let sleeper = TaskStatus { state: b'D', ..TaskStatus::parse(RECORDED).unwrap() };
        assert!(sleeper.has_slept_since(&sleeper));
        assert!(!sleeper.has_slept_since(&TaskStatus { waits: 149, ..sleeper }), "another wait");
        let running = TaskStatus { state: b'R', ..sleeper };
        assert!(!running.has_slept_since(&sleeper) && !sleeper.has_slept_since(&running));
    }

    #[test]
    fn worker_of_io_uring_is_known_by_its_flags() {
        // PF_IO_WORKER, PF_FORKNOEXEC and PF_RANDOMIZE; then PF_FORKNOEXEC and PF_RANDOMIZE.
        let stat = |flags: u32| format!("4712 (a) 1 (b) S 1 4711 4711 0 -1 {flags} 0 0");
        assert!(has_flag(stat(0x40_0050).as_bytes(), PF_IO_WORKER));
        assert!(!has_flag(stat(0x40_0040).as_bytes(), PF_IO_WORKER));
        assert!(!has_flag(b"4712 (iou-wrk-4711", PF_IO_WORKER));
        let own = std::process::id();
        assert!(!is_io_worker(Pid(own), own) && !is_io_worker(Pid(own), u32::MAX));
    }

    #[test]
    fn own_threads_are_listed() {
        let own = Pid(std::process::id());
        let status = task_status(own, own.0).unwrap();
        let listed = tasks(own).unwrap();
        assert!(listed.contains(&own.0) && status.threads >= 1 && !status.has_exited());
        assert!(task_status(own, u32::MAX).is_err() && tasks(Pid(u32::MAX)).is_err());
    }

    #[test]
    fn child_is_listed_and_young() {
        let running = Running::start("cat");
        // SAFETY: gettid(2) takes nothing and cannot fail.
        let own = unsafe { libc::gettid() }.cast_unsigned();
        let started = children(Pid(std::process::id()), own);
        // The list needs CONFIG_PROC_CHILDREN.
        assert!(started.is_empty() || started.contains(&running.pid()), "{started:?}");
        assert!(age(running.pid()).unwrap() < Duration::from_secs(60));
        assert!(!is_ending(running.pid()) && !is_frozen(running.pid()));
        assert!(is_ending(Pid(u32::MAX)) && age(Pid(u32::MAX)).is_none());
        running.end();
    }

    #[test]
    fn auxiliary_vector_of_a_32_bit_process_is_unsupported() {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        assert_eq!(parse_auxiliary_vector(&words(&[33, 0x7fff_0000_0000, 23, 1])).unwrap().last(), Some(&(23, 1)));
        let halves = words(&[0xf7f0_0000 << 32 | 32, 33]);
        assert_eq!(parse_auxiliary_vector(&halves).unwrap_err().kind(), io::ErrorKind::Unsupported);
        let own = auxiliary_vector(Pid(std::process::id())).unwrap();
        assert!(own.iter().any(|&(key, value)| key == libc::AT_PAGESZ && value == 4096));
    }
}

//! Use of the last-level cache by processes, which the performance monitoring unit (PMU) of the processors counts
//! (perf_event_open(2)).

use std::io;

use memtrace_model::{CacheUse, Pid, Tid};
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Event, Hardware};
use perf_event::{Builder, CountAndTime, Counter};

use crate::procfs;

/// Maximum number of counted threads. Each takes two descriptors.
const MAX_THREADS: usize = 1024;

/// Reason why the use of the cache is not counted.
#[derive(Debug, thiserror::Error)]
pub enum PmuError {
    #[error("no PMU counts it, as in most virtual machines")]
    Missing,
    #[error("the processes have more than {MAX_THREADS} threads")]
    TooManyThreads,
    #[error("permission is missing (CAP_PERFMON)")]
    Permission,
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// Counters of the cache references and misses of processes. Each pair counts a thread and the threads that it starts.
pub struct CacheCounters(Vec<[Counter; 2]>);

impl CacheCounters {
    /// Starts to count the use of the last-level cache by processes, in user mode.
    ///
    /// # Errors
    ///
    /// The PMU has no such counter, permission is missing, or the processes have too many threads.
    pub fn start(pids: &[Pid]) -> Result<Self, PmuError> {
        if is_intel() {
            // On Intel processors, these events are about the last-level cache (Intel 64 Software Developer's Manual, volume 3,
            // "Pre-defined Architectural Performance Events"). On other processors, they are about other caches
            // (arch/x86/events/amd/core.c, drivers/perf/arm_pmuv3.c).
            return Self::count(&[Hardware::CACHE_REFERENCES, Hardware::CACHE_MISSES], pids);
        }
        let reads = |result| Cache { which: CacheId::LL, operation: CacheOp::READ, result };
        Self::count(&[reads(CacheResult::ACCESS), reads(CacheResult::MISS)], pids)
    }

    /// Starts to count two events for all threads of `pids`.
    fn count<E: Event + Clone>(events: &[E; 2], pids: &[Pid]) -> Result<Self, PmuError> {
        let mut threads = Vec::new();
        for tid in pids.iter().flat_map(|&pid| procfs::threads(pid)) {
            if threads.len() == MAX_THREADS {
                return Err(PmuError::TooManyThreads);
            }
            match open(events, tid) {
                Ok(counters) => threads.push(counters),
                Err(error) => match error.raw_os_error() {
                    // The thread has exited.
                    Some(libc::ESRCH) => {}
                    Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => return Err(PmuError::Missing),
                    Some(libc::EACCES | libc::EPERM) => return Err(PmuError::Permission),
                    _ => return Err(error.into()),
                },
            }
        }
        Ok(Self(threads))
    }

    /// Returns the counts since the start; `None` if the counters have never run, because other events occupied the
    /// PMU.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn read(&mut self) -> io::Result<Option<CacheUse>> {
        let mut sum = CacheUse::default();
        let (mut enabled, mut running) = (0, 0);
        for [references, misses] in &mut self.0 {
            for (counter, sum) in [(references, &mut sum.references), (misses, &mut sum.misses)] {
                let count = counter.read_count_and_time()?;
                enabled += count.time_enabled;
                running += count.time_running;
                *sum += scaled(&count);
            }
        }
        Ok((enabled == 0 || running > 0).then_some(sum))
    }
}

/// Opens the counters of both events for a thread and the threads that it starts. The two counters are one group, so
/// they run at the same times.
fn open<E: Event + Clone>([references, misses]: &[E; 2], tid: Tid) -> io::Result<[Counter; 2]> {
    let tid = tid.0.cast_signed();
    let mut builder = Builder::new(references.clone());
    builder.observe_pid(tid).any_cpu().inherit(true).inherit_thread(true);
    let mut leader = builder.build()?;
    let member = builder.event(misses.clone()).enabled(true).build_with_group(&mut leader)?;
    leader.enable()?;
    Ok([leader, member])
}

/// Returns a count, extrapolated over the time that other events occupied the PMU.
fn scaled(count: &CountAndTime) -> u64 {
    if count.time_running == 0 {
        return 0;
    }
    let scaled = u128::from(count.count) * u128::from(count.time_enabled) / u128::from(count.time_running);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Returns true if the processor is from Intel.
fn is_intel() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use harness::Process;
    use harness::fixtures::Anonymous;
    use harness::process::{page_faults, wait_until_reading_stdin};
    use perf_event::events::Software;

    use super::*;

    const FAULTS: [Software; 2] = [Software::PAGE_FAULTS, Software::PAGE_FAULTS_MAJ];

    #[test]
    fn privileged_counts_are_those_of_the_process_without_its_children() {
        let mut shell =
            Process::start(Command::new("sh").args(["-c", "read go; ls / >/dev/null; echo done; read end"]));
        wait_until_reading_stdin(shell.pid());
        let before = page_faults(shell.pid());
        let mut counters = CacheCounters::count(&FAULTS, &[Pid(shell.pid())]).unwrap();
        shell.write_line("");
        assert_eq!(shell.read_line(), "done");
        wait_until_reading_stdin(shell.pid());
        let counted = counters.read().unwrap().unwrap();
        let [minor, major] = page_faults(shell.pid());
        let expected = CacheUse { references: minor + major - before[0] - before[1], misses: major - before[1] };
        assert_eq!(counted, expected);
        assert!(counted.references > 0, "the shell has page faults");
    }

    #[test]
    fn privileged_threads_that_start_later_are_counted() {
        const PAGES: u64 = 1000;
        let mut counters = CacheCounters::count(&FAULTS, &[Pid(std::process::id())]).unwrap();
        let touch = || {
            let memory = Anonymous::new(PAGES * 4096);
            (0..PAGES).for_each(|page| memory.touch(page * 4096));
        };
        thread::spawn(touch).join().unwrap();
        assert!(counters.read().unwrap().is_some_and(|counted| counted.references >= PAGES));
    }

    #[test]
    fn counts_are_extrapolated() {
        let count = |time_running| CountAndTime { count: 10, time_enabled: 300, time_running };
        assert_eq!([300, 100, 0].map(|time| scaled(&count(time))), [10, 30, 0]);
    }
}

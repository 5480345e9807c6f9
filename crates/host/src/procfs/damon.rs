//! DAMON, the kernel's sampling monitor of data accesses, through its files in sysfs
//! (Documentation/admin-guide/mm/damon/usage.rst).

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memtrace_model::{AbsAddr, PageState, Pid, TouchedPages};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::ProcessError;
use super::page_touches::tracked_ranges;
use super::pagemap::page_size;
use super::process::{failure, proc_path};
use super::undo::Undo;
use crate::procfs::kernel_files;

/// Kernel modules that use DAMON exclusively while they are enabled.
const EXCLUSIVE: [&str; 3] = ["damon_reclaim", "damon_lru_sort", "damon_stat"];

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Shell script that stops the monitors in the directory `$0`, and removes them.
const REMOVE: &str = "for each in \"$0\"/[0-9]*; do echo off >\"$each/state\"; done; echo 0 >\"$0/nr_kdamonds\"";

/// Maximum number of processes at a time. Each takes a kernel thread.
pub(super) const MAX_PROCESSES: usize = 16;

/// Number of aggregation intervals of a measurement, unless [`INTERVALS`] limits their length. If an access to a
/// sampled page of a region is found, all pages of the region count as accessed.
const AGGREGATIONS: u32 = 10;
/// Number of samples in an aggregation interval.
const SAMPLES: u32 = 20;
/// Shortest and longest aggregation interval. A read waits for the end of an interval.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Minimum and maximum number of regions of a process. DAMON starts with few regions, and splits them where accesses
/// differ.
const REGIONS: (u32, u32) = (10, 1000);

/// Reason why DAMON cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DamonError {
    #[error("the kernel has no DAMON in sysfs")]
    Missing,
    #[error("the kernel's DAMON has no virtual addresses")]
    NoVirtualAddresses,
    #[error("another program uses DAMON")]
    InUse,
    #[error("DAMON measures at most {MAX_PROCESSES} processes at a time, and {0} are selected")]
    TooMany(usize),
    #[error("cannot configure DAMON: {0}")]
    Failed(#[from] io::Error),
}

/// Monitors, one for each process. They are removed when this value is dropped, even if memtrace is killed.
#[derive(Debug)]
pub struct Damon {
    processes: Vec<Pid>,
    aggregation: Duration,
    _undo: Undo,
}

/// A region of addresses, and the number of its accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    start: u64,
    end: u64,
    /// Number of samples that found an access, in the last aggregation interval.
    accesses: u64,
    /// Number of aggregation intervals since `accesses` changed.
    age: u64,
}

impl Damon {
    /// Prepares monitors of processes for measurements of this duration.
    ///
    /// # Errors
    ///
    /// There are more processes than the maximum, the kernel lacks DAMON for virtual addresses, or another user
    /// has DAMON in use.
    pub fn prepare(processes: &[Pid], duration: Duration) -> Result<Self, DamonError> {
        if processes.len() > MAX_PROCESSES {
            return Err(DamonError::TooMany(processes.len()));
        }
        let damon = Self::create(processes, (duration / AGGREGATIONS).clamp(INTERVALS.0, INTERVALS.1))?;
        for (index, pid) in processes.iter().enumerate() {
            damon.configure(index, *pid)?;
        }
        Ok(damon)
    }

    /// Checks that DAMON for virtual addresses can be used.
    ///
    /// # Errors
    ///
    /// The kernel lacks DAMON for virtual addresses, or another user has DAMON in use.
    pub fn find() -> Result<(), DamonError> {
        Self::create(&[Pid(0)], INTERVALS.0).map(drop)
    }

    fn create(processes: &[Pid], aggregation: Duration) -> Result<Self, DamonError> {
        // Lock the file: two traces that start at once must not replace each other's monitors. Only root can open it.
        let number = Path::new(KDAMONDS).join("nr_kdamonds");
        let lock = kernel_files::open(&number).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => DamonError::Missing,
            _ => DamonError::Failed(error),
        })?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => DamonError::InUse,
            error => DamonError::Failed(error.into()),
        })?;
        let present = kernel_files::read_to_string(&number)?;
        // A write of the number would remove the monitors of another user.
        if present.trim() != "0" {
            // The kernel may lack virtual addresses: the monitors of the other user can be for physical addresses.
            return match has_virtual_addresses(&Path::new(KDAMONDS).join("0")) {
                Ok(false) => Err(DamonError::NoVirtualAddresses),
                Ok(true) | Err(_) => Err(DamonError::InUse),
            };
        }
        let undo = Undo::at_end_with_lock(REMOVE, KDAMONDS.as_ref(), lock)?;
        if let Err(error) = fs::write(&number, processes.len().to_string()) {
            // The monitors belong to another user.
            undo.cancel();
            return Err(match error.raw_os_error() {
                Some(libc::EBUSY) => DamonError::InUse,
                _ => DamonError::Failed(error),
            });
        }
        let damon = Self { processes: processes.to_vec(), aggregation, _undo: undo };
        for index in 0..processes.len() {
            write(&damon.kdamond(index), "contexts/nr_contexts", 1)?;
            if !has_virtual_addresses(&damon.kdamond(index))? {
                return Err(DamonError::NoVirtualAddresses);
            }
        }
        // A monitor cannot start while one of these modules is enabled.
        let is_enabled = |module: &&str| {
            let enabled = kernel_files::read_to_string(format!("/sys/module/{module}/parameters/enabled"));
            enabled.is_ok_and(|text| text.trim() == "Y")
        };
        if EXCLUSIVE.iter().any(is_enabled) {
            return Err(DamonError::InUse);
        }
        Ok(damon)
    }

    fn kdamond(&self, index: usize) -> PathBuf {
        Path::new(KDAMONDS).join(index.to_string())
    }

    fn configure(&self, index: usize, pid: Pid) -> io::Result<()> {
        let context = self.kdamond(index).join("contexts/0");
        write(&context, "operations", "vaddr")?;
        write(&context, "targets/nr_targets", 1)?;
        write(&context, "targets/0/pid_target", pid)?;
        let intervals = context.join("monitoring_attrs/intervals");
        write(&intervals, "sample_us", (self.aggregation / SAMPLES).as_micros())?;
        write(&intervals, "aggr_us", self.aggregation.as_micros())?;
        let regions = context.join("monitoring_attrs/nr_regions");
        write(&regions, "max", REGIONS.1)?;
        write(&regions, "min", REGIONS.0)?;
        // Set up a scheme that matches all regions, and only lists them.
        write(&context, "schemes/nr_schemes", 1)?;
        let scheme = context.join("schemes/0");
        write(&scheme, "action", "stat")?;
        for quantity in ["sz", "nr_accesses", "age"] {
            let range = scheme.join("access_pattern").join(quantity);
            write(&range, "min", 0)?;
            write(&range, "max", u64::MAX)?;
        }
        Ok(())
    }

    /// Starts the monitor of a process, and returns the time of the start.
    ///
    /// # Errors
    ///
    /// The process has exited.
    pub fn start(&self, pid: Pid) -> Result<Instant, ProcessError> {
        let state = self.state_of(pid)?;
        fs::write(&state, "on").map_err(|error| match error.raw_os_error() {
            // The kernel finds no process with this pid.
            Some(libc::EINVAL) if !proc_path(pid, "").exists() => ProcessError::Exited(pid),
            _ => failure(pid, &state, error),
        })?;
        Ok(Instant::now())
    }

    /// Returns the tracked resident pages of a process, with DAMON's estimate of the pages that were accessed since
    /// `started`, the start of the process's monitor.
    ///
    /// # Errors
    ///
    /// The process has exited.
    pub fn read(&self, pid: Pid, started: Instant) -> Result<TouchedPages, ProcessError> {
        let state = self.state_of(pid)?;
        let regions = || {
            // This write waits until the end of the aggregation interval.
            fs::write(&state, "update_schemes_tried_regions")?;
            regions(&state.with_file_name("contexts").join("0/schemes/0/tried_regions"))
        };
        // The monitor ends with its process.
        let mut regions = regions().map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOENT) => ProcessError::Exited(pid),
            _ => failure(pid, &state, error),
        })?;
        regions.sort_unstable_by_key(|region| region.start);
        let intervals = intervals_in(started.elapsed(), self.aggregation, &regions);
        let mut pages = TouchedPages::new(page_size().map_err(|error| failure(pid, &state, error))?);
        for range in tracked_ranges(pid)? {
            let size = pages.page_size().0;
            for address in (range.begin.0..range.end.0).step_by(usize::try_from(size).unwrap_or(usize::MAX)) {
                let region = regions.partition_point(|region| region.end <= address);
                let region = regions.get(region).filter(|region| region.start <= address);
                let is_touched = region.is_some_and(|region| region.was_accessed(intervals));
                pages.add(AbsAddr(address), if is_touched { PageState::Touched } else { PageState::Untouched });
            }
        }
        Ok(pages)
    }

    fn state_of(&self, pid: Pid) -> Result<PathBuf, ProcessError> {
        let index = self.processes.iter().position(|other| *other == pid).ok_or(ProcessError::Exited(pid))?;
        Ok(self.kdamond(index).join("state"))
    }
}

impl Region {
    /// Returns true if the region was accessed since the start, `intervals` aggregation intervals ago. Without an access, the
    /// age of a region is `intervals`, less the intervals that the start and the end cut.
    const fn was_accessed(&self, intervals: u64) -> bool {
        const CUT: u64 = 2;
        self.accesses > 0 || self.age + CUT < intervals
    }
}

/// Returns true if the first context of a monitor can have virtual addresses.
fn has_virtual_addresses(kdamond: &Path) -> io::Result<bool> {
    let operations = kernel_files::read_to_string(kdamond.join("contexts/0/avail_operations"))?;
    Ok(operations.lines().any(|line| line == "vaddr"))
}

/// Returns the number of aggregation intervals in `elapsed`. On a busy machine, intervals take longer than configured, so the
/// age of the oldest region is used. This age is too small if all regions were accessed in the second half. In this case, the
/// number is computed from the configured length.
fn intervals_in(elapsed: Duration, aggregation: Duration, regions: &[Region]) -> u64 {
    let configured = u64::try_from(elapsed.as_nanos() / aggregation.as_nanos().max(1)).unwrap_or(u64::MAX);
    let oldest = regions.iter().map(|region| region.age).max().unwrap_or(0);
    if oldest * 2 >= configured { oldest.min(configured) } else { configured }
}

fn regions(folder: &Path) -> io::Result<Vec<Region>> {
    let mut regions = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let number = |name: &str| -> io::Result<u64> {
            let text = kernel_files::read_to_string(entry.path().join(name))?;
            text.trim().parse().map_err(io::Error::other)
        };
        let region = Region {
            start: number("start")?,
            end: number("end")?,
            accesses: number("nr_accesses")?,
            age: number("age")?,
        };
        regions.push(region);
    }
    Ok(regions)
}

fn write(folder: &Path, name: &str, value: impl Display) -> io::Result<()> {
    fs::write(folder.join(name), value.to_string())
}

#[cfg(test)]
mod tests {
    use harness::Scratch;

    use super::*;

    const fn region(accesses: u64, age: u64) -> Region {
        Region { start: 0, end: 4096, accesses, age }
    }

    #[test]
    fn monitors_of_physical_addresses_only_are_recognized() {
        let scratch = Scratch::new();
        let context = scratch.join("contexts/0");
        fs::create_dir_all(&context).unwrap();
        assert!(has_virtual_addresses(&scratch).is_err());
        for (operations, has_virtual) in [("paddr\n", false), ("vaddr\nfvaddr\npaddr\n", true)] {
            fs::write(context.join("avail_operations"), operations).unwrap();
            assert_eq!(has_virtual_addresses(&scratch).unwrap(), has_virtual);
        }
    }

    #[test]
    fn regions_without_accesses_are_as_old_as_the_measurement() {
        assert!(region(1, 10).was_accessed(10));
        assert!(!region(0, 10).was_accessed(10));
        assert!(!region(0, 8).was_accessed(10));
        // This region was accessed at the start.
        assert!(region(0, 4).was_accessed(10));
    }

    #[test]
    fn intervals_are_counted_by_the_oldest_region() {
        let of = |ages: &[u64]| {
            let regions: Vec<_> = ages.iter().map(|&age| region(0, age)).collect();
            intervals_in(Duration::from_secs(10), Duration::from_secs(1), &regions)
        };
        assert_eq!([of(&[10, 3]), of(&[12]), of(&[7, 1]), of(&[4, 1]), of(&[])], [10, 10, 7, 10, 10]);
    }
}

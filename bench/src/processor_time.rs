//! Processor time of other processes, in seconds.

use std::io;
use std::mem;

use anyhow::{Context as _, Result, bail};

/// Returns the processor time of all children for which this process has waited, and of their descendants.
pub(crate) fn children() -> Result<f64> {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the pointer is valid for the rusage that the call writes.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot read the processor time of the children");
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

/// Returns the processor time of all threads of a running process.
pub(crate) fn process(pid: u32) -> Result<f64> {
    let mut clock: libc::clockid_t = 0;
    let pid = i32::try_from(pid).context("a pid fits into pid_t")?;
    // SAFETY: the pointer is valid for the clockid_t that the call writes.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        bail!("process {pid} has exited");
    }
    // SAFETY: all zeros is a valid timespec.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: the pointer is valid for the timespec that the call writes.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error()).with_context(|| format!("cannot read the clock of process {pid}"));
    }
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn processor_time_of_process_and_children_grows() {
        let own = std::process::id();
        let before = process(own).unwrap();
        let mut sum = 0u64;
        while process(own).unwrap() <= before {
            sum = std::hint::black_box(sum + 1);
        }
        let before = children().unwrap();
        assert!(Command::new("true").status().unwrap().success());
        assert!(children().unwrap() > before);
    }
}

//! How much processor time others have taken, in seconds.

use std::io;
use std::mem;

use anyhow::{Context as _, Result, bail};

/// All children of this process that have ended and were waited for, and theirs.
pub(crate) fn of_children() -> Result<f64> {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a whole rusage.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot ask what the children took");
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

/// A process that runs: all its threads.
pub(crate) fn of(pid: u32) -> Result<f64> {
    let mut clock: libc::clockid_t = 0;
    let pid = i32::try_from(pid).context("a pid is a small number")?;
    // SAFETY: the pointer is to a whole clockid_t.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        bail!("process {pid} has no clock: it has ended");
    }
    // SAFETY: all zeros is a valid timespec.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a whole timespec.
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
    fn a_busy_process_takes_time_and_so_does_a_child() {
        let own = std::process::id();
        let before = of(own).unwrap();
        let mut sum = 0u64;
        while of(own).unwrap() <= before {
            sum = std::hint::black_box(sum + 1);
        }
        let before = of_children().unwrap();
        assert!(Command::new("true").status().unwrap().success());
        assert!(of_children().unwrap() > before);
    }
}

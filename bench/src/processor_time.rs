//! Processor time of other processes, in seconds.

use std::io;
use std::mem;
use std::process::Child;

use anyhow::{Context as _, Result, bail};

/// Returns the processor time of all children for which this process has waited, and of their descendants.
pub(crate) fn children() -> Result<f64> {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the pointer is valid for the rusage that the call writes.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot read the processor time of the children");
    }
    Ok(seconds(usage))
}

/// Returns the time in user space and in the kernel.
fn seconds(usage: libc::rusage) -> f64 {
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Waits until a child exits, and returns its processor time, including the time of its children. The child must
/// succeed.
#[expect(clippy::needless_pass_by_value, reason = "the function reaps the child")]
pub(crate) fn of_child(child: Child) -> Result<f64> {
    let pid = i32::try_from(child.id()).context("a pid fits into pid_t")?;
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    let mut status = 0;
    // SAFETY: the pointers are valid for the values that the call writes.
    if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } != pid {
        return Err(io::Error::last_os_error()).context("cannot wait for a child");
    }
    if status != 0 {
        bail!("a child ended with the wait status {status:#x}");
    }
    Ok(seconds(usage))
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
        let of_child = of_child(Command::new("true").spawn().unwrap()).unwrap();
        assert!(of_child > 0.0 && of_child < children().unwrap(), "{of_child}");
        assert!(super::of_child(Command::new("false").spawn().unwrap()).is_err());
    }
}

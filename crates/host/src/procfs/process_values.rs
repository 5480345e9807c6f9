//! Reader of the memory and the number of descriptors of a process, without its mmap lock.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use memtrace_model::{Pid, ProcessValue, ProcessValues};

use super::process::proc_path;
use super::status::counted;

/// Reads the values of a process, except for its number of threads. Returns `None` if it has exited, or has no memory
/// any more.
///
/// The values in `/proc/PID/status` are counters. The kernel reads them without the mmap lock (`task_mem`,
/// fs/proc/task_mmu.c).
pub fn process_values(pid: Pid) -> Option<ProcessValues> {
    let memory = counted(pid).ok()?;
    let mut values = ProcessValues::default();
    values.set(ProcessValue::RssAnon, Some(memory.anonymous.0));
    values.set(ProcessValue::RssFile, Some(memory.file.0));
    values.set(ProcessValue::RssShmem, Some(memory.shmem.0));
    values.set(ProcessValue::Swap, Some(memory.swap.0));
    values.set(ProcessValue::Descriptors, descriptors(pid));
    Some(values)
}

/// Returns the number of open descriptors. Since Linux 6.2, it is the size of the directory `fd` (`proc_fd_getattr`,
/// fs/proc/fd.c); older kernels have the size 0.
fn descriptors(pid: Pid) -> Option<u64> {
    let size = fs::metadata(proc_path(pid, "fd")).ok()?.size();
    (size > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn descriptors_are_those_in_the_directory() {
        let own = Pid(std::process::id());
        let listed = || fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
        let before = descriptors(own);
        // Other tests open files at the same time.
        let files: Vec<File> = (0..200).map(|_| File::open("/dev/null").unwrap()).collect();
        let now = descriptors(own);
        assert!(now.is_none() || now >= Some(files.len() as u64) && now <= Some(listed() + 100), "{before:?} {now:?}");
        assert_eq!(process_values(Pid(u32::MAX)), None);
    }
}

//! BPF objects and pidfds that a process holds.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use memtrace_model::Pid;

use super::process::proc_path;
use crate::procfs::kernel_files;

/// Maximum number of descriptors of a process that are examined.
const MAX_DESCRIPTORS: usize = 1 << 14;

/// BPF objects and pidfds among the descriptors of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldObjects {
    /// Ids of BPF programs, including the programs of `links`.
    pub(crate) programs: BTreeSet<u32>,
    /// Ids of BPF links.
    pub(crate) links: BTreeSet<u32>,
    /// Processes of the pidfds.
    pub(crate) processes: BTreeSet<Pid>,
}

impl HeldObjects {
    /// Reads the descriptors of a process, at most [`MAX_DESCRIPTORS`].
    ///
    /// # Errors
    ///
    /// The process has exited, or permission is missing.
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        kernel_files::access(&proc_path(pid, "fdinfo"), Self::read)
    }

    /// Reads the descriptors in `fdinfo`, the directory of a process.
    fn read(fdinfo: &Path) -> io::Result<Self> {
        let links = fdinfo.with_file_name("fd");
        let mut held = Self::default();
        for entry in fs::read_dir(&links)?.take(MAX_DESCRIPTORS) {
            let Ok(entry) = entry else { continue };
            // Only the text of a relevant descriptor is read: the text of another one, such as an epoll instance, can
            // be long. A descriptor that was closed since the listing is skipped.
            let is_relevant = kernel_files::read_link(entry.path()).is_ok_and(|link| is_relevant(&link));
            if is_relevant && let Ok(text) = kernel_files::read_to_string(fdinfo.join(entry.file_name())) {
                held.add(&text);
            }
        }
        Ok(held)
    }

    /// Adds the object of a descriptor. `text`: its file in `/proc/PID/fdinfo` (`bpf_link_show_fdinfo` and
    /// `bpf_prog_show_fdinfo`, kernel/bpf/syscall.c; `pidfd_show_fdinfo`, fs/pidfs.c).
    fn add(&mut self, text: &str) {
        let number = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            value.trim().parse::<u32>().ok()
        };
        self.programs.extend(number("prog_id"));
        self.links.extend(number("link_id"));
        // The number is -1 if the process has exited.
        self.processes.extend(number("Pid").map(Pid));
    }
}

/// Returns true if a descriptor with this link refers to a BPF object or a process.
fn is_relevant(link: &Path) -> bool {
    let starts = ["anon_inode:bpf", "anon_inode:[pidfd]", "pidfd:"];
    link.to_str().is_some_and(|link| starts.iter().any(|start| link.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::open_pidfd;

    #[test]
    fn descriptors_of_bpf_objects_have_ids() {
        let mut held = HeldObjects::default();
        held.add("pos:\t0\nmnt_id:\t16\nlink_type:\tuprobe_multi\nlink_id:\t9\nprog_tag:\t6ab\nprog_id:\t4\n");
        held.add("pos:\t0\nprog_type:\t2\nprog_jited:\t1\nprog_id:\t77\n");
        held.add("pos:\t0\nPid:\t-1\nNSpid:\t-1\n");
        held.add("pos:\t0\nPid:\t12\nNSpid:\t12\n");
        let expected =
            HeldObjects { programs: [4, 77].into(), links: [9].into(), processes: BTreeSet::from([Pid(12)]) };
        assert_eq!(held, expected);
    }

    #[test]
    fn own_pidfds_are_found() {
        let own = Pid(std::process::id());
        let pidfd = open_pidfd(own).unwrap();
        assert!(HeldObjects::of(own).unwrap().processes.contains(&own));
        drop(pidfd);
    }
}

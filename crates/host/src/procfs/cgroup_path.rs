//! Reads the path of the cgroup of a process.

use std::sync::Arc;

use memtrace_model::{Cgroup, Pid};

use super::cgroup_parser;
use super::process::{is_exiting, proc_path};
use crate::procfs::kernel_files;

/// Reader of `/proc/PID/cgroup`. Successive processes in the same cgroup share one [`Cgroup`].
#[derive(Debug, Default)]
pub(super) struct CgroupPathReader {
    last: Option<(String, Arc<Cgroup>)>,
}

impl CgroupPathReader {
    /// Returns the cgroup of `pid`; `None` if the process has exited.
    pub(super) fn read(&mut self, pid: Pid) -> Option<Arc<Cgroup>> {
        let text = kernel_files::read(proc_path(pid, "cgroup")).ok()?;
        let text = String::from_utf8_lossy(&text);
        if is_exiting(pid) != Some(false) {
            return cgroup_parser::parse_exiting(&text).map(Arc::new);
        }
        if let Some((known, cgroup)) = &self.last
            && *known == text
        {
            return Some(Arc::clone(cgroup));
        }
        let cgroup = Arc::new(cgroup_parser::parse(&text)?);
        self.last = Some((text.into_owned(), Arc::clone(&cgroup)));
        Some(cgroup)
    }
}

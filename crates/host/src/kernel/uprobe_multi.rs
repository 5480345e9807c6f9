//! uprobe_multi links (Linux 6.6), which aya does not support. One link attaches a program to many instructions.
//!
//! aya creates the maps and loads all other programs. The programs for probes are loaded here, from the same object,
//! because the attach type of a program is set when the program is loaded.

mod bpf_object;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya::Ebpf;

use self::bpf_object::BpfObject;
use super::attach_point::{AttachPoint, Scope, shown};
use super::bpf_features;
use super::bpf_syscall::{self, LinkPoints};
use super::error::KernelError;
use super::helper_process;

/// Loads and attaches the programs for probes.
pub(super) struct UprobeMulti {
    object: BpfObject,
    programs: BTreeMap<String, LoadedProgram>,
}

struct LoadedProgram {
    program: OwnedFd,
    at_return: bool,
}

impl UprobeMulti {
    /// Prepares the programs of `object` for the maps of `ebpf`, which was loaded from the same object. Returns `None`
    /// if the kernel has no uprobe_multi links.
    pub(super) fn new(object: &[u8], ebpf: &Ebpf) -> Result<Option<Self>, KernelError> {
        if !bpf_features::has_uprobe_multi() {
            log::debug!("the kernel has no uprobe_multi links: each probe takes a perf event");
            return Ok(None);
        }
        Ok(Some(Self { object: BpfObject::new(object, ebpf)?, programs: BTreeMap::new() }))
    }

    /// Loads the program `name` unless it is loaded.
    pub(super) fn load(&mut self, name: &str) -> Result<(), KernelError> {
        if !self.programs.contains_key(name) {
            let (program, at_return) = self.object.load(name)?;
            self.programs.insert(name.to_owned(), LoadedProgram { program, at_return });
        }
        Ok(())
    }

    /// Attaches the program `name` to `points` in the file at `path`.
    pub(super) fn attach(
        &mut self,
        name: &str,
        scope: Scope,
        path: &Path,
        points: &[AttachPoint],
    ) -> Result<Link, KernelError> {
        self.load(name)?;
        let action = || format!("attach {} probes to {}", points.len(), shown(path));
        let no_file = || KernelError::NotInserted { action: action(), reason: String::from("there is no such file") };
        let LoadedProgram { program, at_return } = self.programs.get(name).ok_or_else(|| KernelError::missing(name))?;
        let file = CString::new(path.as_os_str().as_bytes()).map_err(|_| no_file())?;
        let offsets: Vec<u64> = points.iter().map(|point| point.offset.0).collect();
        let cookies: Vec<u64> = points.iter().map(|point| point.cookie.unwrap_or(0)).collect();
        let semaphores: Vec<u64> = points.iter().map(|point| point.semaphore.map_or(0, |offset| offset.0)).collect();
        let points = LinkPoints { offsets: &offsets, cookies: &cookies, semaphores: &semaphores };
        let pid = match scope {
            Scope::Process(pid) => pid.0,
            Scope::AllProcesses => 0,
        };
        bpf_syscall::create_link(program.as_fd(), &file, points, pid, *at_return)
            .map(Link::from)
            .map_err(|error| KernelError::from_attach(&action(), &error))
    }

    /// Returns the names and descriptors of the loaded programs.
    pub(super) fn programs(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.programs.iter().map(|(name, loaded)| (name.as_str(), loaded.program.as_fd()))
    }
}

/// Link that keeps probes attached. Dropping it removes them, even if memtrace is killed during the removal.
pub(in crate::kernel) struct Link(RawFd);

impl From<OwnedFd> for Link {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into_raw_fd())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let close = || {
            // SAFETY: this owns the descriptor, and nothing uses it after this.
            unsafe { libc::close(self.0) };
        };
        // SAFETY: the work is one system call.
        unsafe { helper_process::run(close) };
    }
}

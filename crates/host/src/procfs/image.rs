//! Process image: the executable mappings of a process with their objects.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use memtrace_model::{AbsAddr, Mapping, Object, Pid, ProcessImage};

use super::error::ProcessError;
use super::generated_code::is_generated_code;
use super::maps::{MapsEntry, entries};
use super::objects::{Objects, Opened};
use super::process::{failure, proc_path, program};
use crate::procfs::kernel_files;

/// Reads the executable mappings of a process, its comm and the path of its executable.
///
/// # Errors
///
/// Errors of reading `/proc`: the process has exited, or permission is missing.
pub fn read_image(pid: Pid, objects: &mut Objects) -> Result<ProcessImage, ProcessError> {
    let entries = entries(pid)?;
    if entries.is_empty() {
        // After the exit, `maps` is empty (`proc_maps_open`, fs/proc/task_mmu.c).
        return Err(ProcessError::Exited(pid));
    }
    let path = proc_path(pid, "comm");
    let comm = kernel_files::read(&path).map_err(|error| failure(pid, &path, error))?;
    let mappings = entries.iter().filter(|entry| entry.executable).map(|entry| Mapping {
        start: entry.start,
        end: entry.end,
        offset: entry.offset,
        object: object(pid, entry, objects).filter(|object| !is_generated_code(object)),
    });
    Ok(ProcessImage {
        comm: String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into(),
        exe: program(pid).ok(),
        mappings: mappings.collect(),
        ..ProcessImage::default()
    })
}

/// Returns the object that the process has mapped from `start` to `end`; `None` if the mapping is gone.
///
/// # Errors
///
/// Errors of reading `/proc`, as for [`read_image`].
pub fn object_at(
    pid: Pid,
    start: AbsAddr,
    end: AbsAddr,
    objects: &mut Objects,
) -> Result<Option<Arc<Object>>, ProcessError> {
    let entries = entries(pid)?;
    if entries.is_empty() {
        return Err(ProcessError::Exited(pid));
    }
    // The mapping may have been split or have grown in the meantime. The same object is then still at its first address.
    let entry = entries.into_iter().find(|entry| entry.start <= start && start < entry.end && entry.start < end);
    Ok(entry.and_then(|entry| object(pid, &entry, objects)))
}

/// Returns the executable of the process; `None` if it has exited.
pub fn program_of(pid: Pid, objects: &mut Objects) -> Option<Arc<Object>> {
    let opened = Opened::at(&proc_path(pid, "exe")).ok()?;
    let path = program(pid).ok()?;
    Some(objects.opened_by(pid, &path, opened))
}

/// Reads the vdso, which is the same in all processes.
///
/// # Errors
///
/// Errors of the read; `NotFound` if the kernel maps no vdso.
pub fn vdso() -> io::Result<Vec<u8>> {
    let not_found = || io::Error::from(io::ErrorKind::NotFound);
    let entries = entries(Pid(std::process::id())).map_err(io::Error::other)?;
    let vdso = entries.into_iter().find(|entry| entry.path == Path::new("[vdso]")).ok_or_else(not_found)?;
    let length = usize::try_from(vdso.end.0.saturating_sub(vdso.start.0)).map_err(io::Error::other)?;
    let mut image = vec![0; length];
    kernel_files::open("/proc/self/mem")?.read_exact_at(&mut image, vdso.start.0)?;
    Ok(image)
}

fn object(pid: Pid, entry: &MapsEntry, objects: &mut Objects) -> Option<Arc<Object>> {
    match entry.file {
        Some(inode) => Some(objects.mapped(pid, entry, inode)),
        None if Object::is_kernel_code(&entry.path) => Some(objects.nameless(&entry.path)),
        None => None,
    }
}

#[cfg(test)]
mod tests;

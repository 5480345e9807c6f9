//! Process image: the executable mappings of a process with their objects.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use super::error::ProcessError;
use super::maps::{Entry, entries, is_kernel_code};
use super::objects::{Objects, regular};
use super::process::{failure, proc_path, program};
use crate::model::{AbsAddr, Mapping, Object, Pid, ProcessImage};

/// Reads what the process has mapped with code in it, and its names.
///
/// # Errors
///
/// Where the process has ended, or may not be looked at.
pub(crate) fn read_image(pid: Pid, objects: &mut Objects) -> Result<ProcessImage, ProcessError> {
    let entries = entries(pid)?;
    if entries.is_empty() {
        // Memory that no longer exists reads as an empty file (`proc_maps_open`, fs/proc/task_mmu.c).
        return Err(ProcessError::Exited(pid));
    }
    let path = proc_path(pid, "comm");
    let comm = fs::read(&path).map_err(|error| failure(pid, &path, error))?;
    let mappings = entries.iter().filter(|entry| entry.executable).map(|entry| Mapping {
        start: entry.start,
        end: entry.end,
        offset: entry.offset,
        object: object(pid, entry, objects),
    });
    Ok(ProcessImage {
        comm: String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned(),
        exe: program(pid).ok(),
        mappings: mappings.collect(),
        ..ProcessImage::default()
    })
}

/// The object that the process has mapped from `start` to `end`; `None` where that has changed or the process has
/// ended.
pub(crate) fn object_at(pid: Pid, start: AbsAddr, end: AbsAddr, objects: &mut Objects) -> Option<Arc<Object>> {
    // A mapping may have been split or have grown since; what lies at its first address is the same.
    let entry = entries(pid).ok()?.into_iter().find(|entry| entry.start <= start && start < entry.end)?;
    (entry.start < end).then(|| object(pid, &entry, objects))?
}

/// The program that the process runs; `None` where it has ended.
pub(crate) fn program_of(pid: Pid, objects: &mut Objects) -> Option<Arc<Object>> {
    let opened = regular(&proc_path(pid, "exe")).ok()?;
    let path = program(pid).ok()?;
    Some(objects.opened_by(pid, &path, opened))
}

/// The code that the kernel lends to every process, as it does to this one.
///
/// # Errors
///
/// What reading says; `NotFound` where the kernel lends none.
pub(crate) fn vdso() -> io::Result<Vec<u8>> {
    let not_found = || io::Error::from(io::ErrorKind::NotFound);
    let entries = entries(Pid(std::process::id())).map_err(io::Error::other)?;
    let vdso = entries.into_iter().find(|entry| entry.path == Path::new("[vdso]")).ok_or_else(not_found)?;
    let length = usize::try_from(vdso.end.0.saturating_sub(vdso.start.0)).map_err(io::Error::other)?;
    let mut image = vec![0; length];
    File::open("/proc/self/mem")?.read_exact_at(&mut image, vdso.start.0)?;
    Ok(image)
}

fn object(pid: Pid, entry: &Entry, objects: &mut Objects) -> Option<Arc<Object>> {
    match entry.file {
        Some(inode) => Some(objects.mapped(pid, entry, inode)),
        None if is_kernel_code(&entry.path) => Some(objects.nameless(&entry.path)),
        None => None,
    }
}

#[cfg(test)]
mod tests;
